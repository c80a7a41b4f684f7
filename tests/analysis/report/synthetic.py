"""An analysis of models that were never trained: a complete document, made from random numbers.

Its values have realistic sizes and are consistent where a reader compares them: shares sum to 1,
and sorted densities are those of the heads.
"""

import hashlib
import math

import numpy as np
import torch

from fairseq_entmax.analysis.document.maps import decoded, encode_weights
from fairseq_entmax.analysis.measures import numbers_of
from fairseq_entmax.attentions import ATTENTIONS, CROSS, DECODER_SELF, ENCODER_SELF
from fairseq_entmax.mappings.functional import entmax

OFFSETS = range(-4, 5)
BINS = 20
SENTENCES = 1000
RELATIONS = {"nsubj": (0.35, 1), "obj": (0.41, -2), "amod": (0.72, 1), "advmod": (0.46, 1)}
TAGS = {"NOUN": 0.31, "VERB": 0.22, "ADP": 0.2, "DET": 0.17, "PUNCT": 0.1}
# Kinds of heads: the one offset that a head attends to, or None
KINDS = [-1, 1, None, 0, None, -2, None, None]
MODELS = [("softmax", "softmax", 1.0), ("entmax15", "entmax15", 1.5), ("entmax", "entmax", None)]
WORDS = (
    "▁Y ▁dijo ▁Je ho vá ▁a ▁Mo is és ▁en ▁el ▁monte ▁de ▁la ▁tierra ▁que ▁no ▁d if iere is ▁con "
    "▁los ▁hijos ▁de ▁Is ra el ▁sobre ▁todo ▁pueblo ▁y ▁sus ▁casas ▁para ▁siempre ▁jamás"
)
ENGLISH = (
    "▁And ▁Yah we h ▁said ▁to ▁Mo s es ▁on ▁the ▁mountain ▁of ▁the ▁land ▁that ▁you ▁shall ▁not "
    "▁speak ▁with ▁the ▁children ▁of ▁Is ra el ▁about ▁all ▁the ▁people ▁and ▁their ▁houses"
)


def synthetic_analysis(models=3, layers=6, heads=8, sentences=10, seed=0, length=30):
    """A document like ``analysis.json``, with every field valid.

    The models have softmax, 1.5-entmax and α-entmax in turn, and only the last kind learns α. There
    is one attention map per sentence; the longest sentence has ``length`` tokens.
    """
    rng = np.random.default_rng(seed)
    kinds = [MODELS[number % len(MODELS)] for number in range(models)]
    documents = [
        _model(rng, name if number < 3 else f"{name}-{number}", *kind, layers, heads)
        for number, (name, *kind) in enumerate(kinds)
    ]
    relations = {}
    for name, (baseline, offset) in RELATIONS.items():
        ways = {"to_head": offset, "to_dependent": -offset}
        sides = {way: {"baseline": baseline, "offset": own} for way, own in ways.items()}
        places = {str(-offset): baseline, str(offset): 0.1}
        relations[name] = {"count": 800, "offsets": places, **sides}
    parses = {"file": "test.conllu", "sentences": SENTENCES, "relations": relations}
    parses |= {"part_of_speech": TAGS, "named_entities": 0.05}
    analysis = {
        "format": "fairseq-entmax-analysis",
        "version": 2,
        "data": {
            "path": "data-bin", "subset": "test", "source_lang": "es", "target_lang": "en",
            "subwords": "sentencepiece", "sentences": SENTENCES, "source_tokens": 39000,
            "target_tokens": 39444, "interrogative_sentences": 51, "declarative_sentences": 700,
            "rare_word_sentences": 800,
        },
        "settings": {
            "offsets": list(OFFSETS), "density_bins": BINS, "rare_rank": 500,
            "positional_share": 0.9, "relevance_sentences": 16, "gradient_sentences": 200,
            "measures": ["density", "entropy", "relevance"],
        },
        "models": documents,
        "annotations": parses,
        "maps": [_map(rng, 17 * number, length, documents) for number in range(sentences)],
    }  # fmt: skip
    return {**analysis, "numbers": [number.as_json() for number in numbers_of(analysis)]}


