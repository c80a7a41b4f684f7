"""The mathematics is tested once, on torch's operations; each kernel against these in tests/kernels."""

import pytest

from fairseq_entmax import kernels


@pytest.fixture(autouse=True)
def torchs_operations(monkeypatch):
    monkeypatch.setenv(kernels.VARIABLE, kernels.TORCH)
