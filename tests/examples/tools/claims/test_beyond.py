"""Claims beyond the papers: what is planted is found."""

from __future__ import annotations

import claims.beyond
import claims.speed  # noqa: F401
import numpy
import pytest
from claims.beyond import loss_gained
from claims.bleu import difference, difference_of_differences
from claims.verdicts import FAILS, HOLDS, UNDECIDED, UNMEASURED, judge

from tests.examples.tools.claims import synthetic

LARGE = {"size": "large", "role": "trained"}


def test_losses_are_compared_by_their_least(documents):
    def of(losses):
        def plant(document):
            document["curve"] = [{"updates": n, "valid_nll_loss": x} for n, x in enumerate(losses)]

        return plant

    changed = synthetic.changed(documents, of([4.0, 2.0, 2.5]), model="entmax", **LARGE)
    changed = synthetic.changed(changed, of([3.0, 2.5, 2.4]), model="entmax15", **LARGE)
    pairs = synthetic.corpus_of(changed).pairs({"model": "entmax"}, {"model": "entmax15"}, **LARGE)
    assert loss_gained(pairs) == pytest.approx([0.4] * 3)


def test_a_better_loss_of_learned_alpha_is_found(found):
    assert judge("beyond-equal-time", found).verdict == HOLDS
    assert judge("beyond-equal-updates", found).verdict == HOLDS


def test_where_learning_alpha_only_costs_time_it_is_not_better(nothing):
    assert judge("beyond-equal-updates", nothing).verdict in (FAILS, UNDECIDED)
    assert judge("beyond-equal-time", nothing).verdict != HOLDS


def test_at_equal_time_bleu_has_to_say_so_too():
    corpus = synthetic.corpus(synthetic.Effects(role_bleu={"equaltime": -2.0}))
    finding = judge("beyond-equal-time", corpus)
    assert finding.verdict == FAILS
    assert finding.why.startswith("BLEU:")


def test_without_a_run_of_equal_time_nothing_is_said_of_it(documents):
    runs = [d for d in documents if d["role"] != "equaltime"]
    finding = judge("beyond-equal-time", synthetic.corpus_of(runs))
    assert finding.verdict == UNMEASURED
    assert "role equaltime" in finding.why


def test_cpu_time_which_counts_what_was_done_again_changes_no_verdict(documents):
    def redone(document):
        document["cpu_seconds"] *= 3

    corpus = synthetic.corpus_of(synthetic.changed(documents, redone, model="entmax"))
    assert judge("beyond-equal-time", corpus).verdict == HOLDS


def test_updates_that_take_longer_are_no_equal_time(documents):
    def longer(document):
        document["updates"] = 2000

    changed = synthetic.changed(documents, longer, role="equaltime")
    corpus = synthetic.corpus_of(changed, synthetic.speed_of(synthetic.FOUND))
    finding = judge("beyond-equal-time", corpus)
    assert finding.verdict == UNDECIDED
    assert "had 2000 updates, and in the time of entmax15-large-seed1" in finding.why


def test_a_run_that_ended_early_is_not_compared_at_equal_updates(documents):
    def early(document):
        document["updates"] = 1200

    changed = synthetic.changed(documents, early, model="entmax15", **LARGE)
    finding = judge("beyond-equal-updates", synthetic.corpus_of(changed))
    assert finding.verdict == UNDECIDED
    assert "had 2000 updates and entmax15-large-seed1 1200" in finding.why


def test_alpha_in_the_order_of_its_start_is_found(found):
    follows = synthetic.corpus(synthetic.Effects(follows_start=True))
    finding = judge("beyond-alpha-start", follows)
    assert finding.verdict == HOLDS
    assert finding.numbers["mean"] > 0.95
    assert judge("beyond-alpha-start", found).verdict != HOLDS


def test_sparse_models_that_are_slower_are_not_faster(found):
    assert judge("beyond-speed-translation", found).verdict == FAILS
    assert judge("beyond-speed-training", found).verdict == FAILS


def test_sparse_models_that_are_faster_are_found():
    rates = {"entmax15": 1.2, "sparsemax": 1.3, "entmax": 1.1}
    corpus = synthetic.corpus(synthetic.Effects(speed=rates), seeds=(1,))
    finding = judge("beyond-speed-translation", corpus)
    assert finding.verdict == HOLDS
    assert finding.numbers["sparsemax"] == pytest.approx(1.3)


def test_what_training_costs_needs_no_speed_of_sparsemax():
    speed = synthetic.speed_of(synthetic.Effects(speed={"entmax15": 1.2, "entmax": 1.1}))
    speed["models"] = [one for one in speed["models"] if "sparsemax" not in one["run"]]
    corpus = synthetic.corpus_of(synthetic.documents(synthetic.FOUND), speed)
    finding = judge("correia-speed", corpus)
    assert finding.verdict == HOLDS
    assert "1.5-entmax: every value of the interval is above 0.9" in finding.why
    assert judge("beyond-speed-training", corpus).verdict == UNMEASURED


def test_a_pruned_model_that_is_faster_is_found(found):
    finding = judge("beyond-speed-pruned", found)
    assert (finding.verdict, finding.numbers["softmax"]) == (HOLDS, pytest.approx(1.3))


def test_without_measurements_nothing_is_said_of_speed(documents):
    finding = judge("beyond-speed-training", synthetic.corpus_of(documents))
    assert (finding.verdict, finding.why) == (UNMEASURED, "speed was not measured")


def test_pruning_that_costs_one_mapping_more_is_found(documents):
    def worse(document):
        document["translation"] = by_seed[document["seed"]]

    softmax = synthetic.Effects(role_bleu={"all24-pruned": -3.0})
    others = synthetic.documents(softmax)
    by_seed = {d["seed"]: d["translation"] for d in others if d["run"].endswith("all24-pruned")}
    changed = synthetic.changed(documents, worse, model="softmax", budget="all24", role="pruned")
    finding = judge("beyond-pruning-mapping", synthetic.corpus_of(changed))
    assert finding.verdict == FAILS
    assert finding.numbers["difference"] > 2


def test_a_difference_of_differences_is_what_each_pair_says(found):
    pairs = {
        model: found.pairs(
            {"role": "pruned", "budget": "all24"}, {"role": "continued"}, model=model
        )
        for model in ("entmax", "softmax")
    }
    each, sampled = difference_of_differences(pairs["entmax"], pairs["softmax"])
    (one, first), (other, second) = (difference(found) for found in pairs.values())
    assert each == pytest.approx([a - b for a, b in zip(one, other, strict=True)])
    assert sampled.difference == pytest.approx(first.difference - second.difference)
    assert sampled.difference == pytest.approx(numpy.mean(each), abs=0.02)