def _model(rng, name, mapping, alpha, layers, heads):
    attentions = [
        _attention(rng, attention, layer, mapping, alpha, heads)
        for attention in ATTENTIONS
        for layer in range(layers)
    ]
    # From a random start to the model's own values
    record = []
    starts = [1 + rng.random(heads) for _ in attentions]
    for update in range(0, 8001, 200):
        values = {}
        for row, start in zip(attentions, starts, strict=True):
            end = np.array([head["values"]["alpha"] for head in row["heads"]])
            own = start + update / 8000 * (end - start)
            values.setdefault(row["attention"], {})[str(row["layer"])] = own.round(6).tolist()
        record.append({"update": update, "values": values})
    return {
        "name": name,
        "checkpoint": f"runs/{name}/checkpoints/checkpoint_best.pt",
        "checkpoint_sha256": hashlib.sha256(name.encode()).hexdigest(),
        "architecture": "transformer" if mapping == "softmax" else "entmax_transformer",
        "parameters": 1_249_280,
        "updates": 8000,
        "loss": 2.4 + 0.1 * float(rng.random()),
        "importance_sentences": {"relevance": 16, "gradient": 200},
        "records": {} if alpha is not None else {"alpha": record},
        "attentions": attentions,
    }


def _attention(rng, attention, layer, mapping, alpha, heads):
    rows = [
        _head(rng, attention, KINDS[(number + layer) % len(KINDS)], number, alpha)
        for number in range(heads)
    ]
    for measure in ("relevance", "gradient"):
        total = sum(row[measure] for row in rows)
        for row in rows:
            row[measure] /= total
    return {
        "attention": attention,
        "layer": layer,
        "mapping": mapping,
        "learned": ["alpha"] if alpha is None else [],
        "copy_chance": 0.04 if attention == CROSS else None,
        "diversity": float(0.3 + 0.1 * math.sin(layer) + 0.05 * rng.random()),
        "heads": rows,
    }


