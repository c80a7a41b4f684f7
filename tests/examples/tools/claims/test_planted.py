"""Verdicts on the runs of the shipped record, in which numbers are planted that decide a claim."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

import pytest
from claims.record import PACKED, Corpus, read_object, run_of
from claims.rules import FAILS, HOLDS, OPEN, UNDECIDED, UNMEASURED
from claims.table import CLAIMS
from scipy.stats import norm

RECORD = Path(__file__).parents[4] / "examples" / "bible_es_en" / "record" / "bible_es_en"
SPARSE = ("entmax", "entmax15", "sparsemax")


@cache
def kept() -> dict[str, tuple[dict, str]]:
    """Of each run what it is, and its document as JSON."""
    found = {}
    for path in sorted(RECORD.glob(f"*{PACKED}")):
        document = read_object(path)
        about = {name: document[name] for name in ("model", "size", "role", "seed")}
        found[document["run"]] = about, json.dumps(document)
    return found


def document_of(run):
    return json.loads(kept()[run][1])


def corpus(plant=None, speed=None, **wanted):
    """The runs that are so (``size=["large"]``), each changed."""
    chosen = [
        run for run, (is_, _) in kept().items() if all(is_[name] in wanted[name] for name in wanted)
    ]
    documents = [document_of(run) for run in chosen]
    for document in documents:
        if plant is not None:
            plant(document)
    return Corpus("bible_es_en", [run_of(document) for document in documents], speed)


def heads_of(document, *attentions):
    """Number in its layer, layer and entry of each head."""
    for entry in document["analysis"]["models"][0]["attentions"]:
        if not attentions or entry["attention"] in attentions:
            for number, head in enumerate(entry["heads"]):
                yield number, entry, head


def of_heads(change):
    """A plant that changes each head, by its number and the run."""

    def plant(document):
        for number, _, head in heads_of(document):
            change(head, number, document)

    return plant


def is_sparse(document):
    return document["model"] in SPARSE


# Changes of a head: what it is planted with, by its number in the layer
def relevant_and_confident(head, n, d):
    head.update(relevance=0.1 + 0.01 * n, confidence=0.2 + 0.01 * n)


def relevant_or_confident(head, n, d):
    head.update(relevance=0.1 + 0.01 * n, confidence=0.9 - 0.01 * n)


def one_relevant(head, n, d):
    head.update(relevance=0.93 if n == 0 else 0.01)


def positional(head, n, d):
    if n < 2:
        offset = 1 if n else -1
        confidence = 0.9 + 0.05 * is_sparse(d) + 0.001 * d["seed"]
        head["positional"] = {"offset": offset, "confidence": confidence}
        head["offsets"]["share"][str(offset)] = 0.95
        head["offsets"]["maximum"][str(offset)] = 0.95
        head.update(relevance=0.9, confidence=0.95)


def merging(head, n, d):
    head["subword_merging"] = {"all": 0.9 if n == 0 and is_sparse(d) else 0.001 * d["seed"]}


def merging_in_all(head, n, d):
    head["subword_merging"] = {"all": 0.9 if n == 0 else 0.0}


def questions(head, n, d):
    head["final_punctuation"] = {"interrogative": 0.5 if n == 0 else 0.1, "declarative": 0.1}


def rare_words(head, n, d):
    head["rare_word"] = {"two_rarest": 0.6 if n == 0 else 0.1}
    head["relevance"] = 0.9 if n == 0 else 0.01


def dense(head, n, d):
    learned = d["model"] == "entmax"
    head["density"] = (0.2 + 0.09 * n if learned else 0.5) + 0.001 * d["seed"]
    head["density_histogram"] = [10] * 19 + [100 + d["seed"] if learned else 0]


def modes(*means):
    """α of the 72 heads of each attention: as many quantiles of Gaussians at these means."""

    def plant(document):
        for number, entry, head in heads_of(document):
            place = 24 * (document["seed"] - 1) + 8 * entry["layer"] + number
            part, rest = divmod(place, 72 // len(means))
            quantile = norm.ppf((rest + 0.5) / (72 // len(means)))
            head["values"]["alpha"] = means[part] + 0.03 * quantile

    return plant


def diverse(document):
    for entry in document["analysis"]["models"][0]["attentions"]:
        middle = entry["layer"] == 1 and entry["attention"] != "decoder-self"
        entry["diversity"] = 0.1 + 0.3 * is_sparse(document) + 0.2 * middle
        entry["diversity"] += 0.001 * document["seed"]


def alike(document):
    for entry in document["analysis"]["models"][0]["attentions"]:
        entry["diversity"] = 0.1 + 0.0001 * document["seed"]


def rising(document):
    for update, point in enumerate(document["analysis"]["models"][0]["records"]["alpha"]):
        for layers in point["values"].values():
            for layer, heads in layers.items():
                layers[layer] = [1.2 + 0.01 * update for _ in heads]


def best_are_left(sign):
    """The heads that pruning leaves in any run of the seed are those of high (or low) scores."""

    def plant(document):
        if document["role"] == "trained":
            pruned = document_of(f"{document['run']}-all24-pruned")["kept"]
            for number, entry, head in heads_of(document):
                is_left = number in pruned[entry["attention"]][entry["layer"]]
                score = 0.5 + sign * (0.2 if is_left else -0.2) + 0.001 * number
                head.update(relevance=score, confidence=score)

    return plant


def removals(p):
    def plant(document):
        for removal in (document["ablation"] or {"removals": []})["removals"]:
            for score in ("loss", "bleu"):
                if removal.get(score):
                    removal[score]["p_holm"] = p

    return plant


def neighbours_matter(document):
    """The first heads of each layer look at neighbours, and cost most without them."""
    of_heads(positional)(document)
    harms = {}
    for number, entry, head in heads_of(document):
        head["relative_position"] = 0.9 - 0.01 * number
        name = f"{entry['attention']}:{entry['layer']}.{head['head']}"
        harms[name] = 0.5 - 0.01 * number
    for removal in (document["ablation"] or {"removals": []})["removals"]:
        removal["loss"]["change"] = harms[removal["heads"][0]]


def syntactic(head, n, d):
    if head.get("dependencies"):
        head["dependencies"]["nsubj"]["to_head"] = 0.95 if n == 0 else 0.1


def translations(worse):
    """All translate alike, but for sparse and pruned models, which have fewer words right."""

    def plant(document):
        rows = document_of("softmax-small-seed1")["translation"]["sentences"]
        mapping = document["model"] != "softmax" or document["role"] in ("pruned", "scratch")
        if worse and mapping:
            rows = [[*row[:2], *(number * 3 // 4 for number in row[2:6]), *row[6:]] for row in rows]
        bleu = 20 if worse and mapping else 30
        document["translation"].update(sentences=rows, bleu=bleu + 0.01 * document["seed"])
        document["updates"] = 100

    return plant


LARGE = {"size": ["large"], "role": ["trained"]}
SMALL = {"size": ["small"], "role": ["trained"]}
PRUNED = {"size": ["large"], "model": ["softmax"]}
CASES = [
    ("voita.confidence.softmax", of_heads(relevant_and_confident), LARGE, HOLDS),
    ("voita.confidence.softmax", of_heads(relevant_or_confident), LARGE, FAILS),
    ("voita.few_heads.entmax", of_heads(one_relevant), LARGE, HOLDS),
    ("voita.positional.softmax", of_heads(positional), LARGE, HOLDS),
    ("voita.positional_important.softmax", of_heads(positional), LARGE, HOLDS),
    ("voita.positional_confident.softmax", of_heads(positional), LARGE, HOLDS),
    ("voita.rare_words.softmax", of_heads(rare_words), LARGE, HOLDS),
    ("voita.rare_words_relevant.softmax", of_heads(rare_words), LARGE, HOLDS),
    ("voita.syntactic.softmax", of_heads(syntactic), LARGE, HOLDS),
    ("voita.roles_relevant.softmax", of_heads(positional), LARGE, HOLDS),
    ("baan.interpretable.softmax", neighbours_matter, LARGE, FAILS),
    ("baan.position_matters.softmax", neighbours_matter, LARGE, HOLDS),
    ("voita.roles_left.softmax", of_heads(positional), PRUNED, FAILS),
    ("voita.relevance_survives.softmax", best_are_left(1), PRUNED, HOLDS),
    ("voita.relevance_survives.softmax", best_are_left(-1), PRUNED, FAILS),
    ("voita.confidence_survives.softmax", best_are_left(1), PRUNED, HOLDS),
    ("voita.pruned_wider.softmax", translations(worse=False), PRUNED, HOLDS),
    ("voita.pruned_wider.softmax", translations(worse=True), PRUNED, FAILS),
    ("voita.scratch.softmax", translations(worse=True), PRUNED, FAILS),
    ("correia.positional", of_heads(positional), LARGE, HOLDS),
    ("correia.positional_confidence", of_heads(positional), LARGE, HOLDS),
    ("correia.merging", of_heads(merging), LARGE, HOLDS),
    ("correia.merging", of_heads(merging_in_all), LARGE, FAILS),
    ("correia.best_merging", of_heads(merging), LARGE, HOLDS),
    ("correia.questions", of_heads(questions), LARGE, HOLDS),
    ("correia.dense_mode", of_heads(dense), LARGE, HOLDS),
    ("correia.densities_differ", of_heads(dense), LARGE, HOLDS),
    ("correia.decoder_is_denser", of_heads(dense), LARGE, FAILS),
    ("correia.alpha_of_the_encoder", modes(1.25, 1.9), LARGE, HOLDS),
    ("correia.where_the_modes_are", modes(1.25, 1.9), LARGE, HOLDS),
    ("correia.alpha_of_the_decoder", modes(1.25, 1.9), LARGE, FAILS),
    ("correia.alpha_of_the_encoder", modes(1.3), LARGE, FAILS),
    ("correia.where_the_modes_are", modes(1.3), LARGE, FAILS),
    ("correia.diversity", diverse, LARGE, HOLDS),
    ("correia.diversity", alike, LARGE, FAILS),
    ("correia.diversity_peaks", diverse, LARGE, HOLDS),
    ("correia.diversity_peaks", alike, LARGE, FAILS),
    ("correia.most_fall_first", rising, {**LARGE, "model": ["entmax"]}, FAILS),
    ("correia.bleu", translations(worse=False), LARGE, HOLDS),
    ("correia.bleu", translations(worse=True), LARGE, FAILS),
    ("niculae_blondel.bleu.cross-fusedmax", translations(worse=False), SMALL, HOLDS),
    ("niculae_blondel.best", translations(worse=False), SMALL, HOLDS),
    ("niculae_blondel.best", translations(worse=True), SMALL, FAILS),
    ("baan.sparse_encoder", translations(worse=False), SMALL, HOLDS),
    ("baan.sparse_encoder", translations(worse=True), SMALL, FAILS),
    ("baan.removal_bleu.softmax", removals(0.9), SMALL, HOLDS),
    ("baan.removal_bleu.softmax", removals(0.01), SMALL, FAILS),
    ("baan.removal_loss.softmax", removals(0.9), LARGE, HOLDS),
    ("baan.sparse_removal", removals(0.01), SMALL, FAILS),
    ("beyond.equal_updates", None, {"size": ["small"]}, UNMEASURED),
]


@pytest.mark.parametrize(("key", "plant", "wanted", "expected"), CASES)
def test_what_is_planted_decides(key, plant, wanted, expected):
    assert CLAIMS[key].judged(corpus(plant, **wanted)).decision.verdict == expected


@pytest.mark.parametrize(
    ("key", "model", "size", "path", "values", "expected"),
    [
        ("niculae_blondel.segments", "cross-fusedmax", "small", "run_weight", (0.3, 0.0), HOLDS),
        ("niculae_blondel.segments", "cross-fusedmax", "small", "run_weight", (0.0, 0.0), FAILS),
        ("niculae_blondel.clusters", "cross-oscarmax", "small", "cluster_weight", (0.3, 0), HOLDS),
        ("niculae_blondel.sparse", "cross-oscarmax", "small", "density", (1.0, 0.5), FAILS),
        ("baan.sparse_position", "sparsemax", "large", "relative_position", (0.5, 0.3), HOLDS),
        ("baan.sparse_position", "sparsemax", "large", "relative_position", (0.3, 0.5), FAILS),
        ("baan.sparse_tags", "sparsemax", "large", "pos_kl", (0.5, 0.3), HOLDS),
        ("baan.zeros", "sparse-encoder", "small", "density", (0.01, 0.5), HOLDS),
        ("baan.zeros", "sparse-encoder", "small", "density", (0.5, 0.5), FAILS),
    ],
)
def test_a_number_of_one_model_is_more_than_that_of_others(
    key, model, size, path, values, expected
):
    def change(head, n, document):
        value = values[0] if document["model"] == model else values[1]
        head["equal_weights"] = {"run_weight": value, "cluster_weight": value}
        head[path] = value + 0.001 * document["seed"]

    found = corpus(of_heads(change), size=[size], role=["trained"])
    assert CLAIMS[key].judged(found).decision.verdict == expected


@pytest.mark.parametrize(("first", "expected"), [("encoder-self", HOLDS), ("cross", FAILS)])
def test_the_attention_that_is_pruned_first_is_told_by_the_search(first, expected):
    """At the point where half of all heads are closed, which are 24 of the attention and 12 others."""

    def plant(document):
        names = ["encoder-self", "decoder-self", "cross"]
        halves = {name: 0 if name == first else 18 for name in names}
        whole = dict.fromkeys(names, 24)
        document["search"] = [{"updates": 1, "open": whole}, {"updates": 5, "open": halves}]

    found = corpus(plant, **PRUNED)
    assert CLAIMS["voita.encoder_first.softmax"].judged(found).decision.verdict == expected


@pytest.mark.parametrize(
    ("entmax15", "entmax", "expected"),
    [(0.95, 0.9, HOLDS), (0.8, 0.9, FAILS), (None, 1, UNMEASURED)],
)
def test_training_is_as_fast_as_published_or_not(entmax15, entmax, expected):
    speeds = {"softmax": 1.0, "entmax15": entmax15, "entmax": entmax}
    rounds = {
        model: [rate * one for one in (1.0, 1.001, 0.999)] for model, rate in speeds.items() if rate
    }
    rounds["softmax"] = [1.0, 1.0, 1.0]
    models = [
        {"run": f"{model}-large-seed1", "updates_per_second_rounds": own}
        for model, own in rounds.items()
    ]
    found = corpus(speed={"models": models}, **LARGE)
    assert CLAIMS["correia.speed"].judged(found).decision.verdict == expected


def test_runs_with_other_numbers_of_updates_are_not_compared():
    def more(document):
        document["updates"] *= 1 + (document["role"] == "continued")

    found = CLAIMS["voita.pruned.softmax"].judged(corpus(more, **PRUNED)).decision
    assert (found.verdict, "updates" in found.why) == (UNDECIDED, True)


def test_one_seed_decides_nothing_but_speed():
    found = corpus(seed=[1])
    speed = read_object(RECORD / "speed.json")
    for key, claim in CLAIMS.items():
        decided = claim.judged(Corpus("one", found.runs, speed)).decision.verdict not in OPEN
        assert decided == (key.startswith("beyond.speed") or key == "correia.speed"), key
