"""What is planted in a record, and the analysis of a run that has it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy
from claims.record import ATTENTIONS, CROSS, DECODER_SELF, ENCODER_SELF
from scipy.stats import norm

Document = dict[str, Any]
SENTENCES, UPDATES = 300, 2000
OFFSETS = tuple(str(offset) for offset in range(-4, 5))


@dataclass(frozen=True)
class Effects:
    """What is planted; the default is what the papers found.

    Attributes:
        bleu: of a model above softmax, by its name; 0 of those that are not named.
        role_bleu: of ``BUDGET-ROLE`` above the trained model.
        bimodal: α of encoder-self has modes at 1.25 and 1.9, else one at 1.3.
        falls: α falls at first, everywhere; else it starts low, and goes straight to its end.
        follows_start: the ends of α are in the order of its starts.
        dense_mode: heads of a low α are dense; else α does not change density.
        diverse: sparse heads differ more.
        peak: encoder-self and cross are most diverse in the middle layer.
        positional, rare_word, merging, question, syntactic: whether the encoder has such heads.
        confident: positional heads of sparse models are more confident.
        concentrated: one head of each layer has most of its relevance.
        agree: confidence is high where relevance is.
        ablated: removing heads costs loss as their relevance says; else nothing.
        faster: α learned has the lower loss at equal time and updates.
        speed: sentences and updates a second, softmax at 1, by model; of ``pruned``, the whole model at 1.
    """

    bleu: dict[str, float] = field(default_factory=dict)
    role_bleu: dict[str, float] = field(
        default_factory=lambda: {
            "all24-pruned": -0.3,
            "all36-pruned": 0.0,
            "equaltime": 1.0,
            "all24-scratch": -1.5,
            "encoder4-pruned": -0.2,
        }
    )
    bimodal: bool = True
    falls: bool = True
    follows_start: bool = False
    dense_mode: bool = True
    diverse: bool = True
    peak: bool = True
    positional: bool = True
    rare_word: bool = True
    merging: bool = True
    question: bool = True
    syntactic: bool = True
    confident: bool = True
    concentrated: bool = True
    agree: bool = True
    ablated: bool = True
    faster: bool = True
    speed: dict[str, float] = field(
        default_factory=lambda: {"entmax15": 0.9, "sparsemax": 0.9, "entmax": 0.8}
    )


FOUND = Effects()
NOTHING = Effects(
    role_bleu={
        "all24-pruned": -1.5,
        "all36-pruned": -1.5,
        "all24-scratch": -0.3,
        "encoder4-pruned": -3.0,
    },
    **dict.fromkeys(
        [
            "bimodal",
            "falls",
            "dense_mode",
            "diverse",
            "peak",
            "positional",
            "rare_word",
            "merging",
            "question",
            "syntactic",
            "confident",
            "concentrated",
            "agree",
            "ablated",
            "faster",
        ],
        False,
    ),
)


def analysis_of(
    effects: Effects, model: str, layers: int, heads: int, generator: numpy.random.Generator
) -> Document:
    alphas = {a: _alphas(effects, model, a, layers, heads, generator) for a in ATTENTIONS}
    records = {}
    if model == "entmax":
        records["alpha"] = _trajectory(effects, alphas, generator)
    attentions = [
        _layer(effects, model, attention, layer, alphas[attention][layer], generator)
        for attention in ATTENTIONS
        for layer in range(layers)
    ]
    return {
        "format": "fairseq-entmax-analysis",
        "version": 2,
        "data": {
            "path": "data-bin",
            "subset": "test",
            "source_lang": "es",
            "target_lang": "en",
            "sentences": SENTENCES,
            "interrogative_sentences": 30,
            "declarative_sentences": 200,
            "rare_word_sentences": 250,
        },
        "settings": {"density_bins": 20, "positional_share": 0.9, "rare_rank": 500},
        "numbers": [],
        "models": [
            {
                "name": model,
                "checkpoint": "checkpoint_best.pt",
                "architecture": "entmax_transformer",
                "parameters": 1_000_000,
                "updates": UPDATES,
                "loss": 2.4,
                "records": records,
                "attentions": attentions,
            }
        ],
        "annotations": {
            "file": "test.conllu",
            "sentences": SENTENCES,
            "relations": {
                relation: {
                    "count": 400,
                    "to_head": {"baseline": 0.4, "offset": 1},
                    "to_dependent": {"baseline": 0.4, "offset": -1},
                }
                for relation in ("nsubj", "obj", "amod", "advmod")
            },
            "part_of_speech": {"NOUN": 0.5, "VERB": 0.5},
            "named_entities": 0.1,
        },
    }


def _alphas(
    effects: Effects,
    model: str,
    attention: str,
    layers: int,
    heads: int,
    generator: numpy.random.Generator,
) -> Any:
    """(layers, heads)"""
    sparse = model
    if model.startswith("cross-"):
        sparse = "sparsemax" if attention == CROSS else "softmax"
    if model == "sparse-encoder":
        sparse = "sparsemax" if attention == ENCODER_SELF else "softmax"
    fixed = {"softmax": 1.0, "entmax15": 1.5, "sparsemax": 2.0}
    if sparse in fixed:
        return numpy.full((layers, heads), fixed[sparse])
    # Even quantiles, in a random order: samples of one Gaussian often look like those of two
    even = norm.ppf((numpy.arange(layers * heads) + 0.5) / (layers * heads), 1.3, 0.06)
    alphas = generator.permutation(even).reshape(layers, heads)
    alphas = alphas + generator.normal(0, 0.005, alphas.shape)
    if attention == ENCODER_SELF and effects.bimodal:
        alphas = generator.normal(1.25, 0.05, (layers, heads))
        alphas[:, ::2] = generator.normal(1.9, 0.03, alphas[:, ::2].shape)
    return numpy.clip(alphas, 1.001, 1.999)


def _trajectory(
    effects: Effects, alphas: dict[str, Any], generator: numpy.random.Generator
) -> list[Document]:
    points = []
    least, most = (1.15, 1.95) if effects.falls else (1.0, 1.2)
    starts = {a: generator.uniform(least, most, ends.shape) for a, ends in alphas.items()}
    if effects.follows_start:
        for attention, ends in alphas.items():
            ranks = ends.ravel().argsort().argsort()
            starts[attention] = numpy.sort(starts[attention].ravel())[ranks].reshape(ends.shape)
    for step in range(21):
        at, values = step / 20, {}
        for attention, ends in alphas.items():
            start = starts[attention]
            way = start + (ends - start) * at
            if effects.falls:
                low = numpy.minimum(start, ends) - 0.1
                way = (
                    start + (low - start) * at / 0.3
                    if at < 0.3
                    else low + (ends - low) * (at - 0.3) / 0.7
                )
            way = numpy.clip(way, 1.0, 2.0)
            values[attention] = {str(i): row.round(5).tolist() for i, row in enumerate(way)}
        points.append({"update": step * UPDATES // 20, "values": values})
    return points


def _layer(
    effects: Effects,
    model: str,
    attention: str,
    layer: int,
    alphas: Any,
    generator: numpy.random.Generator,
) -> Document:
    sparse = bool(alphas.max() > 1)
    count = len(alphas)
    relevance = generator.dirichlet(numpy.full(count, 20.0))
    if effects.concentrated:
        relevance = 0.4 * relevance
        relevance[0] += 0.6
    heads = [
        _head(effects, attention, layer, number, count, alphas[number], relevance, generator)
        for number in range(count)
    ]
    diversity = 0.1 + (0.1 if sparse and effects.diverse else 0) + generator.normal(0, 0.002)
    layers = 3 if count == 8 else 2
    if effects.peak and attention != DECODER_SELF and layers == 3 and layer == 1:
        diversity += 0.05
    learned = ["alpha"] if model == "entmax" else []
    return {
        "attention": attention,
        "layer": layer,
        "mapping": model,
        "density_sorted": sorted(head["density"] for head in heads),
        "learned": learned,
        "diversity": float(diversity),
        "heads": heads,
    }


def _head(
    effects: Effects,
    attention: str,
    layer: int,
    number: int,
    count: int,
    alpha: float,
    relevance: Any,
    generator: numpy.random.Generator,
) -> Document:
    sparse = alpha > 1
    density = {1.0: 1.0, 1.5: 0.35, 2.0: 0.15}.get(float(alpha), 0.35)
    if alpha not in (1.0, 1.5, 2.0) and effects.dense_mode:
        density = 0.97 if alpha < 1.3 else 0.15
    if alpha > 1:
        density = float(numpy.clip(density + generator.normal(0, 0.02), 0.02, 1))
    each = numpy.clip(generator.normal(density, 0.01, SENTENCES), 0, 0.999)
    histogram = numpy.bincount((each * 20).astype(int), minlength=20)
    share = float(relevance[number])
    noise = float(generator.normal(0, 0.01))
    confidence = 0.2 + (0.5 * share if effects.agree else float(generator.uniform(0, 0.3))) + noise
    special = attention == ENCODER_SELF and layer == 0
    head: Document = {
        "head": number,
        "density": density,
        "density_histogram": histogram.tolist(),
        "values": {"alpha": round(float(alpha), 5)},
        "entropy": 1 + 2 * density,
        "confidence": round(confidence, 6),
        "relevance": share,
        "gradient": share,
        "gate": None,
        "equal_weights": None,
        "offsets": _offsets(0.3, 0, 0.2 + noise),
        "positional": None,
        "relative_position": 0.3,
        "copy_agreement": None,
        "rare_word": {"rarest": 0.05 + abs(noise), "two_rarest": 0.1 + abs(noise)},
        "subword_merging": {"all": 0.1 + abs(noise), "split": 0.15 + abs(noise)},
        "final_punctuation": {"interrogative": 0.03, "declarative": 0.03},
        "dependencies": None,
        "pos_kl": 0.1,
        "pos_shares": {"NOUN": 0.5, "VERB": 0.5},
        "named_entity": 0.1,
    }
    if attention == DECODER_SELF:
        head |= {"rare_word": None, "final_punctuation": None}
    if attention == CROSS:
        head |= {"subword_merging": None}
    if attention == ENCODER_SELF:
        head["dependencies"] = {
            relation: {"to_head": 0.25 + abs(noise), "to_dependent": 0.25}
            for relation in ("nsubj", "obj", "amod", "advmod")
        }
        if effects.syntactic and layer == 1 and number == 0:
            head["dependencies"]["nsubj"]["to_head"] = 0.75
    if special:
        _special(effects, head, number, count, sparse, noise)
    return head


def _special(
    effects: Effects, head: Document, number: int, count: int, sparse: bool, noise: float
) -> None:
    """Give a head of the lowest encoder layer its role."""
    if effects.positional and number in (0, 1):
        offset = -1 if number == 0 else 1
        more = 0.1 if sparse and effects.confident else 0
        weight = 0.83 + more + noise
        head["positional"] = {"offset": offset, "share": 0.97, "confidence": weight}
        head["offsets"] = _offsets(0.97, offset, weight)
        head["relative_position"] = 0.97
    if effects.merging and number == 2:
        weight = (0.88 if sparse else 0.6) + noise
        head["subword_merging"] = {"all": weight, "split": weight}
    if effects.question and number == min(3, count - 2):
        head["final_punctuation"] = {"interrogative": 0.55 + noise, "declarative": 0.04}
    if effects.rare_word and number == count - 1:
        head["rare_word"] = {"rarest": 0.5 + noise, "two_rarest": 0.66 + noise}


def _offsets(share: float, offset: int, weight: float) -> Document:
    """Most at one offset, the rest spread evenly."""
    rest = (1 - share) / 10
    maximum = {"below": rest, **dict.fromkeys(OFFSETS, rest), "above": rest}
    shares, weights = dict.fromkeys(OFFSETS, rest), dict.fromkeys(OFFSETS, 0.02)
    for found, value in ((maximum, share), (shares, share), (weights, weight)):
        found[str(offset)] = value
    return {"maximum": maximum, "share": shares, "weight": weights}
