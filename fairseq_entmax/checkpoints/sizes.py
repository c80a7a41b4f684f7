"""Sizes of a model in a checkpoint's settings, against the weights in the same file.

A number in the settings decides how much memory is filled before a weight is looked at.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator
from collections.abc import Mapping as Dictionary
from typing import Any

import torch
from torch import Tensor

from fairseq_entmax.checkpoints.errors import TRUST, UnsafeCheckpointError, shortened
from fairseq_entmax.checkpoints.literals import read_literal

# What is allowed where the file's weights are small or of other shapes: fairseq fills in
# settings that a model does not use, and layers may be left out of the weights
MOST_LAYERS = 200
MOST_WIDTH = 16_384
# Of a Transformer's parameters: as many times those in the file, and so many beside (512 MiB)
MOST_GROWTH = 8
MOST_BESIDE = 2**27

_WIDTH = re.compile(r"(^|_)(dim|heads|channels|hidden|hidden_size|filters)$")
_LAYERS = re.compile(r"(^|_)layers$")


def check_sizes(settings: Iterable[tuple[str, Any]], weights: Any, path: str) -> None:
    """Refuse numbers of layers, and widths, that the weights in the file do not bear out.

    Args:
        settings: names and values, of all parts of the settings.
        weights: what the file has as ``model``.
        path: the file, for the message.

    Raises:
        UnsafeCheckpointError: names the setting and its value.
    """
    held = _held(weights)
    widest = max((width for width, _ in held), default=0)
    most = {"layers": max(MOST_LAYERS, len(held)), "width": max(MOST_WIDTH, 2 * widest)}
    for name, value in settings:
        for kind, number in _sizes(name, value):
            if not -most[kind] <= number <= most[kind]:
                raise UnsafeCheckpointError(
                    f"refused to load {path}: its setting {name} = {shortened(value)} asks for a "
                    f"model much larger than the weights in the file, at most {most[kind]:,} "
                    f"could be; nothing was built. {TRUST}"
                )


def check_transformer(settings: Dictionary[Any, Any], weights: Any, path: str) -> None:
    """Refuse a Transformer that would have many more parameters than the file.

    Args:
        settings: those of the model, flat or with a group for each side; what is not in them
            counts as in fairseq's base architecture.
        weights: what the file has as ``model``.
        path: the file, for the message.

    Raises:
        UnsafeCheckpointError: names the settings.
    """
    held = sum(number for _, number in _held(weights))
    for side, place in (("encoder", "source"), ("decoder", "target")):
        group = settings.get(side)
        group = dict(group) if isinstance(group, Dictionary) else {}
        group |= {
            str(name).removeprefix(f"{side}_"): value
            for name, value in settings.items()
            if str(name).startswith(f"{side}_")
        }
        layers = _whole(group.get("layers"), 6)
        if isinstance(group.get("layers_to_keep"), str):
            layers = min(layers, group["layers_to_keep"].count(",") + 1)
        width = _whole(group.get("embed_dim"), 512)
        inner = _whole(group.get("ffn_embed_dim"), 2048)
        positions = _whole(settings.get(f"max_{place}_positions"), 1024)
        asked = layers * (4 * width * width + 2 * width * inner) + positions * width
        if asked > MOST_GROWTH * held + MOST_BESIDE:
            raise UnsafeCheckpointError(
                f"refused to load {path}: its settings {side}_layers = {layers:,}, "
                f"{side}_embed_dim = {width:,}, {side}_ffn_embed_dim = {inner:,} and "
                f"max_{place}_positions = {positions:,} ask for a model much larger than the "
                f"{held:,} weights in the file; nothing was built. {TRUST}"
            )


def _sizes(name: str, value: Any) -> Iterator[tuple[str, float]]:
    """The sizes that a setting gives, each as a kind and a number.

    Lists of layers, such as ``[(512, 3)] * 20``, give their length and the widths in them.
    """
    if not (_WIDTH.search(name) or _LAYERS.search(name)) or isinstance(value, bool):
        return
    value = _read(value)
    if isinstance(value, int | float):
        yield ("layers" if _LAYERS.search(name) else "width"), _finite(value)
    elif isinstance(value, list | tuple):
        yield "layers", len(value)
        for number in _numbers(value):
            yield "width", _finite(number)


def _numbers(value: Any) -> Iterator[float]:
    if isinstance(value, list | tuple):
        for entry in value:
            yield from _numbers(entry)
    elif isinstance(value, int | float):
        yield value


def _read(value: Any) -> Any:
    if isinstance(value, str):
        try:
            return read_literal(value)
        except ValueError:
            return None  # no size
    return value


def _whole(value: Any, default: int) -> int:
    """The setting as a whole number; the default where it is none."""
    value = _read(value)
    if not isinstance(value, int | float) or not math.isfinite(value):
        return default
    return max(0, int(value))


def _finite(value: float) -> float:
    return value if math.isfinite(value) else math.inf


def _held(weights: Any) -> list[tuple[int, int]]:
    """The widest dimension, and how many numbers, of each storage that the weights are in.

    A weight may repeat what is stored, and share it with others: its shape costs nothing, so
    neither exceeds what is stored.
    """
    held: dict[int, tuple[int, int]] = {}
    for weight in weights.values() if isinstance(weights, Dictionary) else ():
        if not isinstance(weight, Tensor) or weight.layout != torch.strided:
            continue
        storage = weight.untyped_storage()
        stored = storage.nbytes() // weight.element_size()
        if stored and weight.numel():
            width, number = held.get(storage.data_ptr(), (0, 0))
            width = max(width, min(stored, max(weight.shape, default=1)))
            held[storage.data_ptr()] = width, min(stored, number + weight.numel())
    return list(held.values())
