"""Verdicts on records in which what the papers found is planted, and on such without it."""

from __future__ import annotations

from functools import cache

import claims.table  # noqa: F401
import pytest
from claims.rules import CLAIMS, FAILS, HOLDS, OPEN, UNDECIDED, UNMEASURED

from tests.examples.tools.claims import synthetic
from tests.examples.tools.claims.synthetic import FOUND, NOTHING, Effects, changed, corpus_of

# What is planted holds, and without it does not, or is undecided where nothing can be compared
PLANTED = {
    "correia": "alpha_of_the_encoder where_the_modes_are most_fall_first some_rise_later dense_mode "
    "densities_differ diversity diversity_peaks positional merging best_merging",
    "voita": "few_heads.softmax few_heads.entmax positional.softmax positional.entmax "
    "syntactic.softmax syntactic.entmax rare_words.softmax rare_words.entmax encoder_pruned.entmax "
    "pruned.softmax pruned.entmax pruned_wider.entmax scratch.softmax scratch.entmax "
    "confidence_survives.entmax",
}
OPEN_WITHOUT = {
    "correia": "positional_confidence questions",
    "voita": "confidence.softmax confidence.entmax positional_important.softmax "
    "roles_relevant.softmax roles_relevant.entmax roles_left.softmax roles_left.entmax "
    "roles_survive.softmax roles_survive.entmax roles_survive_encoder.softmax "
    "roles_survive_encoder.entmax positional_kept.softmax positional_kept.entmax "
    "relevance_survives.softmax relevance_survives.entmax confidence_survives.softmax",
    "baan": "position_kept.softmax position_kept.entmax",
    "beyond": "equal_time equal_updates pruning_costs",
}
# Claims that single heads do not matter, which is planted in what was found
DENIED = {
    "baan": "removal_bleu.softmax removal_bleu.entmax removal_loss.softmax removal_loss.entmax"
}
CASES = [
    (f"{paper}.{name}", *verdicts)
    for table, verdicts in (
        (PLANTED, (HOLDS, FAILS)),
        (OPEN_WITHOUT, (HOLDS, UNDECIDED)),
        (DENIED, (FAILS, HOLDS)),
    )
    for paper, names in table.items()
    for name in names.split()
]


@cache
def corpus(effects: str, seeds=(1, 2, 3)):
    return synthetic.corpus({"found": FOUND, "nothing": NOTHING}[effects], seeds)


@pytest.mark.parametrize(("key", "found", "nothing"), CASES)
def test_what_is_planted_is_found(key, found, nothing):
    assert CLAIMS[key].judged(corpus("found")).decision.verdict == found
    assert CLAIMS[key].judged(corpus("nothing")).decision.verdict == nothing


def test_one_seed_decides_nothing_but_speed():
    for key, claim in CLAIMS.items():
        decided = claim.judged(corpus("found", (1,))).decision.verdict not in OPEN
        assert decided == key.startswith("beyond.speed"), key


def verdict(key, runs, speed=None):
    return CLAIMS[key].judged(corpus_of(runs, speed)).decision.verdict


def of_bleu(**bleu):
    return synthetic.documents(Effects(bleu=bleu))


def test_bleu_is_within_noise_or_not():
    assert verdict("correia.bleu", of_bleu()) != FAILS
    assert verdict("correia.bleu", of_bleu(entmax15=-3.0, entmax=-3.0)) == FAILS
    far = of_bleu(**{"cross-fusedmax": -4.0, "sparse-encoder": -4.0})
    assert verdict("niculae_blondel.bleu.cross-fusedmax", far) == FAILS
    assert verdict("niculae_blondel.bleu.cross-oscarmax", far) == HOLDS
    assert verdict("niculae_blondel.best", far) == FAILS
    assert verdict("baan.sparse_encoder", far) == FAILS
    assert verdict("baan.sparse_encoder", of_bleu()) == HOLDS


@pytest.mark.parametrize(
    ("key", "model", "size", "path", "values", "expected"),
    [
        ("niculae_blondel.segments", "cross-fusedmax", "small", "run_weight", (0.3, 0.0), HOLDS),
        ("niculae_blondel.segments", "cross-fusedmax", "small", "run_weight", (0.0, 0.0), FAILS),
        (
            "niculae_blondel.clusters",
            "cross-oscarmax",
            "small",
            "cluster_weight",
            (0.3, 0.1),
            HOLDS,
        ),
        ("niculae_blondel.sparse", "cross-oscarmax", "small", "density", (1.0, 0.5), FAILS),
        ("baan.sparse_position", "sparsemax", "large", "relative_position", (0.5, 0.3), HOLDS),
        ("baan.sparse_position", "sparsemax", "large", "relative_position", (0.3, 0.5), FAILS),
        ("baan.sparse_tags", "sparsemax", "large", "pos_kl", (0.5, 0.3), HOLDS),
        ("baan.zeros", "sparse-encoder", "small", "density", (0.01, 0.5), HOLDS),
        ("baan.zeros", "sparse-encoder", "small", "density", (0.5, 0.5), FAILS),
        ("correia.decoder_is_denser", "entmax15", "large", "density", (0.5, 0.5), FAILS),
    ],
)
def test_a_number_of_one_model_is_more_than_that_of_others(
    key, model, size, path, values, expected
):
    def plant(document):
        value = values[0] if document["model"] == model else values[1]
        for entry in document["analysis"]["models"][0]["attentions"]:
            for head in entry["heads"]:
                if path.endswith("_weight"):
                    head["equal_weights"] = {"run_weight": value, "cluster_weight": value}
                else:
                    head[path] = value + 0.001 * document["seed"]

    runs = [run for run in synthetic.documents() if (run["size"], run["role"]) == (size, "trained")]
    assert verdict(key, changed(runs, plant)) == expected


@pytest.mark.parametrize(("first", "expected"), [("encoder-self", HOLDS), ("cross", FAILS)])
def test_the_attention_that_is_pruned_first_is_told_by_the_search(first, expected):
    """At the point where half of all heads are closed, which are 24 of the attention and 12 others."""

    def plant(document):
        names = ["encoder-self", "decoder-self", "cross"]
        halves = {name: 0 if name == first else 18 for name in names}
        whole = dict.fromkeys(names, 24)
        document["search"] = [{"updates": 1, "open": whole}, {"updates": 5, "open": halves}]

    runs = changed(synthetic.documents(), plant, role="pruned")
    assert verdict("voita.encoder_first.softmax", runs) == expected


@pytest.mark.parametrize(
    ("entmax15", "entmax", "expected"), [(0.95, 0.9, HOLDS), (0.8, 0.9, FAILS)]
)
def test_training_is_as_fast_as_published_or_not(entmax15, entmax, expected):
    effects = Effects(speed={"entmax15": entmax15, "sparsemax": 0.9, "entmax": entmax})
    # In a round all models meet the same machine, so ratios vary by what timing leaves
    speed = synthetic.speed_of(effects)
    for number, model in enumerate(speed["models"]):
        model["updates_per_second_rounds"][0] *= 1 + 0.001 * number
    assert verdict("correia.speed", synthetic.documents(), speed) == expected
    assert verdict("correia.speed", synthetic.documents()) == UNMEASURED


def test_runs_with_other_numbers_of_updates_are_not_compared():
    def more(document):
        document["updates"] *= 2

    runs = changed(synthetic.documents(), more, role="continued")
    found = CLAIMS["voita.pruned.softmax"].judged(corpus_of(runs)).decision
    assert (found.verdict, "updates" in found.why) == (UNDECIDED, True)
