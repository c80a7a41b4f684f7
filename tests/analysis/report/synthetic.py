"""An analysis of models that were never trained: a whole document, made from random numbers.

The numbers are of the size that trained models have, and agree with each other where a reader
compares them: shares sum to 1, sorted densities are those of the heads, and the attention maps
of a head show what its measures say of it.
"""

import base64
import math
import zlib

import numpy as np
import torch

from fairseq_entmax.analysis.measures import numbers_of
from fairseq_entmax.attentions import ATTENTIONS, CROSS, DECODER_SELF, ENCODER_SELF
from fairseq_entmax.mappings.functional import entmax

OFFSETS = range(-4, 5)
BINS = 20
SENTENCES = 1000
RELATIONS = {"nsubj": (0.35, 1), "obj": (0.41, -2), "amod": (0.72, 1), "advmod": (0.46, 1)}
# Kinds of heads: the one place that a head looks at is an offset, or is named
KINDS = {
    ENCODER_SELF: [-1, 1, "rare", "broad", 0, "question", "syntactic", "broad"],
    DECODER_SELF: [-1, 0, "broad", -2, "broad", -1, "broad", "broad"],
    CROSS: ["aligned", "broad", "rare", "broad", "aligned", "question", "broad", "broad"],
}
MODELS = [("softmax", "softmax", 1.0), ("entmax15", "entmax15", 1.5), ("entmax", "entmax", None)]
WORDS = (
    "▁Y ▁dijo ▁Je ho vá ▁a ▁Mo is és ▁en ▁el ▁monte ▁de ▁la ▁tierra ▁que ▁no ▁d if iere is ▁con "
    "▁los ▁hijos ▁de ▁Is ra el ▁sobre ▁todo ▁pueblo ▁y ▁sus ▁casas ▁para ▁siempre ▁jamás"
)
ENGLISH = (
    "▁And ▁Yah we h ▁said ▁to ▁Mo s es ▁on ▁the ▁mountain ▁of ▁the ▁land ▁that ▁you ▁shall ▁not "
    "▁speak ▁with ▁the ▁children ▁of ▁Is ra el ▁about ▁all ▁the ▁people ▁and ▁their ▁houses"
)


def synthetic_analysis(
    models=3, layers=6, heads=8, sentences=10, seed=0, length=30, annotations=True
):
    """A document as ``analysis.json`` holds it, valid in every field.

    Softmax, 1.5-entmax and α-entmax models in turn, of which only the last learn α; attention maps of
    as many sentences, the longest of ``length`` tokens; with scores that need a parse or without.
    """
    rng = np.random.default_rng(seed)
    kinds = [MODELS[number % len(MODELS)] for number in range(models)]
    documents = [
        _model(rng, name if number < 3 else f"{name}-{number}", *kind, layers, heads, annotations)
        for number, (name, *kind) in enumerate(kinds)
    ]
    analysis = {
        "format": "fairseq-entmax-analysis",
        "version": 2,
        "data": {
            "path": "data-bin", "subset": "test", "source_lang": "es", "target_lang": "en",
            "subwords": "sentencepiece",
            "sentences": SENTENCES, "source_tokens": 39000, "target_tokens": 39444,
            "interrogative_sentences": 51, "declarative_sentences": 700,
            "rare_word_sentences": 800,
        },
        "settings": {
            "offsets": list(OFFSETS), "density_bins": BINS, "rare_rank": 500,
            "positional_share": 0.9, "relevance_sentences": 16, "gradient_sentences": 200,
            "measures": ["density", "entropy", "confidence", "equal_weights", "offsets",
                         "relative_position", "copy_agreement", "rare_word", "subword_merging", "final_punctuation", "diversity", "relevance",
                         "gradient"],
        },
        "models": documents,
        "annotations": _annotations() if annotations else None,
        "maps": [
            _map(rng, 17 * number, length, number % 5 == 4, documents) for number in range(sentences)
        ],
    }  # fmt: skip
    return {**analysis, "numbers": [number.as_json() for number in numbers_of(analysis)]}


def _annotations():
    return {
        "file": "test.conllu",
        "sentences": SENTENCES,
        "relations": {
            name: {
                "count": 800,
                "to_head": {"baseline": baseline, "offset": offset},
                "to_dependent": {"baseline": baseline, "offset": -offset},
            }
            for name, (baseline, offset) in RELATIONS.items()
        },
        "part_of_speech": {"NOUN": 0.31, "VERB": 0.22, "ADP": 0.2, "DET": 0.17, "PUNCT": 0.1},
        "named_entities": 0.05,
    }


