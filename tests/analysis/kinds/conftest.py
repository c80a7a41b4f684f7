"""Models of each kind with their data, and what ``analyze`` says of them."""

import pytest

from fairseq_entmax.analysis import document
from tests.analysis.kinds import made

LM, CLASSES = "language_modeling", "sentence_prediction"


@pytest.fixture(scope="session")
def texts(tmp_path_factory):
    return made.language_models(tmp_path_factory.mktemp("texts"))


@pytest.fixture(scope="session")
def labelled(tmp_path_factory):
    return made.classifiers(tmp_path_factory.mktemp("labelled"))


@pytest.fixture(scope="session")
def pairs(tmp_path_factory):
    return made.classifiers(tmp_path_factory.mktemp("pairs"), is_pair=True)


@pytest.fixture(scope="session")
def of_texts(texts, tmp_path_factory):
    """The analysis of language models, one pruned and one with a sparse output."""
    output = tmp_path_factory.mktemp("of-texts")
    names = ["softmax", "entmax15", "pruned", "sparse", "adaptive"]
    assert made.run("analyze", texts, LM, names, output, f"--names={','.join(names)}") == 0
    return document.read(output / "analysis.json")


def analysed(folder, output):
    names = ["softmax", "sparse", "learned"]
    more = (f"--names={','.join(names)}", "--gradient-sentences=4", "--sentences=3,0,7")
    assert made.run("analyze", folder, CLASSES, names, output, *more) == 0
    return document.read(output / "analysis.json")


@pytest.fixture(scope="session")
def of_labelled(labelled, tmp_path_factory):
    return analysed(labelled, tmp_path_factory.mktemp("of-labelled"))


@pytest.fixture(scope="session")
def of_pairs(pairs, tmp_path_factory):
    return analysed(pairs, tmp_path_factory.mktemp("of-pairs"))
