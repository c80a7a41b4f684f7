"""Names of the models of the summary recipes, and what they mean to fairseq-train."""

from __future__ import annotations

from itertools import pairwise

import pytest
from messages import UsageError
from summary_models import canonical, main, options_of


def pairs(options):
    """Options with values, as a dictionary."""
    return {
        name: value
        for name, value in pairwise(options)
        if name.startswith("--") and not value.startswith("--")
    }


@pytest.mark.parametrize(
    ("word", "name"),
    [
        ("baseline", "baseline"),
        ("sparse-tl", "sparse-tl:entmax15"),
        ("sparse-all:entmax", "sparse-all:entmax"),
        ("cross:fusedmax", "cross:fusedmax"),
    ],
)
def test_a_name_is_whole_with_its_mapping(word, name):
    assert canonical(word, "entmax15") == name


@pytest.mark.parametrize(
    "word", ["softmax", "baseline:entmax", "sparse-enc:", "cross", "cross:", "sparse", "Baseline"]
)
def test_a_name_that_is_none_is_refused_with_those_there_are(word):
    with pytest.raises(UsageError, match=f"the model got '{word}': give baseline, sparse-enc"):
        canonical(word, "sparsemax")


@pytest.mark.parametrize(
    ("model", "mappings"),
    [
        (
            "sparse-enc:sparsemax",
            {"--attn-mapping": "softmax", "--encoder-self-attn-mapping": "sparsemax"},
        ),
        (
            "sparse-tl:entmax15",
            {
                "--attn-mapping": "softmax",
                "--encoder-self-attn-mapping": "entmax15",
                "--decoder-self-attn-mapping": "entmax15*3,softmax",
                "--cross-attn-mapping": "entmax15*3,softmax",
            },
        ),
        ("sparse-ch:entmax", {"--attn-mapping": "entmax", "--copy-mapping": "softmax"}),
        ("sparse-all:sparsemax", {"--attn-mapping": "sparsemax"}),
    ],
)
def test_a_sparse_model_is_sparse_where_its_name_says(model, mappings):
    options = pairs(options_of(model, 4, 0))
    assert {name: text for name, text in options.items() if "mapping" in name} == mappings


def test_a_decoder_of_one_layer_has_only_its_top():
    assert pairs(options_of("sparse-tl:entmax", 1, 0))["--cross-attn-mapping"] == "softmax"


def test_numbers_for_words_go_to_models_that_copy_alone():
    assert pairs(options_of("sparse-ch:entmax", 4, 200))["--source-position-markers"] == "200"
    with pytest.raises(UsageError, match="'cross:softmax', which does not copy, and the data"):
        options_of("cross:softmax", 4, 200)


def test_the_shell_reads_an_option_a_line(capsys):
    main(["options", "baseline", "2", "0"])
    assert tuple(capsys.readouterr().out.split("\n")[:-1]) == options_of("baseline", 2, 0)


def test_a_mapping_that_the_package_does_not_know_is_refused(capsys):
    with pytest.raises(SystemExit) as stopped:
        main(["known", "the mapping", "sparse-tl:sparsemaxx"])
    assert stopped.value.code == 2
    assert "the mapping got 'sparsemaxx': " in capsys.readouterr().err
