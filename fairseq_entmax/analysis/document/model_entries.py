"""The entry of ``analysis.json`` for one model."""

from __future__ import annotations

import logging
import math
from pathlib import Path
from typing import Any

from fairseq_entmax.analysis.data.samples import evenly_spread
from fairseq_entmax.analysis.head_order import Line, first_drawn, lines_of, lines_of_checkpoint
from fairseq_entmax.analysis.models.loaded import LoadedModel
from fairseq_entmax.analysis.passes.collect import ModelCollector
from fairseq_entmax.analysis.passes.importance_shares import Shares
from fairseq_entmax.analysis.passes.statistics import MeasuredLayer
from fairseq_entmax.attention import attention_modules
from fairseq_entmax.attentions import ATTENTIONS, CROSS
from fairseq_entmax.files import sha256
from fairseq_entmax.head_records import DIGITS, record_path

logger = logging.getLogger(__name__)

LONGEST_RECORD = 200


def model_entry(
    collector: ModelCollector,
    importance: dict[str, Shares],
    generated: dict[str, int] | None = None,
) -> dict[str, Any]:
    loaded = collector.loaded
    copy = loaded.model.attention_options.copy
    layers = []
    shares = {name: share.heads for name, share in importance.items()}
    for attention, number, module in attention_modules(loaded.model):
        sums = collector.statistics.layers.get(attention, {}).get(number)
        results = MeasuredLayer(attention, number, sums, module, shares).results()
        spec = loaded.model.attention_options.specs[attention][number]
        mapping = str(spec) if results["heads"] else None
        for head in results["heads"] if importance else ():
            head["standard_errors"] = {
                name: _known(share.errors[attention][number][head["head"]])
                for name, share in importance.items()
            }
        layers.append({"attention": attention, "layer": number, "mapping": mapping, **results})
        if copy is not None and (attention, number) == (CROSS, copy.layer):
            layers[-1]["copy_heads"] = list(copy.copy_heads)
    entry = {
        "name": loaded.name,
        "checkpoint": loaded.path,
        "architecture": loaded.architecture,
        "parameters": sum(parameter.numel() for parameter in loaded.model.parameters()),
        "updates": loaded.updates,
        "loss": collector.sums.total_mean("loss"),
        "records": training_records(loaded),
        "attentions": sorted(layers, key=lambda layer: ATTENTIONS.index(layer["attention"])),
    }
    if Path(loaded.path).is_file():  # not a model in memory
        entry["checkpoint_sha256"] = sha256(loaded.path)
    if importance:
        entry["importance_sentences"] = {name: one.sentences for name, one in importance.items()}
    for measure in collector.measures:
        entry[measure.name] = measure.result(loaded.model, collector.sums)
    if generated is not None:
        entry["generated"] = generated
    return entry


def _known(number: Any) -> float | None:
    return None if math.isnan(number) else float(number)


def training_records(loaded: LoadedModel) -> dict[str, list[Line]]:
    """Return training records beside the checkpoint, by name, thinned; warn of unusable ones."""
    modules = (module for _, _, module in attention_modules(loaded.model))
    names = (name for one in modules if one.mapping for name in one.mapping.head_values())
    records = {name: _record(loaded, name) for name in dict.fromkeys(names)}
    return {name: record for name, record in records.items() if record}


def _record(loaded: LoadedModel, name: str) -> list[Line]:
    path = record_path(Path(loaded.path).parent, name)
    if not path.is_file():
        return []
    try:
        read = lines_of(path, name)
        layers = [
            layer for line in read for one in line["values"].values() for layer in one.values()
        ]
        if any(value is not None and not math.isfinite(value) for one in layers for value in one):
            raise ValueError(f"{path} has a value that is not finite")
        present = _present(loaded, name)
        lines = lines_of_checkpoint(read, loaded.updates, present, str(path))
    except (OSError, ValueError) as error:
        logger.warning("no usable record of %s for this model: %s", name, error)
        return []
    if len(lines) > LONGEST_RECORD:
        kept = {0, first_drawn(lines, name), len(lines) - 1}
        kept |= {*evenly_spread(len(lines), LONGEST_RECORD - len(kept))}
        lines = [lines[index] for index in sorted(kept)]
    return lines


def _present(loaded: LoadedModel, name: str) -> dict[str, dict[str, list[float | None]]]:
    """Return the model's values of one name that change in training, in the form of a record."""
    found: dict[str, dict[str, list[float | None]]] = {}
    for attention, layer, module in attention_modules(loaded.model):
        if module.mapping is not None and name in module.mapping.changing:
            values = module.mapping.head_values()[name].tolist()
            found.setdefault(attention, {})[str(layer)] = [
                _known(round(value, DIGITS)) for value in values
            ]
    return found
