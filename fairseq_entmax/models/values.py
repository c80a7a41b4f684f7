"""Parsers and checks of option values, whether from a command, a YAML file or Python."""

import re
from collections.abc import Callable
from typing import Any

from omegaconf import ListConfig

from fairseq_entmax.mappings.factor import check_lr_factor
from fairseq_entmax.mappings.layers import LayersSpec, parse_layers

_LISTS = list | tuple | ListConfig


def parse_layers_option(value: Any) -> LayersSpec:
    """Parse mappings from a text, or from a list of texts, one per layer, as YAML allows."""
    return parse_layers(mapping_text(value))


def mapping_text(value: Any) -> str:
    """Join mappings, given as a text or a list of texts, into one text that is not yet parsed."""
    if isinstance(value, _LISTS):
        return ",".join(mapping_text(item) for item in value)
    if not isinstance(value, str):
        raise ValueError(f"a mapping must be a text such as 'entmax', not {value!r}")
    return value


def parse_head_counts(value: Any) -> list[int]:
    """Parse the heads of each layer from ``"3,0,8"``, one number, or a list, as in YAML."""
    counts = parts(value)
    if not all(re.fullmatch("[0-9]{1,6}", count) for count in counts):
        raise ValueError(f"heads must be whole numbers of 0 or more, such as 3,0,8, not {value!r}")
    return [int(count) for count in counts]


def parts(value: Any) -> list[str]:
    """The parts of a comma-separated text, or the entries of a list, as in YAML."""
    split = value if isinstance(value, _LISTS) else str(value).split(",")
    return [str(part).strip() for part in split] or [""]


def whole_number(least: int, most: int) -> Callable[[Any], int]:
    """Make a check for a whole number in a range, given as text or, as in YAML, a number."""

    def check(value: Any) -> int:
        is_whole = re.fullmatch(r"\s*-?[0-9]{1,12}\s*", str(value))
        if isinstance(value, bool) or not is_whole or not least <= int(value) <= most:
            raise ValueError(
                f"must be a whole number from {least:,} to {most:,}, not {value!r:.100}"
            )
        return int(value)

    return check


def check_flag(value: Any) -> bool:
    """Return a bool unchanged; raise ValueError for anything else, such as a text."""
    if not isinstance(value, bool):
        raise ValueError(f"must be true or false, not {value!r}")
    return value


def check_factor(value: Any) -> float:
    return check_lr_factor(value, "the factor")
