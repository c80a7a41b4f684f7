"""What a measure is: one object that names, computes, writes and shows something of each head.

Importing this does not import torch; only computing a measure does."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from collections.abc import Mapping as Dictionary
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

from fairseq_entmax.analysis.importance import ByHead
from fairseq_entmax.analysis.measures.rows import LayerWeights, Sums

JsonSchema = dict[str, Any]
Fields = dict[str, Any]


@dataclass(frozen=True)
class Number:
    """One number of a head: how tables and the report name it, and where it is in a document.

    Attributes:
        name: as in the table of heads.
        title: as the page shows it.
        meaning: one sentence without its full stop.
        place: the keys that lead to it in the entry of a head.
        is_main: whether the page's list of heads has a column for it.
        in_summary: whether the table that ``analyze`` prints has a column for its mean.
        group: the group that it belongs to, such as one number for each offset; empty if it
            stands alone.
        range: the values at the ends of the colour scale; None: the smallest and largest value.
        of_layer: whether it is in the layer's entry, the same for all its heads.
        largest: its upper bound, 1 for a share; None without one.
        least: its lower bound; None without one.
    """

    name: str
    title: str
    meaning: str
    place: tuple[str, ...]
    is_main: bool = False
    in_summary: bool = False
    group: str = ""
    range: tuple[float, float] | None = None
    of_layer: bool = False
    largest: int | None = 1
    least: int | None = 0

    def of(self, head: Fields, layer: Fields) -> Any:
        """Return its value in the entry of a head, or in its layer's; None if it is absent."""
        value: Any = layer if self.of_layer else head
        for key in self.place:
            value = value.get(key) if isinstance(value, dict) else None
        return value

    def as_json(self) -> Fields:
        """Return its form in ``numbers`` of a document."""
        ends = self.range and list(self.range)
        return {**asdict(self), "place": list(self.place), "range": ends}


def declared(analysis: Dictionary[str, Any]) -> list[Number]:
    return [Number(**{**entry, "place": tuple(entry["place"])}) for entry in analysis["numbers"]]


class Measure:
    """Something that is measured of each head. A subclass's docstring describes it in the schema.

    Attributes:
        name: such as ``density``; also the name of its field, if it has only one.
        title, meaning, is_main, in_summary, is_of_layer, largest, least: of its :class:`Number`, if
            it has only one.
        source: the paper that it follows, with the section or figure; empty if there is none.
        settings: constants that it depends on, for ``settings`` of the document.
        is_optional: whether ``--measures`` lists it, and can leave it out.
    """

    name: ClassVar[str]
    title: ClassVar[str] = ""
    meaning: ClassVar[str] = ""
    source: ClassVar[str] = ""
    is_main: ClassVar[bool] = False
    in_summary: ClassVar[bool] = False
    is_of_layer: ClassVar[bool] = False
    largest: ClassVar[int | None] = 1
    least: ClassVar[int | None] = 0
    settings: ClassVar[dict[str, Any]] = {}
    is_optional: ClassVar[bool] = False

    @property
    def numbers(self) -> Sequence[Number]:
        """The numbers that tables and the report show for any analysis."""
        if not self.title:
            return ()
        return (
            Number(
                self.name.replace("_", "-"),
                self.title,
                self.meaning,
                (self.name,),
                self.is_main,
                self.in_summary,
                of_layer=self.is_of_layer,
                largest=self.largest,
                least=self.least,
            ),
        )

    def shown(self, analysis: Fields) -> Iterable[Number]:
        """Return the numbers to show for one analysis."""
        return self.numbers

    def fields(self) -> dict[str, JsonSchema]:
        """Return the fields of a head, each with its JSON Schema, which allows null.

        They are made from :attr:`numbers`: a number is a field itself, or one key of an object.
        A reader without this measure accepts only fields that its numbers are in."""
        return self._fields(of_layer=False)

    def layer_fields(self) -> dict[str, JsonSchema]:
        """Return the fields of one attention of a layer in the same way."""
        return self._fields(of_layer=True)

    def about(self) -> str:
        """Return the docstring on one line, with the source."""
        return self._sourced(" ".join((self.__doc__ or "").split()))

    def _sourced(self, text: str) -> str:
        return text.removesuffix(".") + (f" ({self.source})." if self.source else ".")

    def _fields(self, of_layer: bool) -> dict[str, JsonSchema]:
        fields: dict[str, JsonSchema] = {}
        for number in self.numbers:
            name, *inner = number.place
            text = number.meaning[0].upper() + number.meaning[1:]
            if number.of_layer != of_layer:
                continue
            if inner:
                shape = fields.setdefault(name, object_schema(self.about(), {}))
                shape["properties"][inner[0]] = number_schema(
                    f"{text}.", number.largest, number.least
                )
                shape["required"] = list(shape["properties"])
            else:
                fields[name] = number_schema(self._sourced(text), number.largest, number.least)
        return fields

    def of_heads(self, layer: Any) -> list[Fields] | None:
        """Return the fields of each head of a ``MeasuredLayer``; None if it was not measured."""
        raise NotImplementedError

    def of_layer(self, layer: Any, heads: Sequence[Fields]) -> Fields:
        """Return fields of one attention of a layer, given those of its heads; others are null."""
        return {}


