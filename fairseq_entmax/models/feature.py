"""Options, each defined once with its default, check and help; and features, which group them.

A feature is an addition to fairseq's models, such as gates. It is a dataclass of options, which it
checks against those of other features, and it changes the model. A model lists its features.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import Field, dataclass, field, fields
from typing import Any, ClassVar, Self

from fairseq_entmax.mappings.layers import LayerSpec
from fairseq_entmax.models import values


@dataclass
class Feature:
    """An addition to a model. Fields made by :func:`option` hold the parsed values of options."""

    name: ClassVar[str]

    @classmethod
    def read(cls, args: Any) -> Self:
        """Make the feature from options, each checked; an option not given has its default."""
        return cls(**{entry.name: _value(entry, args) for entry in options_of([cls])})

    def fit(self, options: ModelOptions, args: Any) -> None:
        """Combine the options with this package's others and fairseq's; ValueError on a conflict."""

    def attach(self, model: Any, args: Any) -> None:
        """Add the feature to a model that fairseq has built."""

    def recorded_options(self) -> dict[str, Any]:
        """Options to record in checkpoints, so that loading one needs no other options."""
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
        # By attention, for each layer from the bottom
        self.specs: dict[str, list[LayerSpec]] = attention.specs
        self.heads: dict[str, list[int]] = attention.heads
        self.places: dict[str, int] = attention.places  # heads that a layer's width has room for
        # Values of the parameters that a mapping's text leaves out
        self.mapping_defaults: dict[str, Any] = attention.mapping_defaults
        self.copy = self.features.get("copy")
        for feature in self.features.values():
            feature.fit(self, args)
        # alpha of the mapping from word scores to probabilities; 1 is softmax
        self.output_alpha: float = getattr(self.features.get("output"), "output_alpha", 1.0)


def option(
    default: Any,
    help: str | Callable[[], str],
    check: Callable[[Any], Any] | None = None,
    metavar: str | None = None,
    default_text: str | None = None,
) -> Any:
    """A field of a feature; a flag if it has no ``check``. ``help`` is a text, or returns one."""
    if default is not None and metavar is not None:
        default_text = str(default)
    shown = f" (default: {default_text})" if default_text else ""
    about = {"help": help, "shown": shown, "check": check or values.check_flag, "metavar": metavar}
    return field(default=default, metadata=about)


def options_of(features: Iterable[type[Feature]]) -> Iterator[Field[Any]]:
    """The fields of features that are options."""
    for feature in features:
        yield from (entry for entry in fields(feature) if "check" in entry.metadata)


def option_name(option: str) -> str:
    """Turn ``alpha_init`` into ``--alpha-init``."""
    return "--" + option.replace("_", "-")


def _value(entry: Field[Any], args: Any) -> Any:
    value = getattr(args, entry.name, None)
    value = entry.default if value is None else value
    try:
        return None if value is None else entry.metadata["check"](value)
    except ValueError as error:
        raise ValueError(f"{option_name(entry.name)}: {error}") from None
