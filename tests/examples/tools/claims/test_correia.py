"""Claims of Correia et al.: what is planted is found, and nothing else."""

from __future__ import annotations

from dataclasses import replace

import claims.correia
import claims.correia_heads
import claims.correia_layers
import claims.speed  # noqa: F401
import numpy
import pytest
from claims.correia import trajectories
from claims.correia_layers import histogram
from claims.verdicts import CLAIMS, FAILS, HOLDS, UNDECIDED, UNMEASURED, judge
from scipy.stats import gamma, norm

from tests.examples.tools.claims import synthetic

LARGE = {"size": "large", "role": "trained"}
OF_MODELS = [key for key in CLAIMS if key.startswith("correia-") and key != "correia-speed"]


def _changed(documents, change, **wanted):
    return synthetic.corpus_of(synthetic.changed(documents, change, **{**LARGE, **wanted}))


def _each_head(document, attention):
    for entry in document["analysis"]["models"][0]["attentions"]:
        if entry["attention"] == attention:
            yield from entry["heads"]


@pytest.mark.parametrize(
    "key",
    [key for key in OF_MODELS if key not in ("correia-density-modules", "correia-bleu")],
)
def test_what_the_paper_found_holds_where_it_is_planted(found, key):
    finding = judge(key, found)
    assert finding.verdict == HOLDS, finding


# One mode of the decoder is planted in both
@pytest.mark.parametrize(
    "key",
    [key for key in OF_MODELS if key not in ("correia-alpha-decoder", "correia-bleu")],
)
def test_what_is_not_planted_does_not_hold(nothing, key):
    assert judge(key, nothing).verdict in (FAILS, UNDECIDED)


@pytest.mark.parametrize(
    "key",
    [
        "correia-alpha-encoder",
        "correia-alpha-modes",
        "correia-trajectories-fall",
        "correia-trajectories-rise",
        "correia-density-mode",
        "correia-positional",
        "correia-merging",
    ],
)
def test_what_is_plainly_not_so_is_said_not_to_hold(nothing, key):
    assert judge(key, nothing).verdict == FAILS


def test_heads_that_mark_questions_are_not_refuted_by_the_weight_from_all_tokens(nothing):
    finding = judge("correia-question", nothing)
    assert finding.verdict == UNDECIDED
    assert "from interrogative words alone" in finding.why


@pytest.mark.parametrize("key", ["correia-positional", "correia-merging"])
def test_what_is_said_of_each_model_is_refuted_without_one_that_is_missing(documents, nothing, key):
    without = [run for run in nothing.runs if run.model != "entmax15"]
    finding = judge(key, replace(nothing, runs=without))
    assert finding.verdict == FAILS
    assert "no seed has such a head" in finding.why


@pytest.mark.parametrize("key", ["correia-positional", "correia-merging", "correia-question"])
def test_what_is_said_of_each_model_never_holds_without_one(found, key):
    without = [run for run in found.runs if run.model != "entmax15"]
    finding = judge(key, replace(found, runs=without))
    assert finding.verdict == UNDECIDED
    assert finding.why.startswith("1.5-entmax: the record has no run with model entmax15")


@pytest.mark.parametrize("key", OF_MODELS)
def test_one_seed_decides_nothing(documents, key):
    corpus = synthetic.corpus_of([d for d in documents if d["seed"] == 1])
    assert judge(key, corpus).verdict == UNDECIDED


@pytest.mark.parametrize("key", [*OF_MODELS, "correia-speed"])
def test_without_large_models_nothing_is_measured_and_the_reason_says_so(documents, key):
    corpus = synthetic.corpus_of([d for d in documents if d["size"] == "small"])
    finding = judge(key, corpus)
    assert finding.verdict == UNMEASURED
    assert "the record has no run with" in finding.why or "speed was not measured" in finding.why


def test_bleu_within_noise_holds_where_models_have_the_same(documents):
    def same(document):
        document["translation"] = by_seed[document["seed"]]

    by_seed = {
        d["seed"]: d["translation"] for d in documents if d["run"].startswith("softmax-large")
    }
    assert judge("correia-bleu", _changed(documents, same)).verdict == HOLDS


def test_bleu_within_noise_does_not_hold_where_one_model_is_two_points_behind():
    corpus = synthetic.corpus(synthetic.Effects(bleu={"entmax": -3.0}))
    finding = judge("correia-bleu", corpus)
    assert finding.verdict == FAILS
    assert finding.why.startswith("learned α:")
    assert finding.numbers["entmax"] == pytest.approx(-3, abs=0.4)


