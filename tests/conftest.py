"""What tests in several files share."""

import pytest


@pytest.fixture(scope="session")
def data(tmp_path_factory):
    """A binarised slice of the corpus, its plain text, and its BPE model."""
    from tests import commands  # only where it is used: it needs fairseq

    folder = tmp_path_factory.mktemp("data")
    commands.prepare(folder)
    return folder