def _model(rng, name, mapping, alpha, layers, heads, annotations):
    attentions = [
        _attention(rng, attention, layer, mapping, alpha, heads, annotations)
        for attention in ATTENTIONS
        for layer in range(layers)
    ]
    return {
        "name": name,
        "checkpoint": f"runs/{name}/checkpoints/checkpoint_best.pt",
        "architecture": "transformer" if mapping == "softmax" else "entmax_transformer",
        "parameters": 1_249_280,
        "updates": 8000,
        "loss": 2.4 + 0.1 * float(rng.random()),
        "records": {} if alpha is not None else {"alpha": _alpha_record(rng, attentions)},
        "attentions": attentions,
    }


def _alpha_record(rng, attentions):
    """From a random start, with a dip towards softmax, to the model's own values."""
    record = []
    starts = [1 + rng.random(len(row["heads"])) for row in attentions]
    for update in range(0, 8001, 200):
        done = update / 8000
        values = {}
        for row, start in zip(attentions, starts, strict=True):
            end = np.array([head["values"]["alpha"] for head in row["heads"]])
            alpha = (1 - done) * start + done * end
            alpha = 1 + (alpha - 1) * (1 - 0.4 * math.sin(math.pi * done) * (1 - done))
            layer = values.setdefault(row["attention"], {})
            layer[str(row["layer"])] = [round(float(value), 6) for value in alpha]
        record.append({"update": update, "values": values})
    return record


def _attention(rng, attention, layer, mapping, alpha, heads, annotations):
    kinds = KINDS[attention]
    rows = [
        _head(rng, attention, kinds[(number + layer) % len(kinds)], number, alpha, annotations)
        for number in range(heads)
    ]
    for measure in ("relevance", "gradient"):
        total = sum(row[measure] for row in rows)
        for row in rows:
            row[measure] /= total
    sparse = 0.0 if alpha == 1.0 else 0.12
    return {
        "attention": attention,
        "layer": layer,
        "mapping": mapping,
        "learned": ["alpha"] if alpha is None else [],
        "copy_chance": 0.04 if attention == CROSS else None,
        "diversity": float(0.2 + sparse + 0.1 * math.sin(layer) + 0.05 * rng.random()),
        "density_sorted": sorted(row["density"] for row in rows),
        "heads": rows,
    }


def _head(rng, attention, kind, number, alpha, annotations):
    offset = kind if isinstance(kind, int) else None
    strength = float(rng.uniform(0.75, 0.98)) if offset is not None else float(rng.uniform(0, 0.3))
    if alpha is None:
        alpha = float(rng.uniform(1.6, 1.98) if kind != "broad" else rng.uniform(1.02, 1.4))
    densities = _densities(rng, alpha)
    confidence = max(strength, float(rng.uniform(0.1, 0.5)))
    maximum = _offset_shares(attention, offset, strength)
    share = {
        str(o): None if attention == DECODER_SELF and o > 0 else min(1.0, maximum[str(o)] * 1.02)
        for o in OFFSETS
    }
    weight = {key: value and 0.95 * value for key, value in share.items()}
    positional = None
    if offset is not None and share[str(offset)] >= 0.9:
        key = str(offset)
        positional = {"offset": offset, "share": share[key], "confidence": weight[key]}
    head = {
        "head": number,
        "values": {"alpha": alpha},
        "density": float(densities.mean()),
        "density_histogram": [int(n) for n in np.histogram(densities, BINS, (0, 1))[0]],
        "entropy": float(3 * (1 - confidence) + 0.2 * rng.random()),
        "confidence": confidence,
        # By chance: what softmax and entmax have
        "equal_weights": {
            **dict.fromkeys(("run_length", "cluster_size"), 1.0),
            **dict.fromkeys(("run_weight", "cluster_weight"), 0.0),
        },
        "offsets": {"maximum": maximum, "share": share, "weight": weight},
        "positional": positional,
        "relevance": float(rng.gamma(1.0) + (2 if kind in (-1, "rare") else 0.1)),
        "gradient": float(rng.gamma(1.0) + (2 if kind in (-1, "rare") else 0.1)),
        **dict.fromkeys(("gate", "relative_position", "copy_agreement", "rare_word")),
        **dict.fromkeys(("subword_merging", "final_punctuation", "dependencies")),
        **dict.fromkeys(("pos_shares", "pos_kl", "named_entity")),
    }
    if attention == CROSS:
        agreement = {"largest": 0.3 * strength, "support": 1.0, "weight": 0.2 * strength}
        head["copy_agreement"] = agreement
    else:
        own = (0.88 * strength, 0.86 * strength) if kind == 0 else (0.1, 0.2)
        head["subword_merging"] = dict(zip(("all", "split"), own, strict=True))
    if attention != DECODER_SELF:
        rare = (0.66, 0.83) if kind == "rare" else (0.06, 0.11)
        marks = (0.45, 0.03) if kind == "question" else (0.06, 0.05)
        head["relative_position"] = 0.5 * strength
        head["rare_word"] = dict(zip(("rarest", "two_rarest"), rare, strict=True))
        head["final_punctuation"] = dict(zip(("interrogative", "declarative"), marks, strict=True))
        if annotations:
            tags = list(_annotations()["part_of_speech"])
            shares = rng.dirichlet([3.0] * len(tags)).tolist()
            head["pos_shares"] = dict(zip(tags, shares, strict=True))
            head["pos_kl"] = float(rng.gamma(1.0, 0.1))
            head["named_entity"] = float(rng.beta(1, 15))
    if annotations and attention == ENCODER_SELF:
        best = 1.35 if kind == "syntactic" else 0.8
        head["dependencies"] = {
            name: {
                way: float(min(0.98, baseline * best * rng.uniform(0.6, 1.0)))
                for way in ("to_head", "to_dependent")
            }
            for name, (baseline, _) in RELATIONS.items()
        }
    return head


