"""Mappings by name: ``softmax``, ``sparsemax``, ``entmax15``, ``entmax``, ``entmax:alpha=1.33``.

The text form is the same in a command, a YAML file and Python. A list, bottom layer
first, gives each layer its own: ``sparsemax*5,softmax``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

import torch

from fairseq_entmax.mappings.modules import (
    NORMAL,
    Entmax,
    Entmax15,
    Mapping,
    Softmax,
    Sparsemax,
)

MAPPINGS: dict[str, type[Mapping]] = {
    "softmax": Softmax,
    "sparsemax": Sparsemax,
    "entmax15": Entmax15,
    "entmax": Entmax,
}


@dataclass(frozen=True)
class MappingSpec:
    """One mapping as a text names it.

    Attributes:
        name: a key of :data:`MAPPINGS`.
        parameters: parameter names to values, as text.
    """

    name: str
    parameters: dict[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        return ":".join([self.name, *(f"{key}={value}" for key, value in self.parameters.items())])

    def build(
        self,
        num_alphas: int = 1,
        alpha_init: str | float = NORMAL,
        generator: torch.Generator | None = None,
    ) -> Mapping:
        """Make the module; the arguments are those of :meth:`Mapping.from_text`."""
        mapping = MAPPINGS[self.name]
        return mapping.from_text(self.parameters, num_alphas, alpha_init, generator)

    def check(self) -> None:
        """Raise ValueError if a parameter's value is not allowed."""
        # Apart from torch's own random numbers, which a check is not to use up
        self.build(generator=torch.Generator())


def parse_mapping(text: str) -> MappingSpec:
    """Read one mapping: ``NAME`` or ``NAME:PARAMETER=VALUE``.

    Raises:
        ValueError: unknown name, unknown or repeated parameter, value out of range.
    """
    name, *parts = (part.strip() for part in text.strip().split(":"))
    if name not in MAPPINGS:
        raise ValueError(f"unknown mapping {name!r}; allowed: {', '.join(MAPPINGS)}")
    known = MAPPINGS[name].text_parameters
    parameters: dict[str, str] = {}
    for part in parts:
        key, equals, value = (piece.strip() for piece in part.partition("="))
        if key not in known or not equals:
            allowed = ", ".join(f"{name}:{parameter}=VALUE" for parameter in known)
            raise ValueError(
                f"unknown parameter {part!r} of mapping {name!r}; allowed: {allowed or 'none'}"
            )
        if key in parameters:
            raise ValueError(f"parameter {key!r} of mapping {name!r} is given twice in {text!r}")
        parameters[key] = value
    spec = MappingSpec(name, parameters)
    try:
        spec.check()
    except ValueError as error:
        raise ValueError(f"mapping {text.strip()!r}: {error}") from None
    return spec


def parse_mappings(text: str) -> list[MappingSpec]:
    """Read a list of mappings; ``NAME*3`` stands for three layers of ``NAME``.

    Raises:
        ValueError: as :func:`parse_mapping`; a repeat count that is not 1 or more.
    """
    specs: list[MappingSpec] = []
    for item in text.split(","):
        mapping, star, count = item.partition("*")
        repeats = 1
        if star:
            if not re.fullmatch(r"\s*0*[1-9][0-9]{0,3}\s*", count):
                raise ValueError(
                    f"the count behind '*' must be a whole number of layers, 1 to 9999, not "
                    f"{count!r} in {text!r}"
                )
            repeats = int(count)
        specs += [parse_mapping(mapping)] * repeats
    return specs


def mappings_for_layers(text: str, num_layers: int) -> list[MappingSpec]:
    """Read the mappings of all layers, bottom first; a single one serves every layer.

    Raises:
        ValueError: as :func:`parse_mappings`; a list whose length is not ``num_layers``.
    """
    specs = parse_mappings(text)
    if len(specs) == 1 and "*" not in text:
        return specs * num_layers
    if len(specs) != num_layers:
        raise ValueError(
            f"{text!r} names {len(specs)} layers, the model has {num_layers}; give one mapping "
            f"for all layers, or one for each"
        )
    return specs
