"""Mappings by name: ``softmax``, ``sparsemax``, ``entmax15``, ``entmax``, ``entmax:alpha=1.33``,
``fusedmax``, ``oscarmax:oscar=0.05``, ``entmax:tv=learned``, ``sqpnormmax``.

The text form is the same in a command, a YAML file and Python. Texts for several layers and heads
are made of it in :mod:`fairseq_entmax.mappings.layers`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping as Dictionary
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from fairseq_entmax.mappings.base import WARMUP, Mapping, OfHeads
from fairseq_entmax.mappings.entmax import Entmax
from fairseq_entmax.mappings.pnorm import SqPNormMax


@dataclass(frozen=True)
class NamedMapping:
    """A class, the parameters that its text may have, and those that the name implies."""

    mapping: type[Mapping]
    allowed: tuple[str, ...]
    parameters: Dictionary[str, str]


MAPPINGS: dict[str, NamedMapping] = {}


def register_mapping(
    name: str, mapping: type[Mapping], allowed: tuple[str, ...] | None = None, **parameters: str
) -> None:
    """Register a mapping under a name, for every option, file and table.

    Args:
        name: what users write: a word of letters, digits, ``_``, ``.`` and ``-``.
        mapping: the class.
        allowed: which of its ``text_parameters`` may follow the name; None for all.
        **parameters: those that the name implies, such as ``alpha="2"``.

    Raises:
        ValueError: the name is in use, or is not such a word.
    """
    if name in MAPPINGS or not re.fullmatch(r"[A-Za-z_][\w.-]*", name):
        raise ValueError(f"a mapping cannot be named {name!r}: give a word that is not in use")
    MAPPINGS[name] = NamedMapping(
        mapping, mapping.text_parameters if allowed is None else allowed, parameters
    )


_ALL = OfHeads.text_parameters
register_mapping("softmax", Entmax, tuple(one for one in _ALL if one != WARMUP), alpha="1")
register_mapping("sparsemax", Entmax, _ALL, alpha="2")
register_mapping("entmax15", Entmax, _ALL, alpha="1.5")
register_mapping("entmax", Entmax)
register_mapping("fusedmax", Entmax, ("alpha", "tv", "tv_init", *_ALL), alpha="2", tv="0.1")
_OSCAR = ("alpha", "oscar", "oscar_init", *_ALL)
register_mapping("oscarmax", Entmax, _OSCAR, alpha="2", oscar="0.01")
register_mapping("sqpnormmax", SqPNormMax)


@dataclass(frozen=True)
class MappingSpec:
    """One mapping, as a text names it.

    Attributes:
        name: a key of :data:`MAPPINGS`.
        parameters: parameter names to values, as text.
        values: these, and those that the name implies, as :meth:`Mapping.read_text` reads them.
    """

    name: str
    parameters: dict[str, str]
    values: dict[str, Any]

    def __str__(self) -> str:
        return ":".join([self.name, *(f"{key}={value}" for key, value in self.parameters.items())])

    def keep_heads(self, indices: Sequence[int]) -> MappingSpec:
        """The mapping of a layer with only these heads: the same, as all heads have it."""
        return self

    def build(
        self,
        num_heads: int = 1,
        generator: torch.Generator | None = None,
        defaults: Dictionary[str, Any] | None = None,
    ) -> Mapping:
        """Make the module.

        Args:
            num_heads: number of heads of the scores.
            generator: draws random initial values; None is torch's own.
            defaults: checked values of parameters that the text lacks; those that the mapping does
                not take are ignored.

        Raises:
            ValueError: from :meth:`Mapping.from_text`; :meth:`Mapping.head_values` are malformed.
        """
        named = MAPPINGS[self.name]
        known = {key: value for key, value in (defaults or {}).items() if key in named.allowed}
        mapping = named.mapping.from_text({**known, **self.values}, num_heads, generator)
        for name, values in mapping.head_values().items():
            if not name.isidentifier() or tuple(values.shape) not in ((1,), (num_heads,)):
                raise ValueError(
                    f"head_values of {named.mapping.__name__} must give one number for each of "
                    f"{num_heads} heads, ({num_heads},), or one for all, (1,), under a name that "
                    f"is an identifier, not {tuple(values.shape)} under {name!r}"
                )
        return mapping


def parse_mapping(text: str) -> MappingSpec:
    """Read one mapping: ``NAME`` or ``NAME:PARAMETER=VALUE``.

    Raises:
        ValueError: unknown name, unknown or repeated parameter, value out of range.
    """
    name, *parts = (part.strip() for part in text.strip().split(":"))
    if name not in MAPPINGS:
        raise ValueError(
            f"unknown mapping {name!r}; allowed: {', '.join(MAPPINGS)}, or one registered by "
            f"the folder of --user-dir"
        )
    named = MAPPINGS[name]
    parameters: dict[str, str] = {}
    for part in parts:
        key, equals, value = (piece.strip() for piece in part.partition("="))
        if key not in named.allowed or not equals:
            allowed = ", ".join(f"{name}:{parameter}=VALUE" for parameter in named.allowed)
            raise ValueError(
                f"unknown parameter {part!r} of mapping {name!r}; allowed: {allowed or 'none'}"
            )
        if key in parameters:
            raise ValueError(f"parameter {key!r} of mapping {name!r} is given twice in {text!r}")
        parameters[key] = value
    try:
        values = named.mapping.read_text({**named.parameters, **parameters})
    except ValueError as error:
        raise ValueError(f"mapping {text.strip()!r}: {error}") from None
    return MappingSpec(name, parameters, values)