def _offset_shares(attention, offset, strength):
    """``strength`` on the offset, the rest spread; sums to 1."""
    names = [str(o) for o in OFFSETS if attention != DECODER_SELF or o <= 0]
    names += ["below"] if attention == DECODER_SELF else ["below", "above"]
    held = strength if offset is not None else 0.0
    shares = dict.fromkeys([*map(str, OFFSETS), "below", "above"], 0.0)
    shares |= dict.fromkeys(names, (1 - held) / len(names))
    if offset is not None:
        shares[str(offset)] += held
    return shares


def _densities(rng, alpha):
    """One of each sentence, sparser with a larger alpha."""
    if alpha == 1:
        return np.ones(SENTENCES)
    mean = min(0.95, (2.05 - alpha) * rng.uniform(0.4, 1.2))
    return rng.beta(12 * mean, 12 * (1 - mean), SENTENCES)


def _map(rng, sentence, length, is_question, models):
    source = _tokens(rng, WORDS, length, is_question)
    targets = _tokens(rng, ENGLISH, length, is_question)
    return {
        "sentence": sentence,
        "source": source,
        "queries": ["</s>", *targets[:-1]],
        "targets": targets,
        "models": [list(_weights(rng, model, source, targets)) for model in models],
    }


def _tokens(rng, text, length, is_question):
    words = text.split()
    number = max(1, int(rng.integers(max(1, length // 2), length + 1)) - 2)
    start = int(rng.integers(len(words)))
    tokens = [words[(start + place) % len(words)] for place in range(number)]
    return [*tokens, "▁?" if is_question else ".", "</s>"]


def _weights(rng, model, source, targets):
    for row in model["attentions"]:
        attention, layer = row["attention"], row["layer"]
        keys = len(targets if attention == DECODER_SELF else source)
        queries = len(source if attention == ENCODER_SELF else targets)
        kinds = KINDS[attention]
        scores = torch.stack(
            [
                torch.from_numpy(_scores(rng, kinds[(number + layer) % len(kinds)], queries, keys))
                for number in range(len(row["heads"]))
            ]
        )
        if attention == DECODER_SELF:
            future = torch.ones(queries, keys, dtype=torch.bool).triu(1)
            scores = scores.masked_fill(future, -math.inf)
        alpha = torch.tensor([head["values"]["alpha"] for head in row["heads"]], dtype=scores.dtype)
        weights = entmax(scores, alpha.view(-1, 1, 1))
        yield {
            "attention": attention,
            "layer": layer,
            "shape": list(weights.shape),
            "weights": encode_weights(weights.numpy()),
        }


def _scores(rng, kind, queries, keys):
    scores = rng.normal(size=(queries, keys))
    rows = np.arange(queries)
    if isinstance(kind, int) or kind == "aligned":
        place = rows + kind if isinstance(kind, int) else rows * keys // queries
        scores[rows, np.clip(place, 0, keys - 1)] += 5
    elif kind == "question":
        scores[:, max(0, keys - 2)] += 3
    elif kind == "rare":
        scores[:, int(rng.integers(keys))] += 4
    elif kind == "syntactic":
        scores[rows, rng.integers(keys, size=queries)] += 4
    return scores


def encode_weights(weights):
    """Weights as the document writes them: zeros stay zeros, and nothing else becomes one."""
    small = weights.astype("<f2")
    small[(small == 0) & (weights > 0)] = np.nextafter(np.float16(0), np.float16(1))
    return base64.b64encode(zlib.compress(small.tobytes(), 9)).decode("ascii")


def decode_weights(entry):
    """The weights ``(heads, queries, keys)`` of one attention of a map, float32."""
    raw = zlib.decompress(base64.b64decode(entry["weights"]))
    return np.frombuffer(raw, "<f2").reshape(entry["shape"]).astype(np.float32)
