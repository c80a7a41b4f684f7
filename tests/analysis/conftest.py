"""Tiny models of each kind with data, and their analyses by ``analyze``."""

import pytest


@pytest.fixture(scope="session")
def tiny(tmp_path_factory):
    """A folder with ``plain.pt``, a model of 20 words, and ``bin``, its data."""
    from tests.analysis.ablation.test_command import ENTMAX, save_trained, write_data
    from tests.support import random_sentences

    folder = tmp_path_factory.mktemp("tiny")
    sources = random_sentences([5, 9, 3, 7, 11, 4, 6, 8])
    targets = random_sentences([4, 8, 5, 7, 9, 4, 6, 6], seed=1)
    write_data(folder / "bin", sources, targets)
    save_trained(folder / "plain.pt", **ENTMAX)
    return folder


def made_of(kind, **options):
    """A fixture: a folder with tiny data in ``bin``, and models for it."""

    @pytest.fixture(scope="session")
    def folder(tmp_path_factory):
        from tests.analysis.data_types import small

        return getattr(small, kind)(tmp_path_factory.mktemp(kind), **options)

    return folder


texts = made_of("language_models")
labelled = made_of("robertas")
pairs = made_of("robertas", is_pair=True)
masked = made_of("masked_models")


def analysis_of(kind, task, *names, more=()):
    """A fixture: the analysis of some models of a folder."""

    @pytest.fixture(scope="session")
    def analysed(request, tmp_path_factory):
        from tests.analysis.data_types import small

        folder, output = request.getfixturevalue(kind), tmp_path_factory.mktemp(f"of-{kind}")
        return small.analysed(folder, task, names, output, *more)

    return analysed


# One model is pruned, and one has a sparse output
of_texts = analysis_of(
    *("texts", "language_modeling", "softmax", "entmax15", "pruned", "sparse", "adaptive")
)
FEW = "--gradient-sentences=4", "--sentences=3,0,7"
ROBERTAS = "softmax", "sparse", "learned"
of_labelled = analysis_of("labelled", "sentence_prediction", *ROBERTAS, more=FEW)
of_pairs = analysis_of("pairs", "sentence_prediction", *ROBERTAS, more=FEW)
of_masked = analysis_of("masked", "masked_lm", *ROBERTAS, more=FEW)