class WeightMeasure(Measure):
    """A measure of attention weights, summed over the batches of one pass."""

    is_optional = True

    def update(self, weights: LayerWeights, sums: Sums) -> None:
        """Add a batch of one attention of one layer to this measure's sums for it."""
        raise NotImplementedError

    def result(self, sums: Sums, head: int) -> Fields:
        """Return the fields of a head. Not called if nothing was added.

        By default each of :attr:`numbers` is the mean of the sum with the last key of its place."""
        fields: Fields = {}
        for number in self.numbers:
            name, *inner = number.place
            if inner:
                fields.setdefault(name, {})[inner[0]] = sums.of(inner[0], head)
            elif not number.of_layer:
                fields[name] = sums.of(name, head)
        for name, value in fields.items():
            if isinstance(value, dict) and set(value.values()) == {None}:
                fields[name] = None
        return fields

    def of_heads(self, layer: Any) -> list[Fields] | None:
        sums = layer.statistics.sums.get(self.name)
        return [self.result(sums, head) for head in range(layer.statistics.heads)] if sums else None

    def of_layer(self, layer: Any, heads: Sequence[Fields]) -> Fields:
        sums = layer.statistics.sums.get(self.name) if layer.statistics else None
        names = (number.place[0] for number in self.numbers if number.of_layer)
        means = {name: sums.total_mean(name) for name in names} if sums else {}
        return {name: mean for name, mean in means.items() if mean is not None}


class ImportanceMeasure(Measure):
    """A head's importance to the model, as a share of its layer's, from passes of its own.

    Attributes:
        sentences: the number of sentences, evenly spread, without ``--NAME-sentences``.
        at_once: the largest number of sentences in a batch.
    """

    is_optional = True
    sentences: ClassVar[int]
    at_once: ClassVar[int] = 1

    @property
    def option(self) -> str:
        """The name of the number of sentences in parsed options and the document's settings."""
        return f"{self.name}_sentences"

    def check(self, model: Any) -> None:
        """Raise ValueError, with the reason, if it cannot be computed for a model."""

    def importance(self, model: Any, sample: Any) -> ByHead:
        """Return attention to layer to ``(n, heads)``: each head's importance in ``n`` samples.

        They are summed, and the standard error is computed over these samples. They should be
        sentences, which are chosen independently, not tokens, which are not.

        Args:
            model: in evaluation mode.
            sample: a batch as fairseq's data loader makes it.
        """
        raise NotImplementedError

    def of_heads(self, layer: Any) -> list[Fields] | None:
        shares = layer.importance.get(self.name)
        if shares is None:
            return None
        return [{self.name: share} for share in shares[layer.attention][layer.number].tolist()]


def number_schema(
    description: str, largest: float | None = 1, least: float | None = 0
) -> JsonSchema:
    """Return the schema of a number in a range, or null. Rounding may lift a share above 1."""
    if (least, largest) == (0, 1):
        return {"$ref": "#/$defs/share_or_null", "description": description}
    ends = {"minimum": least, "maximum": largest}
    bounds = {name: end for name, end in ends.items() if end is not None}
    return {"type": ["number", "null"], **bounds, "description": description}


def object_schema(description: str, properties: dict[str, JsonSchema]) -> JsonSchema:
    """Return the schema of an object with exactly these properties, or null."""
    shape = {"type": ["object", "null"], "additionalProperties": False}
    inner = {"required": list(properties), "properties": properties}
    return {**shape, "description": description, **inner}
