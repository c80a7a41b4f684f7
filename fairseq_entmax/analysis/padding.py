"""Whether weights of attention fit the sentences that they are measured as, padding above all.

Weights alone do not say which tokens are padding: a sparse head may leave out a real token, too. So
nothing is guessed. Where keys at an edge have no weight from any head, lengths are asked for; where
they are given, or a sample is, the weights must have none behind them, and a head that gives weight
to everything else shows that they are too long.
"""

from __future__ import annotations

from collections.abc import Mapping as Dictionary

import torch
from torch import Tensor

from fairseq_entmax.analysis.batch import Batch
from fairseq_entmax.attentions import CROSS, DECODER_SELF, ENCODER_SELF

Attention = Dictionary[str, Dictionary[int, Tensor]]

_SIDES = {"source": (ENCODER_SELF, CROSS), "target": (DECODER_SELF,)}
_SHOWN = 12  # lengths in an error


def check_passes(attention: Attention, has_sample: bool, are_targets_known: bool = False) -> None:
    """Refuse what a recorder holds of a pass over something else than whole sentences.

    Args:
        attention: of a recorder, or any dictionary of weights.
        has_sample: whether the sentences are known.
        are_targets_known: whether it is said how long the targets are.

    Raises:
        ValueError: it is of one step of incremental decoding, or may be, or is the last of several
            passes.
    """
    steps = [
        tuple(weights.shape)
        for weights in attention.get(DECODER_SELF, {}).values()
        if weights.size(2) < weights.size(3)
    ]
    if steps or getattr(attention, "is_step", False):
        raise ValueError(
            "these weights are of the last step of incremental decoding, as translate, sample and "
            "generate decode, and of no whole sentence: use fairseq_entmax.analysis.look(model, "
            "text), or record a pass over the whole translation, model(**sample['net_input'])"
        )
    is_taken_out = not hasattr(attention, "is_step") and not attention.get(DECODER_SELF)
    if is_taken_out and not has_sample and not are_targets_known:
        _check_no_single_query(attention)
    passes = getattr(attention, "unmeasured_passes", 0)
    if passes > 1 and not has_sample:
        raise ValueError(
            f"the recorder saw {passes} passes and holds the weights of the last alone: measure "
            f"after each pass, or give the sample of the last and its task"
        )


def _check_no_single_query(attention: Attention) -> None:
    """Refuse weights of cross alone that may be those of a step, which nothing else shows.

    Raises:
        ValueError: it has one query and several keys.
    """
    for weights in attention.get(CROSS, {}).values():
        if weights.size(2) == 1 < weights.size(3):
            raise ValueError(
                f"the weights of {CROSS} have one query, as those of the last step of incremental "
                f"decoding, which are of no whole sentence: use fairseq_entmax.analysis.look(model, "
                f"text), or give target_lengths where targets do have one token"
            )


def check_causal(attention: Attention) -> None:
    """Refuse weights of a decoder on tokens that it has not read yet.

    Raises:
        ValueError: names the layer.
    """
    for layer, weights in attention.get(DECODER_SELF, {}).items():
        ahead = weights.triu(1).amax(dim=(1, 3)).nonzero()
        if len(ahead):
            sentence, query = ahead[0].tolist()
            raise ValueError(
                f"the weights of {DECODER_SELF}, layer {layer}, are not those of a decoder: in "
                f"sentence {sentence} query {query} has weight on keys behind it, which it cannot "
                f"see; weights of a model that reads both ways are {ENCODER_SELF}"
            )


def on_padding(
    attention: Attention, batch: Batch, of_real_queries: bool = True
) -> tuple[str, int, int] | None:
    """The first attention, layer and sentence where there is weight on padding, if any.

    Args:
        of_real_queries: leave out the weights of queries that are padding themselves.
    """
    for name, layers in attention.items():
        queries, keys = batch.sides(name)
        # (batch, 1, queries, keys)
        counted = queries.real | (not of_real_queries)
        hidden = counted[:, None, :, None] & ~keys.real[:, None, None, :]
        for layer, weights in layers.items():
            wrong = (weights.ne(0) & hidden).flatten(1).any(dim=1)
            if bool(wrong.any()):
                return name, layer, int(wrong.int().argmax())
    return None


