"""Corpora that several tests only read."""

import pytest

from tests.examples.tools.claims import synthetic


@pytest.fixture(scope="session")
def found():
    """What the papers found is planted."""
    return synthetic.corpus(synthetic.FOUND)


@pytest.fixture(scope="session")
def nothing():
    """None of it is."""
    return synthetic.corpus(synthetic.NOTHING)


@pytest.fixture(scope="session")
def documents():
    """Those of :func:`found`."""
    return synthetic.documents(synthetic.FOUND)
