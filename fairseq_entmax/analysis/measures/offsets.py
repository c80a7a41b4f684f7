"""Where a head looks relative to the query: offsets, and positional heads.

An offset is the key's position in its sentence minus the query's, both from 0. The decoder's query
that predicts token i has position i."""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Mapping as Dictionary
from typing import Any, ClassVar

from fairseq_entmax.analysis.measures.base import (
    Fields,
    JsonSchema,
    Number,
    WeightMeasure,
    object_schema,
)
from fairseq_entmax.analysis.measures.rows import LayerWeights, Sums

OFFSETS = (-4, -3, -2, -1, 0, 1, 2, 3, 4)
POSITIONAL_SHARE = 0.9
AT_OFFSETS = {
    "weight": ("Mean weight", "mean weight at {}"),
    "share": (
        "Largest weight",
        "of the queries that have a key at {}, the share whose largest weight is there",
    ),
}
_MAXIMUM = (
    "share of all queries whose largest weight is at this offset, or below or above those listed. "
    "-1 and 1 together are the relative-position ratio of Baan et al. 2019, section 5.3"
)


class Offsets(WeightMeasure):
    """The largest weight and the mean weight at each offset, and the positional role."""

    name = "offsets"
    source = "Voita et al. 2019, section 5.1"
    settings: ClassVar = {"offsets": list(OFFSETS), "positional_share": POSITIONAL_SHARE}
    numbers = (
        Number(
            "positional-share",
            "Positional share",
            "share of the queries whose largest weight is at the head's main offset; only if the "
            "head has a positional role",
            ("positional", "share"),
        ),
        Number(
            "positional-confidence",
            "Positional confidence",
            "mean weight at the head's main offset",
            ("positional", "confidence"),
        ),
    )

    def fields(self) -> dict[str, JsonSchema]:
        """Return the fields of all offsets, and of the positional role."""
        texts = {"maximum": _MAXIMUM, **{key: text for key, (_, text) in AT_OFFSETS.items()}}
        shares = {
            name: {"$ref": "#/$defs/by_offset", "description": f"{text.format('this offset')}."}
            for name, text in texts.items()
        }
        share: JsonSchema = {"$ref": "#/$defs/share"}
        role = {"offset": {"type": "integer"}, "share": share, "confidence": share}
        return {
            "offsets": object_schema(
                "The key's position in its sentence minus the query's. The decoder's query that "
                "predicts token i has position i.",
                shares,
            ),
            "positional": object_schema(
                "The offset whose share is at least positional_share, and whose maximum is more "
                f"than half ({self.source}); confidence is its mean weight (Correia et al. 2019, section 5.2).",
                role,
            ),
        }

    def shown(self, analysis: dict[str, Any]) -> Iterator[Number]:
        """Yield also numbers such as ``weight@-1`` and ``share@+2``."""
        yield from self.numbers
        for key, (title, meaning) in AT_OFFSETS.items():
            for offset in OFFSETS:
                text = f"{offset:+d}" if offset else "0"
                side = "before" if offset < 0 else "after"
                position = f"the position {abs(offset)} {side} the query's"
                yield Number(
                    f"{key}@{text}",
                    f"{title} at {text.replace('-', '−')}",
                    meaning.format(position if offset else "the query's own position"),
                    ("offsets", key, str(offset)),
                    group=f"{title} at an offset",
                )

    def update(self, weights: LayerWeights, sums: Sums) -> None:
        import torch

        queries, heads = weights.queries, weights.weights.size(1)
        # All are (batch, queries, offsets); keys are clipped to existing ones
        attendable = weights.attendable[:, :, None]
        wanted = queries.places[:, :, None] + torch.tensor(OFFSETS, device=attendable.device)
        exists = (wanted >= 0) & (wanted < attendable) & queries.real[:, :, None]
        at = torch.minimum(wanted.clamp(min=0), attendable - 1)
        at = at + weights.keys.start[:, None, None]
        on_keys = weights.weights.gather(3, at[:, None].expand(-1, heads, -1, -1))
        on_keys = on_keys * exists[:, None]
        sums.add("weight", on_keys.sum(dim=(0, 2), dtype=torch.float64))
        sums.add("count", exists.sum(dim=(0, 1)))
        # Bins: below, each offset, above; and one for padding
        bins = len(OFFSETS) + 3
        index = (weights.offset - OFFSETS[0] + 1).clamp(0, bins - 2)
        index = index.masked_fill(~queries.real[:, None], bins - 1)
        index = index + bins * torch.arange(heads, device=index.device)[:, None]
        counts = torch.bincount(index.flatten(), minlength=bins * heads)
        sums.add("maximum", counts.view(heads, bins)[:, :-1])

    def result(self, sums: Sums, head: int) -> Fields:
        names = [str(offset) for offset in OFFSETS]
        maximum, counts = sums["maximum"][head], sums["count"].tolist()
        shares = (maximum / maximum.sum()).tolist()
        offsets = {"maximum": dict(zip(["below", *names, "above"], shares, strict=True))}
        for key, total in (("share", maximum[1:-1]), ("weight", sums["weight"][head])):
            means = (one / n if n else None for one, n in zip(total.tolist(), counts, strict=True))
            offsets[key] = dict(zip(names, means, strict=True))
        return {"offsets": offsets, "positional": positional_role(offsets)}


def positional_role(
    offsets: Dictionary[str, Dictionary[str, float | None]],
) -> dict[str, Any] | None:
    """Return the offset that a head looks at (Voita et al., section 5.1), or None.

    The maximum must be there for 90 % of the queries that have a key there, and for over half of
    all, so that a pattern only at ends of sentences is no role. Confidence is the mean weight."""
    shares = [
        (share, name)
        for name, share in offsets["share"].items()
        if share is not None and (offsets["maximum"][name] or 0) > 0.5
    ]
    share, name = max(shares, default=(0.0, ""))
    if share < POSITIONAL_SHARE:
        return None
    return {"offset": int(name), "share": share, "confidence": offsets["weight"][name]}
