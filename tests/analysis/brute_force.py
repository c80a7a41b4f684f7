"""The measures of attention again, as loops over sentences, heads, queries and keys."""

import math
from collections import Counter

import torch

OFFSETS = range(-4, 5)


def sentences(weights, queries, keys):
    """Cut ``(batch, heads, queries, keys)`` to the real tokens: lists ``[head][query][key]``.

    ``queries`` and ``keys`` are lists of ``(start, length)``, one per sentence.
    """
    return [
        [[row[k0 : k0 + k].tolist() for row in head[q0 : q0 + q]] for head in of_heads.double()]
        for of_heads, (q0, q), (k0, k) in zip(weights, queries, keys, strict=True)
    ]


def target_log_probs(model, sample, pad=1):
    """Log probabilities of each target, one sentence at a time and without padding."""
    for source, target in zip(sample["net_input"]["src_tokens"], sample["target"], strict=True):
        source, target = source[source != pad], target[target != pad]
        with torch.no_grad():
            output = model(source[None], torch.tensor([len(source)]), target.roll(1)[None])
        yield output[0][0].log_softmax(-1).gather(1, target[:, None])[:, 0]


def sentence_losses(model, sample):
    return torch.stack([-log_probs.mean() for log_probs in target_log_probs(model, sample)])


def attendable(query, keys, causal):
    return query + 1 if causal else keys


def mean(values):
    values = list(values)
    return sum(values) / len(values) if values else None


def entropy(row):
    return -sum(p * math.log(p) for p in row if p > 0)


def density(found, head, causal):
    return mean(
        sum(p > 0 for p in row) / attendable(i, len(row), causal)
        for sentence in found
        for i, row in enumerate(sentence[head])
    )


def density_histogram(found, head, causal, bins):
    counts = [0] * bins
    for sentence in found:
        value = density([sentence], head, causal)
        counts[min(int(value * bins + 1e-9), bins - 1)] += 1
    return counts


def confidence(found, head, causal, ends):
    """``ends``: for each sentence, the positions of keys that are end-of-sentence symbols."""
    largest = []
    for sentence, end in zip(found, ends, strict=True):
        for i, row in enumerate(sentence[head]):
            seen = row[: attendable(i, len(row), causal)]
            if others := [p for j, p in enumerate(seen) if j not in end]:
                largest.append(max(others))
    return mean(largest)


def offsets(found, head, causal):
    maximum, at, exists, weight = Counter(), Counter(), Counter(), Counter()
    queries = 0
    for sentence in found:
        for i, row in enumerate(sentence[head]):
            queries += 1
            offset = row.index(max(row)) - i
            name = "below" if offset < -4 else "above" if offset > 4 else str(offset)
            maximum[name] += 1
            for wanted in OFFSETS:
                if 0 <= i + wanted < attendable(i, len(row), causal):
                    exists[str(wanted)] += 1
                    weight[str(wanted)] += row[i + wanted]
                    at[str(wanted)] += offset == wanted
    names = [str(offset) for offset in OFFSETS]
    return {
        "maximum": {n: maximum[n] / queries for n in ["below", *names, "above"]},
        "share": {n: at[n] / exists[n] if exists[n] else None for n in names},
        "weight": {n: weight[n] / exists[n] if exists[n] else None for n in names},
    }


def diversity(found, causal):
    values = []
    for sentence in found:
        for i in range(len(sentence[0])):
            rows = [head[i] for head in sentence]
            n = attendable(i, len(rows[0]), causal)
            if n > 1:
                mixture = [sum(column) / len(rows) for column in zip(*rows, strict=True)]
                divergence = entropy(mixture) - sum(map(entropy, rows)) / len(rows)
                values.append(divergence / math.log(n))
    return mean(values)


def merging(found, head, words):
    """``words``: for each sentence, a list of words, each a list of positions."""
    every, split = [], []
    for sentence, of_sentence in zip(found, words, strict=True):
        rows = sentence[head]
        for places in of_sentence:
            if len(places) == 1:
                every.append(rows[places[0]][places[0]])
            else:
                score = max(sum(rows[i][j] for j in places if j != i) for i in places)
                every.append(score)
                split.append(score)
    return {"all": mean(every), "split": mean(split)}


def rare_word(found, head, ranks, limit):
    """``ranks``: for each sentence, the rank of each key's token, -1 for special symbols."""
    rarest, two = [], []
    for sentence, of_sentence in zip(found, ranks, strict=True):
        different = sorted({rank for rank in of_sentence if rank >= 0}, reverse=True)
        if not different or different[0] < limit:
            continue
        for row in sentence[head]:
            rank = of_sentence[row.index(max(row))]
            rarest.append(rank == different[0])
            two.append(rank in different[:2])
    return {"rarest": mean(rarest), "two_rarest": mean(two)}


def runs(row):
    """Lists of neighbouring positions with equal nonzero weight."""
    found = []
    for place, weight in enumerate(row):
        if weight == 0:
            continue
        if found and found[-1][-1] == place - 1 and row[place - 1] == weight:
            found[-1].append(place)
        else:
            found.append([place])
    return found


def clusters(row):
    """Lists of positions with equal nonzero weight, the largest weight first."""
    weights = sorted({weight for weight in row if weight > 0}, reverse=True)
    return [[place for place, other in enumerate(row) if other == weight] for weight in weights]


def equal_weights(found, head):
    """All four values of ``equal_weights``."""
    rows = [row for sentence in found for row in sentence[head]]

    def size(groups_of):
        return mean(len(group) for row in rows for group in groups_of(row))

    def weight(groups_of):
        return mean(
            sum(row[place] for group in groups_of(row) if len(group) > 1 for place in group)
            for row in rows
        )

    return {
        "run_length": size(runs),
        "run_weight": weight(runs),
        "cluster_size": size(clusters),
        "cluster_weight": weight(clusters),
    }
