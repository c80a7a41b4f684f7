"""fairseq's search with probabilities that are exactly zero: what users see of it."""

import logging
import math
from argparse import Namespace

import pytest
import torch
from fairseq.sequence_generator import SequenceGenerator, SequenceGeneratorWithAlignment

from fairseq_entmax.fairseq_patches.exact_search.counts import (
    SearchCounts,
    count_searches,
    reporting,
)
from tests.sparse_toys import EOS, Toy, toy_batch, toy_task

A, B, C, D = 4, 5, 6, 7
# Three sequences with their ends: A, A B and C, of probability 0.3, 0.3 and 0.4
THREE = {(): {A: 0.6, C: 0.4}, (A,): {EOS: 0.5, B: 0.5}, (A, B): {EOS: 1.0}, (C,): {EOS: 1.0}}


def table_model(table):
    """A toy that reads a fixed table, whatever the source."""
    toy = Toy(0)
    # fairseq also asks for words after impossible ones
    toy.decoder.table = lambda source, words: table.get(words, {D: 1.0})
    return toy


def make_generator(model, **options):
    return toy_task().build_generator([model], Namespace(**{"beam": 5, "max_len_b": 8, **options}))


def find(model, sources=((A,),), prefix=None, ids=None, **options):
    generator = make_generator(model, **options)
    tokens = None if prefix is None else torch.tensor(prefix)
    return toy_task().inference_step(
        generator, [model], toy_batch(sources, ids), prefix_tokens=tokens
    )


def words_of(hypotheses):
    return [hypothesis["tokens"].tolist()[:-1] for hypothesis in hypotheses]


def test_fairseqs_own_search_fails_where_too_few_hypotheses_can_end():
    generator = make_generator(table_model(THREE))
    stock = SequenceGenerator.generate.__wrapped__
    with pytest.raises(AssertionError, match="8 < 8"):
        stock(generator, [], toy_batch([[A]]))


ENDLESS = {(A,) * length: {A: 0.5, B: 0.5} for length in range(9)}
ENDLESS |= {(*[A] * length, B): {B: 1.0} for length in range(9)}
ENDLESS |= {(*[A] * one, *[B] * two): {B: 1.0} for one in range(9) for two in range(1, 9)}


def test_hypotheses_that_cannot_end_are_cut_off():
    (best,) = find(table_model(ENDLESS), beam=2, max_len_b=3, unnormalized=True)
    assert words_of(best) == [[B, B, B], [A, B, B]]
    for hypothesis, total in zip(best, (0.5, 0.25), strict=True):
        assert hypothesis["unfinished"]
        assert not hypothesis["exact_search"]
        # The score is that of the words alone
        assert hypothesis["score"].item() == pytest.approx(math.log(total))
        assert hypothesis["positional_scores"][-1] == 0.0


def test_samples_that_cannot_end_are_cut_off():
    torch.manual_seed(0)
    (samples,) = find(table_model(ENDLESS), beam=6, max_len_b=3, sampling=True)
    assert len(samples) == 6
    assert all(sample["unfinished"] and len(sample["tokens"]) == 4 for sample in samples)


def test_a_forced_prefix_of_probability_zero_is_kept_and_costs_nothing():
    table = {**THREE, (B,): {D: 0.2, C: 0.8}, (B, D): {EOS: 1.0}, (B, C): {EOS: 1.0}}
    (best,) = find(table_model(table), prefix=[[B]], unnormalized=True)
    assert words_of(best) == [[B, C], [B, D]]
    assert [hypothesis["score"].item() for hypothesis in best] == pytest.approx(
        [math.log(0.8), math.log(0.2)]
    )
    assert [hypothesis["impossible_prefix"] for hypothesis in best] == [1, 1]
    assert best[0]["exact_search"]
    for prefix in ([EOS], [B, EOS]):  # a prefix with its end is the only hypothesis
        (best,) = find(table_model(THREE), prefix=[prefix], beam=4)
        assert words_of(best) == [prefix[:-1]]


@pytest.mark.parametrize(
    "options",
    [{}, {"diverse_beam_groups": 2}, {"diversity_rate": 0.3}, {"match_source_len": True}],
    ids=lambda options: ",".join(options) or "beam",
)
def test_sentences_of_a_batch_do_not_affect_each_other(options):
    model, sources = Toy(3), [(A, B), (C,), (D, D, A, B), (B,)]
    # Data set ids, which fairseq's diverse search takes for positions in the batch
    together = find(model, sources, ids=[90, 7, 3, 51], beam=4, **options)
    for source, hypotheses in zip(sources, together, strict=True):
        limit = {"max_len_b": 8}
        (alone,) = find(model, [source], beam=4, **limit, **options)
        assert words_of(alone) == words_of(hypotheses)
        scores = [[each["score"].item() for each in best] for best in (alone, hypotheses)]
        assert scores[0] == pytest.approx(scores[1], abs=1e-5)


def test_alignments_are_computed_for_the_existing_hypotheses():
    model = table_model(THREE)
    (best, other) = find(model, [(A, B), (C,)], beam=5, print_alignment="hard")
    assert isinstance(make_generator(model, print_alignment="hard"), SequenceGeneratorWithAlignment)
    for hypotheses in (best, other):
        assert words_of(hypotheses) == [[A, B], [C], [A]]
        assert all(len(hypothesis["alignment"]) for hypothesis in hypotheses)
        assert not any("is_filler" in hypothesis for hypothesis in hypotheses)


# Counts


def test_searches_are_counted_per_generator_and_per_block():
    wide, narrow = (make_generator(table_model(THREE), beam=beam) for beam in (3, 2))
    with count_searches() as all_counts:
        wide.generate([], toy_batch([[A], [B]]))
        with count_searches() as inner:
            narrow.generate([], toy_batch([[A]]))
    wide.generate([], toy_batch([[A]]))
    assert all_counts == SearchCounts(sentences=3, exact=2, sparse=3)
    assert inner == SearchCounts(sentences=1, exact=0, sparse=1)
    assert wide.search_counts == SearchCounts(sentences=3, exact=3, sparse=3)


def test_a_command_ends_with_counts_of_exact_cut_off_and_impossible_searches(caplog):
    def main():
        find(table_model(THREE), [[A], [B]], beam=3)
        find(table_model(THREE), [[A]], beam=1)
        return "what it returns"

    with caplog.at_level(logging.INFO):
        reporting(lambda: find(Toy(0, dense=True), [[A], [B]]))
        assert caplog.messages == []  # models without zeros are not reported
        assert reporting(main) == "what it returns"
        assert caplog.messages == [
            "exact search: 2 of 3 sentences (66.7%), whose beam held every sequence of non-zero probability"
        ]
        reporting(lambda: find(table_model(ENDLESS), [[A], [B]], max_len_b=3))
        reporting(lambda: find(table_model({**THREE, (B,): {EOS: 1.0}}), prefix=[[B]]))
    cut_off, impossible = (
        each.getMessage() for each in caplog.records if each.levelname == "WARNING"
    )
    assert cut_off.startswith("2 of 2 sentences have no hypothesis of non-zero probability")
    assert "probability zero in 1 of 1 sentences" in impossible
