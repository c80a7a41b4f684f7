"""What the values of options mean, whether a command, a YAML file or Python gives them."""

import re
from collections.abc import Callable
from typing import Any

from fairseq_entmax.mappings.factor import check_lr_factor
from fairseq_entmax.mappings.layers import LayerSpec, LayersSpec, parse_layers


def parse_layers_option(value: Any) -> LayersSpec:
    """Mappings as text, or as the list of texts, one for each layer, that a YAML file may have."""
    return parse_layers(mapping_text(value))


def parse_mapping_option(value: Any) -> list[LayerSpec]:
    """The mappings that :func:`parse_layers_option` finds."""
    return parse_layers_option(value).layers


def mapping_text(value: Any) -> str:
    """One text of mappings as text or a list of texts, not yet checked."""
    if isinstance(value, list | tuple):
        return ",".join(mapping_text(item) for item in value)
    if not isinstance(value, str):
        raise ValueError(f"a mapping must be a text such as 'entmax', not {value!r}")
    return value


def parse_head_counts(value: Any) -> list[int]:
    """Heads of each layer: ``"3,0,8"``, one number, or a list of numbers as YAML has it."""
    counts = parts(value)
    if not all(re.fullmatch("[0-9]{1,6}", count) for count in counts):
        raise ValueError(f"heads must be whole numbers of 0 or more, such as 3,0,8, not {value!r}")
    return [int(count) for count in counts]


def parts(value: Any) -> list[str]:
    """What commas separate, or a list as YAML has it."""
    split = value if isinstance(value, list | tuple) else str(value).split(",")
    return [str(part).strip() for part in split] or [""]


def whole_number(least: int, most: int) -> Callable[[Any], int]:
    """What checks a whole number in a range; text, or a number as YAML has it."""

    def check(value: Any) -> int:
        is_whole = re.fullmatch(r"\s*-?[0-9]{1,12}\s*", str(value))
        if isinstance(value, bool) or not is_whole or not least <= int(value) <= most:
            raise ValueError(
                f"must be a whole number from {least:,} to {most:,}, not {value!r:.100}"
            )
        return int(value)

    return check


def check_flag(value: Any) -> bool:
    """Whether an option is on; a text says neither."""
    if not isinstance(value, bool):
        raise ValueError(f"must be true or false, not {value!r}")
    return value


def check_factor(value: Any) -> float:
    """A factor of learning rates."""
    return check_lr_factor(value, "the factor")
