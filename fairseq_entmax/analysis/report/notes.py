"""The report's notes on how its numbers were obtained, and on what they do not show."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from fairseq_entmax.analysis.document.summary import learned_values, missing_records
from fairseq_entmax.analysis.head_order import (
    LARGE,
    RESOLUTIONS,
    RankCorrelation,
    of_heads,
    rank_correlation,
)
from fairseq_entmax.analysis.measures import importance_measures

Row = dict[str, Any]

# A correlation of at least this says that heads keep their initial order in part; see LARGE
IN_PART = 0.3


def importance_rows(analysis: dict[str, Any]) -> list[Row]:
    """How many sentences relevance and gradient are based on in each model, and their errors."""
    rows = []
    for measure in importance_measures():
        for number, model in enumerate(analysis["models"]):
            heads = [head for layer in model["attentions"] for head in layer["heads"]]
            if all(head.get(measure.name) is None for head in heads):
                continue
            errors = [head["standard_errors"][measure.name] for head in heads]
            rows.append(
                {
                    "model": number,
                    "measure": measure.title,
                    "sentences": model["importance_sentences"][measure.name],
                    "data": analysis["data"]["sentences"],
                    "error": max((one for one in errors if one is not None), default=None),
                }
            )
    return rows


def courses(analysis: dict[str, Any]) -> list[Row]:
    """Whether heads keep their initial order, by model and learned value: numbers and ``text``."""
    return [row for number, model in enumerate(analysis["models"]) for row in _of(number, model)]


def _of(number: int, model: dict[str, Any]) -> Iterator[Row]:
    for name, record in model["records"].items():
        learned: dict[str, dict[str, list[float | None]]] = {}
        for layer in model["attentions"]:
            if name in layer["learned"]:
                of_attention = learned.setdefault(layer["attention"], {})
                of_attention[str(layer["layer"])] = learned_values(layer, name)
        if not learned:
            continue
        try:
            compared = rank_correlation([of_heads(line, learned) for line in record], name)
        except ValueError as error:
            yield {"model": number, "name": name, "text": f"No comparison: {error}."}
            continue
        yield {
            "model": number,
            "name": name,
            "first": compared.first_update,
            "last": compared.last_update,
            "heads": compared.heads,
            "value": compared.of_model,
            "attentions": compared.of_attentions,
            "text": _meaning(compared),
        }
    for name in missing_records(model):
        text = (
            f"When the model was analysed, training's record {name}.jsonl was missing beside "
            f"{model['checkpoint']}, could not be read, or was of another model: so it is unknown "
            f"whether heads keep their initial order of {name}."
        )
        yield {"model": number, "name": name, "text": text}


def _meaning(compared: RankCorrelation) -> str:
    name, value = compared.name, compared.of_model
    if value is None:
        return f"No correlation: {compared.reason()}."
    number, at = compared.together()
    if number > compared.heads / 2:
        closely = f" to within {RESOLUTIONS[name]:g}" if name in RESOLUTIONS else ""
        return (
            f"{number} of {compared.heads} heads end at the same {name}, {at:.4g}{closely}: they "
            f"have no order among themselves, so the correlation says little."
        )
    # The start was drawn at random or came from a checkpoint: the record does not say which
    if value >= LARGE:
        return (
            f"The heads largely keep the order of {name} in which this training started: a high or "
            f"low {name} says little about what the training made of the head. If the initial values "
            f"were drawn at random, as in a new model, it is not specialisation."
        )
    if value >= IN_PART:
        return (
            f"The order of {name} in which this training started remains in part: it learned only "
            f"part of the differences in {name} between heads."
        )
    if value > -IN_PART:
        return f"Little of the initial order of {name} remains: the differences are learned."
    return f"The order of {name} was reversed: heads that started high ended low."