def test_two_modes_of_the_decoder_are_found(documents):
    def split(document):
        for number, head in enumerate(_each_head(document, "cross")):
            head["values"]["alpha"] += 0.6 * (number % 2)

    finding = judge("correia-alpha-decoder", _changed(documents, split, model="entmax"))
    assert finding.verdict == FAILS
    assert finding.why.startswith("cross: the dip test and the mixture both find two modes")


def _of_encoder(documents, values):
    """What is said where the heads of encoder-self have these α, in each of three seeds."""

    def plant(document):
        rows = numpy.reshape(values, (3, 24))[document["seed"] - 1]
        for head, value in zip(_each_head(document, "encoder-self"), rows, strict=True):
            head["values"]["alpha"] = float(value)

    return judge("correia-alpha-encoder", _changed(documents, plant, model="entmax"))


def test_one_narrow_mode_refutes_two(documents):
    values = norm.ppf((numpy.arange(72) + 0.5) / 72, 1.3, 0.06)
    finding = _of_encoder(documents, numpy.random.default_rng(1).permutation(values))
    assert finding.verdict == FAILS
    assert finding.numbers["bic gain"] <= -6
    assert finding.numbers["power"] >= 0.8


def test_values_so_wide_that_two_modes_would_be_missed_refute_nothing(documents):
    values = norm.ppf((numpy.arange(72) + 0.5) / 72, 1.5, 0.25)
    finding = _of_encoder(documents, numpy.random.default_rng(1).permutation(values))
    assert finding.verdict == UNDECIDED
    assert finding.numbers["bic gain"] <= -6
    assert finding.numbers["power"] < 0.8
    assert "the dip test would miss the paper's two modes" in finding.why


def test_a_distribution_that_two_gaussians_fit_as_well_is_not_said_to_have_one_mode(documents):
    values = 1 + gamma.ppf((numpy.arange(72) + 0.5) / 72, 2, scale=0.05)
    finding = _of_encoder(documents, numpy.random.default_rng(1).permutation(values))
    assert finding.verdict == UNDECIDED
    assert "one Gaussian is not better by 6 of BIC" in finding.why


def test_modes_elsewhere_are_not_the_papers(documents):
    def lower(document):
        for head in _each_head(document, "encoder-self"):
            head["values"]["alpha"] = 1 + (head["values"]["alpha"] - 1) / 2

    corpus = _changed(documents, lower, model="entmax")
    assert judge("correia-alpha-encoder", corpus).verdict == HOLDS
    assert judge("correia-alpha-modes", corpus).verdict == FAILS


def test_a_trajectory_has_every_head_at_every_update(found):
    (run,) = found.of(model="entmax", seed=1, **LARGE)
    updates, ways = trajectories(run)
    assert updates[0] == 0
    assert len(ways) == 72
    assert {len(way) for way in ways.values()} == {len(updates)}


def test_models_without_records_of_alpha_have_no_trajectories(documents):
    def forget(document):
        document["analysis"]["models"][0]["records"] = {}

    finding = judge("correia-trajectories-fall", _changed(documents, forget, model="entmax"))
    assert finding.verdict == UNMEASURED
    assert "has no trajectories of α" in finding.why


def test_a_mode_of_dense_heads_that_both_models_have_is_not_what_is_claimed(documents):
    def dense(document):
        for attention in ("encoder-self", "decoder-self", "cross"):
            for head in list(_each_head(document, attention))[::5]:
                head["density_histogram"] = [0] * 19 + [synthetic.SENTENCES]

    finding = judge("correia-density-mode", _changed(documents, dense, model="entmax15"))
    assert finding.verdict == FAILS
    assert "1.5-entmax has such a mode, too" in finding.why


def test_the_histogram_is_of_all_heads_and_sentences(found):
    (run,) = found.of(model="softmax", seed=1, **LARGE)
    assert histogram(run) == pytest.approx([*[0.0] * 19, 1.0])


def test_an_encoder_of_low_density_makes_the_decoder_denser(documents):
    def sparser(document):
        for head in _each_head(document, "encoder-self"):
            head["density"] /= 10

    corpus = _changed(documents, sparser, model="entmax")
    assert judge("correia-density-modules", corpus).verdict == HOLDS


def test_differences_in_density_are_standard_deviations_in_a_layer(found):
    finding = judge("correia-density-layers", found)
    expected = []
    for one, other in found.pairs({"model": "entmax"}, {"model": "entmax15"}, **LARGE):
        spreads = [
            [numpy.std([h["density"] for h in a["heads"]]) for a in run.analyzed["attentions"]]
            for run in (one, other)
        ]
        expected.append(numpy.mean(spreads[0]) - numpy.mean(spreads[1]))
    assert finding.numbers["entmax"] == pytest.approx(numpy.mean(expected))


