"""Whether the weights in a checkpoint are those of the model that its settings describe.

The shapes of what is common to fairseq's Transformers, without building one; all of them are
compared where a model is built and takes them.
"""

from __future__ import annotations

import re
from argparse import Namespace
from collections.abc import Iterator
from collections.abc import Mapping as Dictionary
from typing import Any

import torch
from torch import Tensor, nn

from fairseq_entmax.attentions import CROSS, PLACES
from fairseq_entmax.checkpoints import MalformedCheckpointError, malformed, shortened
from fairseq_entmax.modules.pruning_state import PruningState

_STATE = "pruning_state."
# A shape: numbers, a name for a number that is the same wherever it is named, or None for any
_Shape = tuple[int | None, ...]


def check_tensors(weights: Any, path: str) -> None:
    """Refuse weights that are no tensors of numbers that are stored one by one.

    Args:
        weights: what a checkpoint has as ``model``.
        path: the file, for the message.

    Raises:
        MalformedCheckpointError: names the weight, what it is, and what it has to be.
    """
    if not isinstance(weights, Dictionary):
        raise malformed(path, "part 'model'", shortened(weights), "a dictionary of weights")
    for name, value in weights.items():
        if not isinstance(name, str):
            wanted = "a text such as decoder.layer_norm.weight"
            raise malformed(path, "name of a weight", shortened(name), wanted)
        if not isinstance(value, Tensor):
            raise malformed(path, f"weight {name}", shortened(value), "a tensor")
        if value.layout != torch.strided or value.is_quantized:
            raise malformed(path, f"weight {name}", "a sparse or quantised tensor", "a dense one")
        # Before anything is worked out of it: it would become as large as it says
        if value.numel() * value.element_size() > value.untyped_storage().nbytes():
            is_what = f"{value.numel():,} numbers, fewer of which are stored"
            raise malformed(path, f"weight {name}", is_what, "stored number by number")


def check_finite(weights: Dictionary[str, Tensor], path: str) -> None:
    """Refuse weights that are not numbers, of parameters by their names.

    Raises:
        MalformedCheckpointError: names the first, and the remedy.
    """
    for name, value in weights.items():
        # Not buffers, which may be masks, and one of fairseq's that is never filled
        is_parameter = name.endswith((".weight", ".bias")) or ".mapping." in name
        if is_parameter and not bool(value.isfinite().all()):
            raise MalformedCheckpointError(
                f"{path} has no finite number (NaN or infinite) in its weight {name}: its training "
                f"has diverged, take an earlier checkpoint"
            )


