"""The alpha of every head of a checkpoint, as data and as a table."""

from __future__ import annotations

import re
from collections.abc import Mapping as Dictionary
from dataclasses import asdict, dataclass
from typing import Any

import torch

from fairseq_entmax import checkpoints
from fairseq_entmax.attentions import ATTENTIONS, CROSS, DECODER_SELF, ENCODER_SELF
from fairseq_entmax.mappings.registry import MappingSpec, mappings_for_layers
from fairseq_entmax.models.options import (
    DEFAULTS,
    HEADS_OPTIONS,
    MAPPING_OPTIONS,
    head_counts,
)

_PLACES = {
    ENCODER_SELF: re.compile(r"encoder\.layers\.(\d+)\.self_attn\."),
    DECODER_SELF: re.compile(r"decoder\.layers\.(\d+)\.self_attn\."),
    CROSS: re.compile(r"decoder\.layers\.(\d+)\.encoder_attn\."),
}
_STOCK_HEADS = {
    ENCODER_SELF: "encoder_attention_heads",
    DECODER_SELF: "decoder_attention_heads",
    CROSS: "decoder_attention_heads",
}


@dataclass(frozen=True)
class LayerAlpha:
    """One attention of one layer.

    Attributes:
        attention: ``encoder-self``, ``decoder-self`` or ``cross``.
        layer: from 0, the bottom.
        mapping: its text form.
        learned: whether alpha is learned.
        heads: the number of heads; a pruned layer may have none.
        alpha: a number in [1, 2] for each head; a single one where all heads share it.
    """

    attention: str
    layer: int
    mapping: str
    learned: bool
    heads: int
    alpha: list[float]


def checkpoint_alphas(path: str) -> list[LayerAlpha]:
    """Read the alphas of a checkpoint of ``entmax_transformer`` or of a stock ``transformer``.

    Raises:
        FileNotFoundError, ValueError, UnsafeCheckpointError: as
            :func:`fairseq_entmax.checkpoints.load_checkpoint`.
    """
    state = checkpoints.load_checkpoint(path)
    options = checkpoints.model_settings(state, path)
    weights = state["model"]
    rows = []
    for attention in ATTENTIONS:
        matches = (_PLACES[attention].match(name) for name in weights)
        layers = sorted({int(match[1]) for match in matches if match})
        specs = _specs(options, attention, len(layers))
        heads = head_counts(
            options.get(HEADS_OPTIONS[attention]),
            len(layers),
            int(options.get(_STOCK_HEADS[attention]) or 1),
        )
        for layer, spec, number in zip(layers, specs, heads, strict=True):
            rows.append(_layer_alpha(attention, layer, spec, weights, number))
    if not rows:
        raise ValueError(f"{path} holds no attention of an encoder-decoder Transformer")
    return rows


def _specs(options: Dictionary[str, Any], attention: str, layers: int) -> list[MappingSpec]:
    name = str(options.get("_name") or options.get("arch") or "")
    if not name.startswith("entmax_"):
        text = "softmax"
    else:
        text = options.get(MAPPING_OPTIONS[attention]) or options.get(
            "attn_mapping", DEFAULTS["attn_mapping"]
        )
    return mappings_for_layers(text, layers) if layers else []


def _layer_alpha(
    attention: str,
    layer: int,
    spec: MappingSpec,
    weights: Dictionary[str, Any],
    heads: int,
) -> LayerAlpha:
    prefix = _PLACES[attention].pattern.replace("\\", "").replace("(d+)", str(layer))
    logits = weights.get(prefix + "mapping.alpha_logit")
    if logits is not None:
        alpha = (1.0 + torch.sigmoid(logits.double())).tolist()
        return LayerAlpha(attention, layer, str(spec), True, heads, alpha)
    alpha = [float(spec.build().alpha)] * heads if heads else []
    return LayerAlpha(attention, layer, str(spec), False, heads, alpha)


def as_json(rows: list[LayerAlpha]) -> list[dict[str, Any]]:
    """The rows as plain dictionaries, for ``json.dumps``."""
    return [asdict(row) for row in rows]


def as_table(rows: list[LayerAlpha]) -> str:
    """The rows as a text table, a line for each layer of each attention."""
    widest = max((len(row.alpha) for row in rows), default=0)
    title = "alpha of each head (1 = softmax, 2 = sparsemax; learned unless marked 'fixed')"
    mapping_width = max(7, *(len(_mapping_text(row)) for row in rows))
    heads = "".join(f"  head {number}".rjust(9) for number in range(widest))
    lines = [title, f"{'attention':<13} layer  {'mapping':<{mapping_width}}{heads}"]
    for row in rows:
        values = "".join(f"{value:9.4f}" for value in row.alpha)
        shared = "  for all heads" if row.learned and len(row.alpha) == 1 < row.heads else ""
        lines.append(
            f"{row.attention:<13} {row.layer:>5}  {_mapping_text(row):<{mapping_width}}{values}{shared}".rstrip()
        )
    learned = [value for row in rows if row.learned for value in row.alpha]
    if learned:
        mean = sum(learned) / len(learned)
        lines.append(f"learned: mean {mean:.4f}, from {min(learned):.4f} to {max(learned):.4f}")
    else:
        lines.append("no alpha is learned in this model")
    return "\n".join(lines)


def _mapping_text(row: LayerAlpha) -> str:
    if not row.heads:
        return "no heads"
    return row.mapping if row.learned else f"{row.mapping} (fixed)"
