"""What tests of the library share."""

import pytest

from fairseq_entmax import kernels
from fairseq_entmax.kernels.native import library
from tests.kernels.native.support import FakeCompiler


@pytest.fixture
def fresh(monkeypatch):
    """As in a new process."""
    monkeypatch.setattr(kernels, "_said", set())
    library._try_to_load.cache_clear()
    yield monkeypatch
    library._try_to_load.cache_clear()


@pytest.fixture
def compiler(fresh, tmp_path):
    """A compiler that is quick, and logs what it compiles; ``CC`` names it."""
    fake = FakeCompiler(tmp_path / "cc")
    fresh.setenv("CC", str(fake.path))
    return fake


@pytest.fixture
def folder(fresh, tmp_path):
    """A folder for the cache, with nothing in it; ``FAIRSEQ_ENTMAX_CACHE`` names it."""
    path = tmp_path / "cache"
    path.mkdir(mode=0o700)
    fresh.setenv("FAIRSEQ_ENTMAX_CACHE", str(path))
    return path
