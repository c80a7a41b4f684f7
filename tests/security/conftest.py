import logging

import pytest
import torch

from tests.security import harmless


@pytest.fixture(scope="session")
def attack_data(tmp_path_factory):
    """Binarised data of random sentences."""
    folder = tmp_path_factory.mktemp("attacks") / "data"
    harmless.write_data(folder)
    return folder


@pytest.fixture(scope="session")
def good_state(attack_data):
    """A harmless checkpoint, as torch reads it."""
    return harmless.harmless(attack_data, "--encoder-layers=1", "--decoder-layers=1")


@pytest.fixture(scope="session")
def good_file(good_state, tmp_path_factory):
    path = tmp_path_factory.mktemp("good") / "good.pt"
    torch.save(good_state, path)
    return path


@pytest.fixture(autouse=True)
def _quiet():
    """Hide fairseq's log, which has a whole configuration for each model."""
    logging.disable(logging.INFO)
    yield
    logging.disable(logging.NOTSET)