def check_not_too_long(attention: Attention, batch: Batch) -> None:
    """Refuse lengths with padding in them, as far as weights show it.

    Keys at an edge without any weight may be what sparse heads leave out. They are padding where a
    head gives weight to every other key, in sentences of which nothing is left out, too.

    Args:
        attention: of the batch's shapes.
        batch: sentences of the lengths that were given.

    Raises:
        ValueError: names the lengths that fit.
    """
    sides = {"source": batch.source.real, "target": batch.target.real}
    used = {side: real & _between_weights(attention, side, real) for side, real in sides.items()}
    for side, real in sides.items():
        is_long = (used[side] != real).any(dim=1)
        is_whole = ~is_long & (real.sum(dim=1) > 1)
        if not bool(is_long.any()) or not bool(is_whole.any()):
            continue
        for name in _SIDES[side]:
            queries = used["source" if name == ENCODER_SELF else "target"]
            for layer, weights in attention.get(name, {}).items():
                seen = queries[:, None, :, None] & used[side][:, None, None, :]
                seen = seen.tril() if name == DECODER_SELF else seen
                dense = (weights.ne(0) | ~seen).transpose(0, 1).flatten(1).all(dim=1)
                if bool(dense.any()):
                    sentence, head = int(is_long.int().argmax()), int(dense.int().argmax())
                    raise ValueError(
                        f"{side}_lengths {_listed(real.sum(dim=1))} have padding in them: in "
                        f"sentence {sentence} some of so many keys have no weight from any query, "
                        f"and head {head} of {name}, layer {layer}, gives weight to all others: "
                        f"give the lengths without padding, here {_listed(used[side].sum(dim=1))}"
                    )


def _between_weights(attention: Attention, side: str, real: Tensor) -> Tensor:
    """Which keys stand between the first and the last that have weight: ``(batch, length)``."""
    layers = [one for name in _SIDES[side] for one in attention.get(name, {}).values()]
    if not layers:
        return real
    has_weight = torch.stack([one.ne(0).any(dim=2).any(dim=1) for one in layers]).any(dim=0).int()
    behind_first = has_weight.cumsum(dim=1) > 0
    return behind_first & (has_weight.flip(1).cumsum(dim=1).flip(1) > 0)


def check_no_padding(attention: Attention, source_known: bool, target_known: bool) -> None:
    """Refuse weights that may have padding, where nobody says how long the sentences are.

    Args:
        attention: of equal shapes in all layers of an attention.
        source_known, target_known: whether lengths are given.

    Raises:
        ValueError: keys at an edge, or queries, have no weight at all; or nothing shows where
            the targets end. Says what to give.
    """
    for side, is_known in (("source", source_known), ("target", target_known)):
        layers = [w for name in _SIDES[side] for w in attention.get(name, {}).values()]
        if is_known or not layers:
            continue
        left_out = torch.stack([one.eq(0).all(dim=2).all(dim=1) for one in layers]).all(dim=0)
        edges = {
            "first": left_out.int().cumprod(dim=1).sum(dim=1),
            "last": left_out.flip(1).int().cumprod(dim=1).sum(dim=1),
        }
        for edge, counts in edges.items():
            if bool(counts.any()):
                sentence = int(counts.gt(0).int().argmax())
                what = f"no query gives weight to the {edge} {int(counts[sentence])} of the keys"
                raise ValueError(_asked(side, sentence, what, left_out.size(1) - counts))
        own = [w for name in _SIDES[side][:1] for w in attention.get(name, {}).values()]
        for weights in own:
            empty = weights.eq(0).all(dim=3).any(dim=1)
            if bool(empty.any()):
                lengths = (~empty).sum(dim=1)
                sentence = int(empty.any(dim=1).int().argmax())
                number = int(empty[sentence].sum())
                what = f"{number} queries have no weight at all"
                raise ValueError(_asked(side, sentence, what, lengths))
    crosses = list(attention.get(CROSS, {}).values())
    if crosses and not target_known and not attention.get(DECODER_SELF):
        size, _, queries, _ = crosses[0].shape
        if size > 1 and queries > 1:
            raise ValueError(
                f"the weights of {CROSS} alone do not show where the targets of {size} sentences "
                f"end: give target_lengths, how many queries of each are no padding, or the sample "
                f"and its task"
            )


def _asked(side: str, sentence: int, what: str, lengths: Tensor) -> str:
    return (
        f"in sentence {sentence} {what}, as where there is padding: give the sample and its task, "
        f"or {side}_lengths, how many {side} tokens of each sentence are real, here perhaps "
        f"{_listed(lengths)}, or the whole length where a head does leave them out"
    )


def _listed(lengths: Tensor) -> str:
    shown = ", ".join(str(one) for one in lengths.tolist()[:_SHOWN])
    return f"[{shown}{', …' * (len(lengths) > _SHOWN)}]"
