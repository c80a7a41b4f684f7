"""The report's table of models: to add a column, add a line to :func:`model_columns`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fairseq_entmax.analysis.measures.model_measures import MODEL_MEASURES

Model = dict[str, Any]


def model_columns(analysis: dict[str, Any]) -> list[tuple[str, str, list[Any]]]:
    """Each column's title, its style in ``STYLES`` of ``summary.js``, and its values."""
    models, is_labelled = analysis["models"], analysis["data"].get("kind") == "labelled"
    loss = "Loss of outputs (nats per token)" if "search" in analysis else "Loss (nats per token)"
    # A function of the model; or a field, or a number in one: no column if no model has the field
    columns: list[tuple[str, str, str | Callable[[Model], Any]]] = [
        ("Model", "text", "name"),
        ("Architecture", "text", "architecture"),
        ("Attention", "text", _mappings),
        ("Heads", "count", lambda model: sum(len(one["heads"]) for one in model["attentions"])),
        ("Parameters", "count", "parameters"),
        ("Updates", "count", "updates"),
        ("Loss (nats per text)" if is_labelled else loss, "thousandths", "loss"),
        ("Generated tokens", "count", "generated.tokens"),
        ("Empty outputs", "count", "generated.empty"),
        ("Outputs of maximum length", "count", "generated.longest"),
        *(
            (title, style, f"{measure.name}.{number}")
            for measure in MODEL_MEASURES
            for title, style, number in measure.columns
        ),
        ("Checkpoint", "text", "checkpoint"),
    ]
    return [
        (title, style, [_value(model, place) for model in models])
        for title, style, place in columns
        if callable(place) or any(place.partition(".")[0] in model for model in models)
    ]


def _value(model: Model, place: str | Callable[[Model], Any]) -> Any:
    if callable(place):
        return place(model)
    field, _, number = place.partition(".")
    return (model.get(field) or {}).get(number) if number else model[field]


def _mappings(model: Model) -> str | None:
    """The mappings of a model's layers, each once."""
    layers = [layer for layer in model["attentions"] if layer["heads"]]
    return ", ".join(dict.fromkeys(layer["mapping"] for layer in layers)) or None
