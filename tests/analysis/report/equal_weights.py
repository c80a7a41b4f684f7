"""Synthetic analyses of models whose heads give equal weights to runs or clusters of keys."""

import math

import torch

from fairseq_entmax.analysis.document.maps import encode_groups, encode_weights, numbered_groups
from fairseq_entmax.analysis.measures import numbers_of
from fairseq_entmax.mappings import fusedmax, oscarmax

# The strength's name and value, and the mapping with this strength
RUNS = ("tv", 0.4, lambda scores: fusedmax(scores, tv=0.4))
CLUSTERS = ("oscar", 0.03, lambda scores: oscarmax(0.6 * scores, oscar=0.03))


def give_groups(analysis, model, made, seed=0):
    """Turn the heads of a model, except head 0 of each layer, into those of fusedmax or oscarmax.

    Returns:
        Exact weights ``(heads, queries, keys)`` by (sentence, attention, layer).
    """
    name, strength, mapping = made
    kind = "runs" if made is RUNS else "clusters"
    for layer in analysis["models"][model]["attentions"]:
        for head in layer["heads"][1:]:
            head["values"][name] = strength
            head["equal_weights"] = {
                "run_length": 2.5, "run_weight": 0.75, "cluster_size": 2.75, "cluster_weight": 0.8,
            }  # fmt: skip
    analysis["numbers"] = [number.as_json() for number in numbers_of(analysis)]
    generator, exact = torch.Generator().manual_seed(seed), {}
    for sentence, entry in enumerate(analysis["maps"]):
        for item in entry["models"][model]:
            scores = torch.randn(item["shape"], generator=generator)
            if item["attention"] == "decoder-self":
                future = torch.ones(scores.shape[1:], dtype=torch.bool).triu(1)
                scores = scores.masked_fill(future, -math.inf)
            weights = torch.cat([scores[:1].softmax(-1), mapping(scores[1:])])
            item["weights"] = encode_weights(weights)
            kinds = [None, *[kind] * (len(weights) - 1)]
            item["groups"] = encode_groups(numbered_groups(weights, kinds))
            exact[sentence, item["attention"], item["layer"]] = weights
    return exact
