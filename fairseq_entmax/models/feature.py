"""An option, written once: its default, its check, its help; and a feature, which has some.

A feature is what a model may have beside fairseq's, such as gates: a dataclass of its options, what they
amount to beside the options of others, and what it adds to a model. A model lists its features.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import Field, dataclass, field, fields
from typing import Any, ClassVar, Self

from fairseq_entmax.mappings.factor import check_lr_factor
from fairseq_entmax.mappings.layers import LayerSpec, parse_mappings


@dataclass
class Feature:
    """What a model may have. Its fields made by :func:`option` hold what their values mean."""

    name: ClassVar[str]

    @classmethod
    def read(cls, args: Any) -> Self:
        """The feature as options say, each checked; those that are not given have their defaults."""
        return cls(**{entry.name: _value(entry, args) for entry in options_of([cls])})

    def fit(self, options: ModelOptions, args: Any) -> None:
        """Work out what the options amount to beside others, this package's and fairseq's, or refuse."""

    def attach(self, model: Any, args: Any) -> None:
        """Add what the feature is to a model that fairseq built."""

    def saved(self) -> dict[str, Any]:
        """Options that a checkpoint is to name, so that whoever loads it needs nothing else."""
        return {}

    def protected(self, attention: str, layer: int) -> tuple[int, ...]:
        """The heads of a layer that no gate may close."""
        return ()


class ModelOptions:
    """The options of one model, checked against each other.

    Attributes:
        attentions: those that the model has.
        features: the model's, by their names.
    """

    def __init__(
        self, args: Any, attentions: Sequence[str], features: Iterable[type[Feature]]
    ) -> None:
        self.attentions = tuple(attentions)
        self.features: dict[str, Any] = {one.name: one.read(args) for one in features}
        for feature in self.features.values():
            feature.fit(self, args)

    @property
    def specs(self) -> dict[str, list[LayerSpec]]:
        """The mapping of each attention, in each layer from the bottom."""
        return self.features["attention"].specs

    @property
    def heads(self) -> dict[str, list[int]]:
        """How many heads each attention has, in each layer from the bottom."""
        return self.features["attention"].heads

    @property
    def places(self) -> dict[str, int]:
        """How many heads the width of a layer has place for."""
        return self.features["attention"].places

    @property
    def mapping_defaults(self) -> dict[str, str]:
        """What a mapping's text is taken to say where it does not."""
        return self.features["attention"].mapping_defaults

    @property
    def output_alpha(self) -> float:
        """alpha of the mapping from scores of words to their probabilities; 1 is softmax."""
        return self.features["output"].output_alpha

    @property
    def copy(self) -> Any:
        """How the model copies; None where it does not."""
        return self.features.get("copy")

    @property
    def pooling(self) -> Any:
        """How the model pools words; None where it does not."""
        return self.features.get("pooling")


def option(
    default: Any,
    help: str,
    check: Callable[[Any], Any] | None = None,
    metavar: str | None = None,
    default_text: str | None = None,
) -> Any:
    """A field of a feature: true or false where it has no ``check``."""
    if default is not None and metavar is not None:
        default_text = str(default)
    shown = f" (default: {default_text})" if default_text else ""
    about = {"help": help + shown, "check": check or _check_flag, "metavar": metavar}
    return field(default=default, metadata=about)


def options_of(features: Iterable[type[Feature]]) -> Iterator[Field[Any]]:
    """The options of features."""
    for feature in features:
        yield from (entry for entry in fields(feature) if "check" in entry.metadata)


def option_name(option: str) -> str:
    """``alpha_init`` to ``--alpha-init``."""
    return "--" + option.replace("_", "-")


def _value(entry: Field[Any], args: Any) -> Any:
    value = getattr(args, entry.name, None)
    value = entry.default if value is None else value
    try:
        return None if value is None else entry.metadata["check"](value)
    except ValueError as error:
        raise ValueError(f"{option_name(entry.name)}: {error}") from None


def add_argument(parser: Any, entry: Field[Any]) -> None:
    """Add an option to an argparse parser or group. Defaults come from the architecture."""
    about = entry.metadata
    kind: dict[str, Any] = {"action": "store_true"}
    if about["metavar"] is not None:
        kind = {"metavar": about["metavar"], "type": _argument(about["check"])}
    parser.add_argument(option_name(entry.name), help=about["help"], **kind)


def _argument(check: Callable[[Any], Any]) -> Callable[[str], str]:
    """An argparse type that keeps the text and turns a ValueError into the parser's error."""

    def checked(text: str) -> str:
        try:
            check(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None
        return text

    return checked


def parse_mapping_option(value: Any) -> list[LayerSpec]:
    """Mappings as text, or as the list of texts, one for each layer, that a YAML file may have."""
    return parse_mappings(mapping_text(value))


def check_mapping(value: Any) -> str:
    """The text of what :func:`parse_mapping_option` takes."""
    parse_mapping_option(value)
    return mapping_text(value)


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


def check_factor(value: Any) -> float:
    """A factor of learning rates."""
    return check_lr_factor(value, "the factor")


def _check_flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"must be true or false, not {value!r}")
    return value
