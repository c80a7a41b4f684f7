"""Names of the models in the summary recipes, and their options of fairseq-train."""

from itertools import pairwise

import pytest
from messages import UsageError
from summary_models import canonical, main, options_of


def pairs(options):
    """Options with values, as a dictionary."""
    both = pairwise(options)
    return {one: other for one, other in both if one[:2] == "--" and other[:2] != "--"}


TWO = "decoder-self-attn-mapping {0} cross-attn-mapping {0}"
BELOW_TOP = TWO.format("sparsemax*3,softmax")


@pytest.mark.parametrize("word", ["softmax", "baseline:entmax", "sparse-enc:", "cross"])
def test_an_unknown_name_is_refused_with_the_known_ones(word):
    with pytest.raises(UsageError, match=f"the model got '{word}': give baseline, sparse-enc"):
        canonical(word)


@pytest.mark.parametrize(
    ("model", "layers", "mappings"),
    [
        ("baseline", 4, "attn-mapping softmax"),
        ("sparse-enc:entmax", 4, "attn-mapping softmax encoder-self-attn-mapping entmax"),
        ("sparse-tl", 4, f"attn-mapping softmax encoder-self-attn-mapping sparsemax {BELOW_TOP}"),
        ("sparse-ch:entmax", 4, "attn-mapping entmax copy-mapping softmax"),
        ("sparse-all:sparsemax", 4, "attn-mapping sparsemax"),
        ("cross:fusedmax", 4, "attn-mapping softmax cross-attn-mapping fusedmax"),
    ],
)
def test_a_sparse_model_is_sparse_where_its_name_says(model, layers, mappings):
    options = pairs(options_of(canonical(model), layers, 0)).items()
    found = (f"{name.removeprefix('--')} {text}" for name, text in options if "mapping" in name)
    assert " ".join(found) == mappings


def test_markers_for_words_are_only_for_models_that_copy():
    assert pairs(options_of("sparse-ch:entmax", 4, 200))["--source-position-markers"] == "200"
    with pytest.raises(UsageError, match="'cross:softmax', which does not copy, but the data"):
        options_of("cross:softmax", 4, 200)


def test_the_shell_reads_one_option_per_line_and_unknown_mappings_are_refused(capsys, refusal):
    main(["options", "baseline", "2", "0"])
    assert tuple(capsys.readouterr().out.split("\n")[:-1]) == options_of("baseline", 2, 0)
    main(["known", "the mapping", "sparse-tl:entmax:alpha=1.33"])
    error = refusal(main, ["known", "the mapping", "sparse-tl:sparsemaxx"])
    assert "the mapping got 'sparsemaxx': unknown mapping 'sparsemaxx'; allowed: softmax" in error
