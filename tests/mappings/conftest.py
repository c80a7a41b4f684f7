"""The mathematics is tested with torch's operations; tests/kernels compares kernels with them."""

import pytest

from fairseq_entmax import kernels


@pytest.fixture(autouse=True)
def torchs_operations(monkeypatch):
    monkeypatch.setenv(kernels.VARIABLE, kernels.TORCH)