def check_attention(
    weights: Dictionary[str, Tensor],
    module: str,
    attention: str,
    heads: int,
    args: Namespace,
    path: str,
) -> None:
    """Refuse the projections of one attention that are not of so many heads.

    Args:
        weights: of the module, by their names in it.
        module: its path.
        attention: ``encoder-self``, ``decoder-self`` or ``cross``.
        heads: how many there are; without any, only what is left of its output is looked at.
        args: settings, with the defaults of the architecture.
        path: the file, for the message.

    Raises:
        MalformedCheckpointError: names the weight, its shape, and the one that it has to have.
    """
    side = PLACES[attention][0]
    width = getattr(args, f"{side}_embed_dim")
    rows = heads * (width // getattr(args, f"{side}_attention_heads"))
    shapes: dict[str, _Shape] = {"out_proj.bias": (width,)}
    if heads:
        shapes["out_proj.weight"] = (width, rows)
        of_keys = weights.get("k_proj.weight")
        memory = width
        if attention == CROSS and of_keys is not None and of_keys.dim() == 2:
            memory = of_keys.size(1)  # that of the encoder, whatever it is
        for part, columns in (("q", width), ("k", memory), ("v", memory)):
            shapes[f"{part}_proj.weight"] = (rows, columns)
            shapes[f"{part}_proj.bias"] = (rows,)
    _check_shapes(weights, shapes, f"{module}.", path)
    if "" in weights:
        raise malformed(
            path, f"weight {module}", _shape_text(weights[""]), "named like a parameter"
        )
    if not heads:
        return
    if "q_proj.weight" in weights and "in_proj_weight" in weights:
        wanted = "left out, where q_proj.weight and its like are there"
        what = _shape_text(weights["in_proj_weight"])
        raise malformed(path, f"weight {module}.in_proj_weight", what, wanted)
    for part in ("q_proj", "k_proj", "v_proj", "out_proj"):
        # Quantised ones have other names, and an old fairseq has them together
        is_there = any(name.startswith(f"{part}.") and name != f"{part}.bias" for name in weights)
        if not is_there and not any(name.startswith("in_proj") for name in weights):
            raise _missing(f"{module}.{part}.weight", path)
    # A bias is there with every projection, or with none
    biases = {f"{part}_proj.bias" for part in ("q", "k", "v", "out")}
    if 0 < len(biases & weights.keys()) < len(biases):
        raise _missing(f"{module}.{min(biases - weights.keys())}", path)


def check_rest(
    weights: Dictionary[str, Tensor], args: Namespace, sides: set[str], has_words: bool, path: str
) -> None:
    """Refuse other weights of a Transformer of fairseq's that have other shapes, or that are missing.

    Args:
        weights: all of the checkpoint.
        args: settings, with the defaults of the architecture.
        sides: which of ``encoder`` and ``decoder`` the model has.
        has_words: whether each side is known to have an embedding of words.
        path: the file, for the message.

    Raises:
        MalformedCheckpointError: names the weight, its shape, and the one that it has to have.
    """
    for side in sorted(sides):
        width, inner = getattr(args, f"{side}_embed_dim"), getattr(args, f"{side}_ffn_embed_dim")
        norms = ("self_attn_layer_norm", "encoder_attn_layer_norm", "final_layer_norm")
        in_layer: dict[str, _Shape] = {
            "fc1.weight": (inner, width),
            "fc1.bias": (inner,),
            "fc2.weight": (width, inner),
            "fc2.bias": (width,),
            **{f"{norm}.{name}": (width,) for norm in norms for name in ("weight", "bias")},
        }
        of_layers = _layers(weights, f"{side}.layers.")
        for layer, own in of_layers.items():
            _check_shapes(own, in_layer, f"{side}.layers.{layer}.", path)
        # Attentions without heads have lost some of theirs
        names = {
            layer: {name for name in own if "_attn" not in name} for layer, own in of_layers.items()
        }
        # But not one half of what norms them
        for layer, own in of_layers.items():
            for name in {name.rpartition(".")[0] for name in own if "_attn_layer_norm." in name}:
                for half in ("weight", "bias"):
                    if f"{name}.{half}" not in own:
                        raise _missing(f"{side}.layers.{layer}.{name}.{half}", path)
        every = set[str]().union(*names.values())
        for layer in sorted(names):
            for name in sorted(every - names[layer]):
                raise _missing(f"{side}.layers.{layer}.{name}", path)
        of_side: dict[str, _Shape] = {
            "embed_tokens.weight": (None, _word_width(weights, args, side)),
            "version": (1,),
            "embed_positions.weight": (None, None),
            # A row for each word, as the embedding of this side has
            "output_projection.weight": (_rows(weights, f"{side}.embed_tokens.weight"), None),
            "project_in_dim.weight": (width, None),
            "project_out_dim.weight": (None, width),
            **{f"layer_norm.{name}": (width,) for name in ("weight", "bias")},
        }
        own = {k.removeprefix(f"{side}."): v for k, v in weights.items() if k.startswith(side)}
        _check_shapes(own, of_side, f"{side}.", path)
        if has_words and not any(name.startswith("embed_tokens.") for name in own):
            raise _missing(f"{side}.embed_tokens.weight", path)
    state = {k.removeprefix(_STATE): v for k, v in weights.items() if k.startswith(_STATE)}
    for name, buffer in PruningState().named_buffers():
        is_float, shape = buffer.is_floating_point(), {name: tuple(buffer.shape)}
        _check_shapes(state, shape, _STATE, path, floats=is_float)
        value = state.get(name)
        if not is_float and value is not None and value.dtype != buffer.dtype:
            wanted = f"like {_shape_text(buffer)}"
            raise malformed(path, f"weight {_STATE}{name}", _shape_text(value), wanted)


def check_others(
    weights: Dictionary[str, Tensor], shapes: Dictionary[str, _Shape], path: str
) -> None:
    """Refuse a model's own weights, beside its Transformer's, that are missing or of other shapes.

    Args:
        weights: all of the checkpoint.
        shapes: of the weights that have to be there, by name; None in one stands for any number.
        path: the file, for the message.

    Raises:
        MalformedCheckpointError: names the weight, its shape, and the one that it has to have.
    """
    for name in shapes:
        if name not in weights:
            raise _missing(name, path)
    _check_shapes(weights, shapes, "", path)


def load_part(module: nn.Module, weights: dict[str, Tensor], prefix: str, path: str) -> None:
    """Give a mapping or gates what a checkpoint has of them.

    Args:
        module: gets the weights.
        weights: by their names in the module.
        prefix: of the names in the checkpoint.
        path: the file, for the message.

    Raises:
        MalformedCheckpointError: names the weight, what it is, and what it has to be.
    """
    own = module.state_dict()
    for name, value in weights.items():
        wanted = own.get(name)
        if wanted is None:
            continue
        is_float = wanted.is_floating_point()
        if (
            value.shape != wanted.shape
            # Half and double precision are stored as such, whole numbers as they are
            or (value.dtype != wanted.dtype and not (value.is_floating_point() and is_float))
        ):
            raise malformed(
                path, f"weight {prefix}{name}", _shape_text(value), f"like {_shape_text(wanted)}"
            )
    if not weights and not list(module.parameters()):
        return
    try:
        module.load_state_dict(dict(weights))
    except RuntimeError as error:
        names = re.findall(r'"([^"]+)"', str(error))
        kind = "other weights" if "Unexpected" in str(error) else "not all weights"
        raise MalformedCheckpointError(
            f"{path} is malformed: it has {kind} of {prefix.rstrip('.')} ({', '.join(names)}) than "
            f"its settings say; take another checkpoint of the training, or have its owner save "
            f"it again"
        ) from error
    except ValueError as error:
        raise MalformedCheckpointError(f"{path} is malformed: {error}") from error


def _word_width(weights: Dictionary[str, Tensor], args: Namespace, side: str) -> int:
    """The width of the embedding of words, which may be projected to that of the layers."""
    width: int = getattr(args, f"{side}_embed_dim")
    words = getattr(args, f"{side}_input_dim", None)
    is_projected = f"{side}.project_in_dim.weight" in weights
    return words if is_projected and isinstance(words, int) else width


def _rows(weights: Dictionary[str, Tensor], name: str) -> int | None:
    """How many rows a weight has; None where it is not there, or has none."""
    value = weights.get(name)
    return value.size(0) if value is not None and value.dim() else None


def _shape_text(value: Tensor) -> str:
    """The type and the shape of a tensor, for a sentence."""
    return f"{str(value.dtype).removeprefix('torch.')} {tuple(value.shape)}"


def _layers(weights: Dictionary[str, Tensor], prefix: str) -> dict[int, dict[str, Tensor]]:
    layers: dict[int, dict[str, Tensor]] = {}
    for key, value in weights.items():
        number, _, name = key.removeprefix(prefix).partition(".")
        if key.startswith(prefix) and number.isdecimal():
            layers.setdefault(int(number), {})[name] = value
    return layers


def _check_shapes(
    weights: Dictionary[str, Tensor],
    shapes: Dictionary[str, _Shape],
    prefix: str,
    path: str,
    floats: bool = True,
) -> None:
    """Refuse weights of these names and other shapes; what is not there is not looked at."""
    for name, value, shape in _named(weights, shapes):
        is_shape = value.dim() == len(shape) and all(
            wanted in (None, size) for wanted, size in zip(shape, value.shape, strict=True)
        )
        is_filled = value.numel() > 0 or 0 in shape
        if not is_shape or not is_filled or (floats and not value.is_floating_point()):
            sizes = ", ".join("any" if size is None else str(size) for size in shape)
            wanted_text = f"({sizes}{',' * (len(shape) == 1)})" + " of floating point" * floats
            raise malformed(
                path,
                f"weight {prefix}{name}",
                _shape_text(value),
                f"{wanted_text}, by its settings",
            )


def _named(
    weights: Dictionary[str, Tensor], shapes: Dictionary[str, _Shape]
) -> Iterator[tuple[str, Tensor, _Shape]]:
    for name, shape in shapes.items():
        if name in weights:
            yield name, weights[name], shape


def _missing(name: str, path: str) -> MalformedCheckpointError:
    return MalformedCheckpointError(
        f"{path} is malformed: it has no weight {name}, which the model of its settings has; take "
        f"another checkpoint of the training, or have its owner save it again"
    )
