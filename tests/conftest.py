"""What tests in several files share."""

import os

# Inductor's graphs of an earlier state of the package are none of this one's; read by torch
os.environ.setdefault("TORCH_COMPILE_FORCE_DISABLE_CACHES", "1")

import pytest
import torch

# Read when Triton is first imported: without a GPU its kernels run in its interpreter
if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")


def pytest_collection_modifyitems(items):
    """Triton's interpreter takes seconds for what a GPU does in none: its tests count as slow."""
    if os.environ.get("TRITON_INTERPRET") == "1":
        for item in items:
            if "triton" in item.nodeid:
                item.add_marker(pytest.mark.slow)


@pytest.fixture(scope="session")
def data(tmp_path_factory):
    """A binarised slice of the corpus, its plain text, and its BPE model."""
    from tests import commands  # only where it is used: it needs fairseq

    folder = tmp_path_factory.mktemp("data")
    commands.prepare(folder)
    return folder
