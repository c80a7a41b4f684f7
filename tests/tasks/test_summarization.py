"""The options of the task: their values, their combinations, and which searches accept them."""

from argparse import Namespace

import pytest
from fairseq import search
from fairseq.sequence_generator import SequenceGenerator
from fairseq.sequence_scorer import SequenceScorer

from fairseq_entmax.tasks.search import SearchSettings, SummarySearch
from fairseq_entmax.tasks.summarization import (
    EntmaxSummarizationTask,
    SummarizationConfig,
    split_tokens,
)
from tests.support import build_model, tiny_task

WORDS = ("w4", "w7")


def make_task(**options):
    dictionary = tiny_task().source_dictionary
    config = SummarizationConfig(source_lang="a", target_lang="b", **options)
    return EntmaxSummarizationTask(config, dictionary, dictionary)


def generator(task, models=None, **arguments):
    return task.build_generator(models or [build_model()], Namespace(**arguments))


@pytest.mark.parametrize(
    ("text", "tokens"),
    [("", []), ("., !,", [".", "!"]), (" , . ", [",", "."]), ("▁. </s>", ["▁.", "</s>"])],
)
def test_tokens_are_separated_by_spaces_or_commas(text, tokens):
    assert split_tokens(text) == tokens


@pytest.mark.parametrize("text", [" ".join(WORDS), ",".join(WORDS)])
def test_tokens_become_indices_of_the_dictionary(text):
    found = generator(make_task(no_repeat_ngram_except=text), no_repeat_ngram_size=3)
    expected = sorted(tiny_task().target_dictionary.index(word) for word in WORDS)
    assert list(found.repeat_ngram_blocker.may_repeat) == expected
    assert found.repeat_ngram_blocker.size == 3


@pytest.mark.parametrize(
    ("options", "arguments", "message"),
    [
        ({"coverage_penalty": 5.0}, {"sampling": True}, "--coverage-penalty 5 .* --sampling"),
        ({}, {"coverage_penalty": 5, "sampling": True}, "--coverage-penalty 5 .* --sampling"),
        ({"length_penalty": "wu"}, {"unnormalized": True}, "wu .* --unnormalized forbids it"),
        ({"length_penalty": "wu"}, {"lenpen": -1.0}, "--lenpen got -1.0: with --length-penalty wu"),
        ({"length_penalty": "wu"}, {"lenpen": 1e9}, "--lenpen got 1000000000.0"),
        ({}, {"coverage_penalty": "much"}, "--coverage-penalty got 'much'"),
        ({}, {"length_penalty": "no"}, "--length-penalty got 'no'"),
        # Options of the task alone
        ({"no_repeat_ngram_except": "w4 w99"}, {}, "--no-repeat-ngram-except got 'w99', which is"),
        ({"length_penalty": "wo"}, {}, "--length-penalty got 'wo': give average or wu"),
        *(
            ({"coverage_penalty": float(value)}, {}, f"got '{value}': give a number from 0")
            for value in ("-1.0", "nan", "inf")
        ),
    ],
)
def test_invalid_options_and_combinations_are_refused(options, arguments, message):
    with pytest.raises(ValueError, match=message):
        generator(make_task(**options), **arguments)


def test_sampling_accepts_the_length_penalty():
    found = generator(make_task(length_penalty="wu"), sampling=True)
    assert isinstance(found, SummarySearch)
    assert isinstance(found.search, search.Sampling)


def test_coverage_needs_cross_attention():
    model, task = build_model(no_cross_attention=True), make_task(coverage_penalty=5.0)
    for models in ([model], [build_model(), model], [build_model(cross_attn_heads="2,0")]):
        with pytest.raises(ValueError, match=r"--coverage-penalty 5 needs .* has none"):
            generator(task, models)
    assert generator(make_task(length_penalty="wu"), [model])
    copying = build_model("entmax_copy_transformer", copy_layer=0, cross_attn_heads="2,0")
    assert generator(task, [build_model(cross_attn_heads="0,2"), copying])


def test_arguments_of_a_generator_override_the_options_of_the_task():
    task = make_task(coverage_penalty=5.0, length_penalty="wu")
    assert generator(task).settings == SearchSettings("wu", 5.0)
    found = generator(task, coverage_penalty=0, length_penalty="average")
    assert type(found) is SequenceGenerator
    found = generator(make_task(), coverage_penalty=2, no_repeat_ngram_except="w4")
    index = tiny_task().target_dictionary.index("w4")
    assert found.settings == SearchSettings("average", 2.0, (index,))


def test_a_reference_is_scored_without_a_search():
    task = make_task(coverage_penalty=5.0, length_penalty="wu")
    assert isinstance(generator(task, score_reference=True), SequenceScorer)
