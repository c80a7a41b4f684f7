"""An option, written once: its default, its check, its help; and a feature, which has some.

A feature is what a model may have beside fairseq's, such as gates: a dataclass of its options, what they
amount to beside the options of others, and what it adds to a model. A model lists its features.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import Field, dataclass, field, fields
from typing import Any, ClassVar, Self

from fairseq_entmax.mappings.layers import LayerSpec
from fairseq_entmax.models import values


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

    def recorded_options(self) -> dict[str, Any]:
        """Options that a checkpoint is to name, so that whoever loads it needs nothing else."""
        return {}

    def protected(self, attention: str, layer: int) -> tuple[int, ...]:
        """The heads of a layer that no gate may close."""
        return ()


class ModelOptions:
    """The options of one model, checked against each other."""

    def __init__(
        self, args: Any, attentions: Sequence[str], features: Iterable[type[Feature]]
    ) -> None:
        self.attentions = tuple(attentions)
        self.features: dict[str, Any] = {one.name: one.read(args) for one in features}
        attention = self.features["attention"]
        # Of each attention in each layer, from the bottom
        self.specs: dict[str, list[LayerSpec]] = attention.specs
        self.heads: dict[str, list[int]] = attention.heads
        self.places: dict[str, int] = attention.places  # for heads in the width of a layer
        # What a mapping's text is taken to say where it does not
        self.mapping_defaults: dict[str, Any] = attention.mapping_defaults
        self.copy = self.features.get("copy")
        for feature in self.features.values():
            feature.fit(self, args)
        # Of the mapping from scores of words to their probabilities; 1 is softmax
        self.output_alpha: float = getattr(self.features.get("output"), "output_alpha", 1.0)


def option(
    default: Any,
    help: str | Callable[[], str],
    check: Callable[[Any], Any] | None = None,
    metavar: str | None = None,
    default_text: str | None = None,
) -> Any:
    """A field of a feature: true or false where it has no ``check``. ``help`` is text, or makes it."""
    if default is not None and metavar is not None:
        default_text = str(default)
    shown = f" (default: {default_text})" if default_text else ""
    about = {"help": help, "shown": shown, "check": check or values.check_flag, "metavar": metavar}
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
    """Add an option to an argparse parser or group, as text. Defaults come from the architecture."""
    about, is_flag = entry.metadata, entry.metadata["metavar"] is None
    settings = {"action": "store_true"} if is_flag else {"metavar": about["metavar"]}
    help = about["help"]() if callable(about["help"]) else about["help"]
    parser.add_argument(option_name(entry.name), help=help + about["shown"], **settings)