def _head(rng, attention, offset, number, alpha):
    strength = float(rng.uniform(0, 0.3) if offset is None else rng.uniform(0.75, 0.98))
    alpha = float(rng.uniform(1.02, 1.98)) if alpha is None else alpha
    mean = min(0.95, (2.05 - alpha) * rng.uniform(0.4, 1.2))
    densities = rng.beta(12 * mean, 12 * (1 - mean), SENTENCES) ** (alpha > 1)
    confidence = max(strength, float(rng.uniform(0.1, 0.5)))
    # ``strength`` at the offset, and the rest spread over what a query sees
    seen = [str(o) for o in OFFSETS if attention != DECODER_SELF or o <= 0]
    spread = [*seen, "below"] + ["above"] * (attention != DECODER_SELF)
    held = 0.0 if offset is None or str(offset) not in seen else strength
    maximum = dict.fromkeys([*map(str, OFFSETS), "below", "above"], 0.0)
    maximum |= dict.fromkeys(spread, (1 - held) / len(spread))
    if held:
        maximum[str(offset)] += held
    share = {str(o): min(1.0, maximum[str(o)] * 1.02) if str(o) in seen else None for o in OFFSETS}
    weight = {key: value and 0.95 * value for key, value in share.items()}
    key, positional = str(offset), None
    if held and share[key] >= 0.9:
        positional = {"offset": offset, "share": share[key], "confidence": weight[key]}
    head = {
        "head": number,
        "values": {"alpha": alpha},
        "density": float(densities.mean()),
        "density_histogram": [int(n) for n in np.histogram(densities, BINS, (0, 1))[0]],
        "entropy": float(3 * (1 - confidence) + 0.2 * rng.random()),
        "confidence": confidence,
        # Equal weights by chance only, as with softmax and entmax
        "equal_weights": dict.fromkeys(("run_length", "cluster_size"), 1.0)
        | dict.fromkeys(("run_weight", "cluster_weight"), 0.0),
        "offsets": {"maximum": maximum, "share": share, "weight": weight},
        "positional": positional,
        "standard_errors": dict.fromkeys(("relevance", "gradient")),
        "relevance": float(rng.gamma(1.0)) + 0.1,
        "gradient": float(rng.gamma(1.0)) + 0.1,
        **dict.fromkeys(("gate", "relative_position", "copy_agreement", "rare_word")),
        **dict.fromkeys(("subword_merging", "final_punctuation", "dependencies", "question_word")),
        **dict.fromkeys(("pos_shares", "pos_kl", "named_entity")),
    }
    if attention == CROSS:
        agreement = {"largest": 0.3 * strength, "support": 1.0, "weight": 0.2 * strength}
        head["copy_agreement"] = agreement
    else:
        head["subword_merging"] = {"all": 0.88 * strength, "split": 0.86 * strength}
    if attention != DECODER_SELF:
        head["relative_position"] = 0.5 * strength
        head["rare_word"] = {"rarest": 0.2, "two_rarest": 0.83 * strength}
        head["final_punctuation"] = {"interrogative": 0.45 * strength, "declarative": 0.03}
        shares = rng.dirichlet([3.0] * len(TAGS)).tolist()
        head["pos_shares"] = dict(zip(TAGS, shares, strict=True))
        head["pos_kl"] = float(rng.gamma(1.0, 0.1))
        head["named_entity"] = float(rng.beta(1, 15))
    if attention == ENCODER_SELF:
        head["question_word"] = {"interrogative": 0.6 * strength, "declarative": 0.02}
        head["dependencies"] = {
            name: {
                way: float(min(0.98, baseline * rng.uniform(0.5, 1.35)))
                for way in ("to_head", "to_dependent")
            }
            for name, (baseline, _) in RELATIONS.items()
        }
    return head


def _map(rng, sentence, length, models):
    source, targets = (_tokens(rng, text, length) for text in (WORDS, ENGLISH))
    return {
        "sentence": sentence,
        "source": source,
        "queries": ["</s>", *targets[:-1]],
        "targets": targets,
        "models": [list(_weights(rng, model, source, targets)) for model in models],
    }


def _tokens(rng, text, length):
    words = text.split()
    number = max(1, int(rng.integers(max(1, length // 2), length + 1)) - 2)
    start = int(rng.integers(len(words)))
    return [*(words[(start + place) % len(words)] for place in range(number)), ".", "</s>"]


def _weights(rng, model, source, targets):
    for row in model["attentions"]:
        attention = row["attention"]
        keys = len(targets if attention == DECODER_SELF else source)
        queries = len(source if attention == ENCODER_SELF else targets)
        scores = torch.from_numpy(2 * rng.normal(size=(len(row["heads"]), queries, keys)))
        if attention == DECODER_SELF:
            future = torch.ones(queries, keys, dtype=torch.bool).triu(1)
            scores = scores.masked_fill(future, -math.inf)
        alpha = torch.tensor([head["values"]["alpha"] for head in row["heads"]], dtype=scores.dtype)
        weights = entmax(scores, alpha.view(-1, 1, 1))
        place = {"attention": attention, "layer": row["layer"]}
        yield {**place, "shape": list(weights.shape), "weights": encode_weights(weights)}


def heads_of(model):
    return [head for layer in model["attentions"] for head in layer["heads"]]


def every_head(analysis):
    return [head for model in analysis["models"] for head in heads_of(model)]


def lose_head(analysis, model, head):
    """Remove a head from the first layer of a model."""
    analysis["models"][model]["attentions"][0]["heads"].pop(head)
    for entry in analysis["maps"]:
        item = entry["models"][model][0]
        weights = np.delete(decoded(item), head, axis=0)
        item["shape"] = list(weights.shape)
        item["weights"] = encode_weights(torch.from_numpy(weights))
