"""Tiny models with data, of each kind, and what ``analyze`` says of them."""

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


def made_of(kind, **options):
    """A folder with ``bin``, tiny data, and models of it."""

    @pytest.fixture(scope="session")
    def folder(tmp_path_factory):
        from tests.analysis.kinds import made

        return getattr(made, kind)(tmp_path_factory.mktemp(kind), **options)

    return folder


texts = made_of("language_models")
labelled = made_of("classifiers")
pairs = made_of("classifiers", is_pair=True)


@pytest.fixture(scope="session")
def of_texts(texts, tmp_path_factory):
    """The analysis of language models, one pruned and one with a sparse output."""
    from tests.analysis.kinds import made

    names = ["softmax", "entmax15", "pruned", "sparse", "adaptive"]
    return made.analysed(texts, made.LM, names, tmp_path_factory.mktemp("of-texts"))


@pytest.fixture(scope="session")
def of_labelled(labelled, tmp_path_factory):
    """The analysis of classifiers."""
    from tests.analysis.kinds import made

    output = tmp_path_factory.mktemp("of-labelled")
    return made.analysed(labelled, *made.CLASSIFIED, output, *made.FEW)


@pytest.fixture(scope="session")
def of_pairs(pairs, tmp_path_factory):
    """The same of pairs of texts."""
    from tests.analysis.kinds import made

    return made.analysed(pairs, *made.CLASSIFIED, tmp_path_factory.mktemp("of-pairs"), *made.FEW)
