"""Whether the settings in a checkpoint are of the types that its model's options have."""

from __future__ import annotations

import functools
import math
from argparse import ArgumentParser, Namespace
from collections.abc import Mapping as Dictionary
from typing import Any, NamedTuple

from fairseq.models import ARCH_CONFIG_REGISTRY

from fairseq_entmax.checkpoints import malformed, shortened
from fairseq_entmax.models.config import DEFAULTS

_WORDS = {
    int: "a whole number",
    float: "a number",
    str: "a text",
    bool: "true or false",
}
# Without which there is no Transformer of that side: 1 or more
_SIZES = ("layers", "embed_dim", "ffn_embed_dim", "attention_heads")


class _Option(NamedTuple):
    """What a setting has to be.

    Attributes:
        kind: one of :data:`_WORDS`.
        may_lack: whether None is one of its values.
        choices: the values there are; empty for any.
        default: that of the architecture, which fits whatever its type is.
    """

    kind: type
    may_lack: bool
    choices: tuple[Any, ...]
    default: Any


def check_types(
    settings: Dictionary[str, Any], model_class: Any, architecture: str, path: str
) -> None:
    """Refuse settings of other types than the options of a model have.

    What the options of this package mean is checked where they are read, in
    :mod:`fairseq_entmax.models.options`; this is for fairseq's, which it takes as they are.

    Args:
        settings: of the checkpoint's model, without defaults.
        model_class: what builds it.
        architecture: of ``model_class``, for the defaults.
        path: the file, for the message.

    Raises:
        MalformedCheckpointError: names the setting, what it is, and what it has to be.
    """
    for name, option in _options(model_class, architecture).items():
        if name not in settings:
            continue
        wanted = _fault(name, settings[name], option)
        if wanted is not None:
            raise malformed(path, f"setting {name}", shortened(settings[name]), wanted)
    for side in ("encoder", "decoder"):
        _check_kept(settings.get(f"{side}_layers_to_keep"), side, path)


def check_sides(args: Namespace, sides: set[str], path: str) -> None:
    """Refuse sizes of a Transformer that leave it nothing, or heads that do not share its width.

    Args:
        args: settings, with the defaults of the architecture.
        sides: which of ``encoder`` and ``decoder`` the model has.

    Raises:
        MalformedCheckpointError: names the setting, what it is, and what it has to be.
    """
    for side in sorted(sides):
        for name in (f"{side}_{size}" for size in _SIZES):
            value = getattr(args, name, None)
            if type(value) is not int or value < 1:
                wanted = "a whole number of 1 or more"
                raise malformed(path, f"setting {name}", shortened(value), wanted)
        width, heads = getattr(args, f"{side}_embed_dim"), getattr(args, f"{side}_attention_heads")
        if width % heads:
            wanted = f"a divisor of {side}_embed_dim, {width:,}"
            raise malformed(path, f"setting {side}_attention_heads", f"{heads:,}", wanted)


def _check_kept(kept: Any, side: str, path: str) -> None:
    if kept is None or kept == "":
        return
    numbers = kept.split(",") if isinstance(kept, str) else kept
    is_read = isinstance(numbers, list | tuple) and all(
        type(number) is int or (isinstance(number, str) and number.strip().isdecimal())
        for number in numbers
    )
    layers = [int(number) for number in numbers] if is_read else []
    if not layers or layers != sorted(set(layers)) or layers[0] < 0:
        wanted = "numbers of layers, from 0 and ascending, such as 0,2,4"
        raise malformed(path, f"setting {side}_layers_to_keep", shortened(kept), wanted)


@functools.cache
def _options(model_class: Any, architecture: str) -> dict[str, _Option]:
    """The options whose types are known: those of fairseq's, and flags."""
    parser = ArgumentParser(add_help=False, conflict_handler="resolve")
    model_class.add_args(parser)
    defaults = Namespace(arch=architecture, save_dir=None, no_save=True)
    ARCH_CONFIG_REGISTRY[architecture](defaults)
    options = {}
    for action in parser._actions:
        default = getattr(defaults, action.dest, None)
        is_flag = action.nargs == 0 and isinstance(action.const, bool)
        kind: Any = bool if is_flag else action.type
        if kind is None and action.nargs is None:
            kind = type(default)
        if action.dest not in DEFAULTS and kind in _WORDS:
            may_lack = default is None or is_flag
            options[action.dest] = _Option(kind, may_lack, tuple(action.choices or ()), default)
    return options


def _fault(name: str, value: Any, option: _Option) -> str | None:
    """What a value should be; None where it is that."""
    if value is None:
        return None if option.may_lack else _WORDS[option.kind]
    if type(value) is type(option.default) and value == option.default:
        return None
    if option.kind is float:
        is_number = type(value) in (int, float) and math.isfinite(value)
        if name.endswith(("dropout", "layerdrop")) and not (is_number and 0 <= value <= 1):
            return "a number from 0 to 1"
        return None if is_number else "a number, finite"
    # fairseq has False for 0 in places, and 1 for True
    is_switch = option.kind in (int, bool) and type(value) in (int, bool) and value in (0, 1)
    is_size = name.endswith(_SIZES) and name.startswith(("encoder_", "decoder_"))
    if type(value) is not option.kind and (is_size or not is_switch):
        return _WORDS[option.kind]
    if is_size and isinstance(value, int) and value < 1:
        return "a whole number of 1 or more"
    if option.choices and value not in option.choices:
        return f"one of {', '.join(map(str, option.choices))}"
    return None
