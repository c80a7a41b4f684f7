"""The heads that a model copies by, once heads are taken out of it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from fairseq_entmax.attentions import CROSS
from fairseq_entmax.head_names import Head
from fairseq_entmax.models.copy_config import CopyConfig, copy_options
from fairseq_entmax.models.saved import SavedModel


def copy_of_kept(
    model: SavedModel, kept: Sequence[int], gates: Sequence[float], copy_heads_too: bool
) -> dict[str, str]:
    """The options of the copy of a model with these heads in the layer that it copies by.

    Args:
        model: it copies.
        kept: heads of that layer, in order.
        gates: of all its heads.
        copy_heads_too: whether some of the copy heads may be missing.

    Raises:
        ValueError: a copy head is missing and may not, or all are; says which and what to do.
    """
    copy = model.options.copy
    assert copy is not None
    left = [head for head in copy.heads if head in kept]
    gone = [head for head in copy.heads if head not in kept]
    if gone and not (left and copy_heads_too):
        raise _copy_head_lost(model, left, gone, all(gates[head] > 0 for head in gone))
    renumbered = replace(copy, heads=tuple(kept.index(head) for head in left))
    return copy_options(renumbered, CopyConfig.of(model.args))


def _copy_head_lost(
    model: SavedModel, left: Sequence[int], gone: Sequence[int], is_named: bool
) -> ValueError:
    assert model.options.copy is not None
    layer = model.options.copy.layer
    lost, names = _names(layer, gone), _names(layer, left)
    remedy = "leave it out of --heads" if is_named else "train its gates without --gate-copy-heads"
    if not left:
        return ValueError(
            f"{model.path} copies by {lost} alone, without which it could not copy: {remedy}"
        )
    return ValueError(
        f"{model.path} copies by the mean of {_names(layer, sorted([*left, *gone]))}, and {lost} "
        f"would go: {remedy}, or have it copy by {names} alone with --copy-heads-too"
    )


def _names(layer: int, heads: Iterable[int]) -> str:
    return ", ".join(str(Head(CROSS, layer, head)) for head in heads)
