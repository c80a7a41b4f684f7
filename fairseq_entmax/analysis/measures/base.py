"""What a measure is: how it is called, worked out, written and shown, all in one object.

Light: what names a measure is there without torch, which only the work itself imports."""

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
    """One number of a head: what tables and the report call it, and where it stands.

    Attributes:
        name: as ``--measure`` of the report has it.
        title: as the page shows it.
        meaning: one sentence without its full stop.
        place: the keys that lead to it in a head of the analysis.
        is_main: whether the page's list of heads has a column of it.
        in_summary: whether the table that ``analyze`` prints has a column of its mean.
        group: what it is one of many of, such as one for each offset; empty for those that
            stand alone.
        range: what the ends of the colours stand for; None takes the smallest and the largest.
        of_layer: whether it stands in the layer, the same for all its heads.
        largest: 1 for a share; None for any number from ``least`` on.
        least: None for any number down to what there is.
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
        """What a head of an analysis has there, in its own entry or its layer's; or None."""
        value: Any = layer if self.of_layer else head
        for key in self.place:
            value = value.get(key) if isinstance(value, dict) else None
        return value

    def as_json(self) -> Fields:
        """As ``numbers`` of a document has it."""
        ends = self.range and list(self.range)
        return {**asdict(self), "place": list(self.place), "range": ends}


def declared(analysis: Dictionary[str, Any]) -> list[Number]:
    """The numbers that a document says it has."""
    return [Number(**{**entry, "place": tuple(entry["place"])}) for entry in analysis["numbers"]]


class Measure:
    """What is known of each head by one name. The document says what a subclass's docstring says.

    Attributes:
        name: such as ``density``; also that of its field, where it has but one.
        title, meaning, is_main, in_summary, is_of_layer, largest: of its :class:`Number`, where it
            is of one alone.
        source: the paper it follows, with the place in it; empty where there is none.
        settings: constants that it depends on, for ``settings`` of the document.
        is_optional: whether ``--measures`` has it, and can leave it out.
        is_in_all: whether every document of the format's version has it, where it cannot be left
            out; those of releases before a measure came do not.
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
    is_in_all: ClassVar[bool] = True

    @property
    def numbers(self) -> Sequence[Number]:
        """What tables and the report show of it in any analysis."""
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
        """What there is to show of it in one analysis."""
        return self.numbers

    def fields(self) -> dict[str, JsonSchema]:
        """The fields of a head, each with its JSON Schema, which allows null.

        Made from :attr:`numbers`: each stands in the field itself, or in an object of several.
        A reader without this measure knows the fields that its numbers are in, and no others."""
        return self._fields(of_layer=False)

    def layer_fields(self) -> dict[str, JsonSchema]:
        """Likewise the fields of one attention of a layer."""
        return self._fields(of_layer=True)

    def about(self) -> str:
        """What the docstring says of it, and its source."""
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
        """The fields of each head of a ``MeasuredLayer``; None where it was not made."""
        raise NotImplementedError

    def of_layer(self, layer: Any, heads: Sequence[Fields]) -> Fields:
        """The fields of one attention of a layer with those of its heads; what is not there is null."""
        return {}


class WeightMeasure(Measure):
    """A measure of the weights of attention, summed up over the batches of one pass."""

    is_optional = True

    def update(self, weights: LayerWeights, sums: Sums) -> None:
        """Add a batch of one attention of one layer, to what this measure keeps of that."""
        raise NotImplementedError

    def result(self, sums: Sums, head: int) -> Fields:
        """The fields of a head. Not called where nothing was added.

        Unless a measure says otherwise: the mean of the sum that has the name of the number's
        place, its last key, for each of :attr:`numbers`."""
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
        means = {name: sums.mean(name) for name in names} if sums else {}
        return {name: float(mean) for name, mean in means.items() if mean is not None}


class ImportanceMeasure(Measure):
    """What a head matters to the model, as a share of its layer: by passes of their own.

    Attributes:
        sentences: for how many sentences, spread evenly, it is worked out at most where
            ``--NAME-sentences`` does not say.
        precision: the standard error of a head's share that is small enough: with it in all heads
            there are no more sentences. None for as many sentences as said, whatever the error.
        at_once: how many of them to a batch at most.
    """

    is_optional = True
    sentences: ClassVar[int]
    precision: ClassVar[float | None] = None
    at_once: ClassVar[int] = 1

    @property
    def option(self) -> str:
        """What parsed options, and the document's settings, call the number of sentences."""
        return f"{self.name}_sentences"

    def check(self, model: Any) -> None:
        """Refuse a model that it cannot be worked out for, by a ValueError that says why."""

    def importance(self, model: Any, sample: Any) -> ByHead:
        """Attention to layer to ``(n, heads)``: what each head matters to each of ``n`` things.

        These are summed up, and their standard error is one over such things: let them be
        sentences, which are chosen independently, and not tokens, which are not.

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
    """A number in a range, or null. A share may be above 1 by what rounding adds."""
    if (least, largest) == (0, 1):
        return {"$ref": "#/$defs/share_or_null", "description": description}
    ends = {"minimum": least, "maximum": largest}
    bounds = {name: end for name, end in ends.items() if end is not None}
    return {"type": ["number", "null"], **bounds, "description": description}


def object_schema(description: str, properties: dict[str, JsonSchema]) -> JsonSchema:
    """An object that has all of some properties and no other, or null."""
    shape = {"type": ["object", "null"], "additionalProperties": False}
    inner = {"required": list(properties), "properties": properties}
    return {**shape, "description": description, **inner}
