"""A record of runs that were never trained, with effects of a known size, or without them.

Small where size says nothing (sentences, points of trajectories), and complete: every run and every
number that claims are judged by.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Any

import numpy
from claims.record import ATTENTIONS, CROSS, DECODER_SELF, ENCODER_SELF, Corpus, run_of
from claims.statistics import bleu

from tests.examples.tools.claims.synthetic_analysis import (
    FOUND,
    NOTHING,
    SENTENCES,
    UPDATES,
    Document,
    Effects,
    analysis_of,
)

SEEDS = (1, 2, 3)
EPOCHS = 10
SIZES = {"small": (2, 4), "large": (3, 8)}  # layers, heads
EVERYWHERE = ("softmax", "entmax15", "sparsemax", "entmax")
SMALL_ONLY = (
    "cross-fusedmax",
    "cross-oscarmax",
    "cross-sqpnormmax",
    "cross-sparsemax",
    "sparse-encoder",
)
# Heads of a layer after pruning, by attention; the first are kept, and the last of the lowest layer
KEPT = {
    "all24": {ENCODER_SELF: (4, 1, 1), DECODER_SELF: (3, 3, 3), CROSS: (3, 3, 3)},
    "all36": {ENCODER_SELF: (4, 4, 4), DECODER_SELF: (4, 4, 4), CROSS: (4, 4, 4)},
    "encoder4": {ENCODER_SELF: (2, 1, 1), DECODER_SELF: (8, 8, 8), CROSS: (8, 8, 8)},
}


def corpus(
    effects: Effects = FOUND, seeds: Sequence[int] = SEEDS, name: str = "bible_es_en"
) -> Corpus:
    """All runs of a corpus, in memory."""
    return corpus_of(documents(effects, seeds, name), speed_of(effects), name)


def corpus_of(
    runs: Sequence[Document], speed: Document | None = None, name: str = "bible_es_en"
) -> Corpus:
    """A corpus of documents, which a test may have changed."""
    return Corpus(name, [run_of(document) for document in runs], speed)


def changed(
    runs: Sequence[Document], change: Callable[[Document], None], **wanted: Any
) -> list[Document]:
    """Copies of documents, of which those that are so (``model="entmax"``) are changed."""
    copies: list[Document] = json.loads(json.dumps(list(runs)))
    for document in copies:
        if all(document[name] == value for name, value in wanted.items()):
            change(document)
    return copies


def speed_of(effects: Effects) -> Document:
    """``speed.json``."""
    timed = {f"{model}-large-seed1": effects.speed.get(model, 1.0) for model in EVERYWHERE}
    for model in ("softmax", "entmax"):
        faster = effects.speed.get("pruned", 1.3)
        timed[f"{model}-large-seed1-all24-pruned"] = faster * timed[f"{model}-large-seed1"]
    models = [
        {
            "run": run,
            "density": dict.fromkeys(ATTENTIONS, 1.0 if run.startswith("softmax") else 0.3),
            "sentences_per_second_rounds": [40 * rate * one for one in (0.99, 1.0, 1.002, 1.01)],
            "updates_per_second_rounds": [5 * rate * one for one in (0.99, 1.0, 1.002, 1.01)],
        }
        for run, rate in timed.items()
    ]
    return {"device": "cpu", "threads": 1, "sentences": 100, "rounds": 4, "models": models}


def documents(
    effects: Effects = FOUND, seeds: Sequence[int] = SEEDS, name: str = "bible_es_en"
) -> list[Document]:
    """The documents of all runs of a corpus."""
    made: list[Document] = []
    for seed in seeds:
        for size in SIZES:
            for model in (*EVERYWHERE, *(SMALL_ONLY if size == "small" else ())):
                trained = _run(effects, name, model, size, seed)
                made.append(trained)
                if size == "large" and model in ("softmax", "entmax"):
                    made.extend(_after(effects, trained))
    return made


def _run(effects: Effects, corpus: str, model: str, size: str, seed: int) -> Document:
    generator = _generator(corpus, model, size, seed)
    layers, heads = SIZES[size]
    quality = 24 + effects.bleu.get(model, 0.0) + (1.0 if size == "large" else 0.0)
    document: Document = {
        "corpus": corpus,
        "run": f"{model}-{size}-seed{seed}",
        "model": model,
        "size": size,
        "seed": seed,
        "role": "trained",
        "budget": None,
        "from_run": None,
        "heads": {attention: [heads] * layers for attention in ATTENTIONS},
        "kept": None,
        "updates": UPDATES,
        "own_updates": UPDATES,
        "epochs": EPOCHS,
        "ended_by": "patience",
        "cpu_seconds": 1000.0 / effects.speed.get(model, 1.0),
        "parameters": 1_000_000,
        "curve": _curve(effects, model, generator),
        "analysis": analysis_of(effects, model, layers, heads, generator),
        "translation": _translation(quality, generator),
        "ablation": None,
    }
    if model in ("softmax", "entmax"):
        document["ablation"] = _ablation(effects, document, size == "small", generator)
    return document


def _after(effects: Effects, baseline: Document) -> Iterator[Document]:
    """What is made of a trained model: continued, pruned, and from scratch."""
    yield _derived(effects, baseline, None, "continued")
    if baseline["model"] == "entmax":
        yield _equal_time(effects, baseline)
    yield _derived(effects, baseline, "all24", "pruned")
    yield _derived(effects, baseline, "all24", "scratch")
    yield _derived(effects, baseline, "all36", "pruned")
    yield _derived(effects, baseline, "encoder4", "pruned")


def _equal_time(effects: Effects, baseline: Document) -> Document:
    """As many updates as take as long as those of 1.5-entmax."""
    document = _derived(effects, baseline, None, "equaltime")
    ratio = effects.speed.get("entmax", 1.0) / effects.speed.get("entmax15", 1.0)
    updates = round(UPDATES * ratio)
    return document | {"from_run": None, "updates": updates, "own_updates": updates}


def _derived(effects: Effects, baseline: Document, budget: str | None, role: str) -> Document:
    name = f"{budget}-{role}" if budget else role
    generator = _generator(baseline["run"], name)
    document = json.loads(json.dumps(baseline))
    document |= {
        "run": f"{baseline['run']}-{name}",
        "role": role,
        "budget": budget,
        "from_run": None if role == "scratch" else baseline["run"],
        "updates": 2 * UPDATES,
        "own_updates": 2 * UPDATES if role == "scratch" else UPDATES,
        "ended_by": "length",
        "ablation": None,
    }
    quality = 25 + effects.bleu.get(baseline["model"], 0.0) + effects.role_bleu.get(name, 0.0)
    document["translation"] = _translation(quality, generator)
    if budget:
        kept = {
            attention: [_left(layer, count) for layer, count in enumerate(counts)]
            for attention, counts in KEPT[budget].items()
        }
        document["heads"] = {attention: list(counts) for attention, counts in KEPT[budget].items()}
        document["kept"] = kept if role == "pruned" else None
        document["search"] = _search(baseline, document) if role == "pruned" else None
        source = baseline["analysis"]
        if role == "scratch":
            source = analysis_of(NOTHING, baseline["model"], *SIZES["large"], generator)
        document["analysis"] = _with_heads(source, kept)
    return document


def _search(baseline: Document, document: Document) -> list[Document]:
    """Heads close evenly in time, in each attention as its number at the end says."""
    shares = [step / 10 for step in range(11)]
    ends = {a: (sum(baseline["heads"][a]), sum(document["heads"][a])) for a in ATTENTIONS}
    return [
        {
            "updates": round(share * UPDATES / 2),
            "open": {a: round(all_ + share * (end - all_)) for a, (all_, end) in ends.items()},
        }
        for share in shares
    ]


def _left(layer: int, count: int) -> list[int]:
    if layer == 0 and count < SIZES["large"][1]:
        return [*range(count - 1), SIZES["large"][1] - 1]
    return list(range(count))


def _with_heads(analysis: Document, kept: dict[str, list[list[int]]]) -> Document:
    """The analysis of a model that has these heads alone, numbered anew."""
    analysis = json.loads(json.dumps(analysis))
    (model,) = analysis["models"]
    model["records"] = {}
    for entry in model["attentions"]:
        heads = [entry["heads"][place] for place in kept[entry["attention"]][entry["layer"]]]
        for share in ("relevance", "gradient"):
            total = sum(head[share] for head in heads)
            for head in heads:
                head[share] /= total
        for number, head in enumerate(heads):
            head["head"] = number
        entry["heads"] = heads
        entry["density_sorted"] = sorted(head["density"] for head in heads)
        if len(heads) == 1:
            entry["diversity"] = None
    return analysis


def _generator(*parts: Any) -> numpy.random.Generator:
    return numpy.random.default_rng(list("|".join(map(str, parts)).encode()))


@lru_cache(maxsize=1)
def _sentences() -> tuple[Any, Any]:
    """Lengths, and how hard each n-gram of each sentence is: the same for all models."""
    generator = numpy.random.default_rng(0)
    lengths = generator.integers(10, 40, SENTENCES)
    return lengths, generator.random((SENTENCES, 4, 40))


def _translation(quality: float, generator: numpy.random.Generator) -> Document:
    """Statistics of a model of this BLEU, near enough; most of what it has right others have, too."""
    lengths, common = _sentences()
    noise = generator.normal(0, 0.02, common.shape)
    chances = numpy.array([0.55, 0.30, 0.18, 0.11]) * quality / 23.9
    totals = numpy.maximum(lengths[:, None] - numpy.arange(4), 0)
    exists = numpy.arange(40) < totals[:, :, None]
    correct = ((common + noise < chances[:, None]) & exists).sum(-1)
    rows = numpy.concatenate([lengths[:, None], lengths[:, None], correct, totals], axis=1)
    score = float(bleu(rows.sum(0)))
    return {
        "bleu": round(score, 2),
        "chrf": round(score + 20, 2),
        "bleu_signature": "nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:2.5.1",
        "chrf_signature": "nrefs:1|case:mixed|eff:yes|nc:6|nw:0|space:no|version:2.5.1",
        "sentences": rows.tolist(),
    }


def _curve(effects: Effects, model: str, generator: numpy.random.Generator) -> list[Document]:
    end = 3.0 + generator.normal(0, 0.002)
    if model == "entmax" and effects.faster:
        end -= 0.3
    points = []
    for epoch in range(1, EPOCHS + 1):
        loss = end + 3 * numpy.exp(-epoch / 2)
        points.append(
            {
                "epoch": epoch,
                "updates": epoch * UPDATES // EPOCHS,
                "valid_loss": round(loss + 1, 4),
                "valid_nll_loss": round(loss, 4),
                "train_loss": round(loss + 0.8, 4),
            }
        )
    return points


def _ablation(
    effects: Effects, document: Document, with_bleu: bool, generator: numpy.random.Generator
) -> Document:
    removals = []
    for entry in document["analysis"]["models"][0]["attentions"]:
        for head in entry["heads"]:
            change = float(generator.normal(0, 0.001))
            if effects.ablated:
                change += 0.5 * head["relevance"] ** 2
            p = 0.0001 if change > 0.01 else 0.5
            score = {"value": 2.4 + change, "change": change, "p": p, "p_holm": min(1.0, 24 * p)}
            loss = 0.001 if p < 0.01 else 0.4
            removals.append(
                {
                    "heads": [f"{entry['attention']}:{entry['layer']}.{head['head']}"],
                    "loss": score,
                    "bleu": {
                        "value": document["translation"]["bleu"] - 10 * change,
                        "change": -10 * change,
                        "p": loss,
                        "p_holm": min(1.0, 24 * loss),
                    }
                    if with_bleu
                    else None,
                }
            )
    removals.sort(key=lambda removal: -removal["loss"]["change"])
    return {
        "format": "fairseq-entmax-ablation",
        "version": 1,
        "checkpoint": "checkpoint_best.pt",
        "data": {"path": "data-bin", "subset": "test", "sentences": SENTENCES},
        "loss_unit": "nats a token",
        "settings": {},
        "significance": {"bootstrap": 1000, "seed": 1},
        "unchanged": {"loss": 2.4, "bleu": document["translation"]["bleu"] if with_bleu else None},
        "removals": removals,
    }
