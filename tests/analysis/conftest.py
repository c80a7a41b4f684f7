"""A tiny model with data, for tests of commands on damaged files."""

import pytest


@pytest.fixture(scope="session")
def tiny(tmp_path_factory):
    """A folder with ``plain.pt``, a model of 20 words, and ``bin``, its data."""
    import torch

    from tests.analysis.ablation.test_command import ENTMAX, write_data
    from tests.pruning.test_surgery import state_of, trained
    from tests.support import random_sentences

    folder = tmp_path_factory.mktemp("tiny")
    sources = random_sentences([5, 9, 3, 7, 11, 4, 6, 8])
    targets = random_sentences([4, 8, 5, 7, 9, 4, 6, 6], seed=1)
    write_data(folder / "bin", sources, targets)
    history = {"num_updates": 7, "lr_scheduler_state": {}, "optimizer_name": "FairseqAdam"}
    state = {**state_of(trained(**ENTMAX), **ENTMAX), "optimizer_history": [history]}
    torch.save(state, folder / "plain.pt")
    return folder
