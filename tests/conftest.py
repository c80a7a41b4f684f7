"""What tests in several files share."""

import os

import pytest
import torch

# Read when Triton is first imported: without a GPU its kernels run in its interpreter
if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")


@pytest.fixture(scope="session")
def data(tmp_path_factory):
    """A binarised slice of the corpus, its plain text, and its BPE model."""
    from tests import commands  # only where it is used: it needs fairseq

    folder = tmp_path_factory.mktemp("data")
    commands.prepare(folder)
    return folder