def test_two_layers_have_no_middle(documents):
    def two(document):
        model = document["analysis"]["models"][0]
        model["attentions"] = [a for a in model["attentions"] if a["layer"] < 2]

    finding = judge("correia-diversity-peak", _changed(documents, two))
    assert finding.verdict == UNDECIDED
    assert "no three layers of encoder-self" in finding.why


def test_a_peak_in_the_decoder_is_not_what_is_claimed(documents):
    def peak(document):
        for entry in document["analysis"]["models"][0]["attentions"]:
            if (entry["attention"], entry["layer"]) == ("decoder-self", 1):
                entry["diversity"] += 0.1

    finding = judge("correia-diversity-peak", _changed(documents, peak))
    assert finding.verdict == FAILS
    assert finding.why.startswith("decoder-self:")


def test_where_no_head_is_positional_the_nearest_is_named(nothing):
    finding = judge("correia-positional", nothing)
    assert "softmax at −1 7% (encoder-self:" in finding.test
    assert judge("correia-positional-confidence", nothing).verdict == UNDECIDED


def _without_the_tokens_that_follow(document):
    """As an analysis has the decoder, whose heads look at the token before in half of the cases."""
    for head in _each_head(document, "decoder-self"):
        head["offsets"]["share"]["1"] = None
        head["offsets"]["share"]["-1"] = 0.5


def test_of_the_token_that_follows_the_decoder_has_no_share(documents):
    changed = _changed(documents, _without_the_tokens_that_follow)
    assert judge("correia-positional", changed).verdict == HOLDS


def test_the_nearest_head_may_be_the_decoders():
    documents = synthetic.documents(synthetic.NOTHING)
    finding = judge("correia-positional", _changed(documents, _without_the_tokens_that_follow))
    assert finding.verdict == FAILS
    assert "softmax at −1 50% (decoder-self:" in finding.test
    assert "softmax at +1 7% (encoder-self:" in finding.test


def test_positional_heads_that_are_as_confident_are_not_said_to_be_more(documents):
    corpus = synthetic.corpus(synthetic.Effects(confident=False))
    assert judge("correia-positional-confidence", corpus).verdict != HOLDS


def test_a_softmax_head_that_merges_speaks_against_the_claim(documents):
    def merge(document):
        next(_each_head(document, "encoder-self"))["subword_merging"]["all"] = 0.9

    finding = judge("correia-merging", _changed(documents, merge, model="softmax"))
    assert finding.verdict == FAILS
    assert finding.why == "softmax: every seed has such a head"


def test_the_published_speed_is_judged_over_rounds():
    faster = synthetic.Effects(speed={"entmax15": 0.95, "entmax": 0.8})
    slower = synthetic.Effects(speed={"entmax15": 0.95, "entmax": 0.4})
    assert judge("correia-speed", synthetic.corpus(faster, seeds=(1,))).verdict == HOLDS
    finding = judge("correia-speed", synthetic.corpus(slower, seeds=(1,)))
    assert finding.verdict == FAILS
    assert finding.numbers["entmax"] == pytest.approx(0.4)


@pytest.mark.parametrize(
    "measure",
    [
        "density",
        "density_histogram",
        "offsets",
        "positional",
        "subword_merging",
        "final_punctuation",
        "values",
    ],
)
def test_an_analysis_without_a_measure_leaves_claims_open(documents, measure):
    def forget(document):
        for attention in ("encoder-self", "decoder-self", "cross"):
            for head in _each_head(document, attention):
                head[measure] = {} if measure == "values" else None

    large = [d for d in documents if d["size"] == "large" and d["role"] == "trained"]
    corpus = _changed(large, forget)
    keys = {
        "density": ["correia-density-modules", "correia-density-layers"],
        "density_histogram": ["correia-density-mode"],
        "values": ["correia-alpha-encoder", "correia-alpha-decoder", "correia-alpha-modes"],
        "subword_merging": ["correia-merging", "correia-merging-more"],
        "final_punctuation": ["correia-question"],
        "offsets": ["correia-positional"],
        "positional": ["correia-positional-confidence"],
    }[measure]
    for key in keys:
        finding = judge(key, corpus)
        assert finding.verdict == (UNDECIDED if measure == "positional" else UNMEASURED), key
        assert "the analysis" in finding.why or "no seed has such heads" in finding.why
