"""Whether weights of attention fit the sentences that they are measured as, padding above all.

Weights alone do not say which tokens are padding: a sparse head may leave out a real token, too. So
nothing is guessed. Where keys at an edge have no weight from any head, lengths are asked for; where
they are given, or a sample is, the weights must have none behind them.
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


def check_passes(attention: Attention, has_sample: bool) -> None:
    """Refuse what a recorder holds of a pass over something else than whole sentences.

    Args:
        attention: of a recorder, or any dictionary of weights.
        has_sample: whether the sentences are known.

    Raises:
        ValueError: it is of one step of incremental decoding, or the last of several passes.
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
    passes = getattr(attention, "unmeasured_passes", 0)
    if passes > 1 and not has_sample:
        raise ValueError(
            f"the recorder saw {passes} passes and holds the weights of the last alone: measure "
            f"after each pass, or give the sample of the last and its task"
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
    shown = ", ".join(str(one) for one in lengths.tolist()[:_SHOWN])
    more = ", …" * (len(lengths) > _SHOWN)
    return (
        f"in sentence {sentence} {what}, as where there is padding: give the sample and its task, "
        f"or {side}_lengths, how many {side} tokens of each sentence are real, here perhaps "
        f"[{shown}{more}], or the whole length where a head does leave them out"
    )
