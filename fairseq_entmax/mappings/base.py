"""Mappings from attention scores to probabilities, as modules.

A mapping takes scores ``(batch, heads, queries, keys)`` and returns probabilities of the
same shape. It owns everything about itself: what it learns, which of its values are worth
watching, what remains when heads are pruned, and whether a kernel can replace it. A new one
subclasses :class:`Mapping` and gets its name from ``register_mapping``, in any module.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from collections.abc import Mapping as Dictionary
from typing import Any, ClassVar, TypeVar

import torch
from torch import Tensor, nn

from fairseq_entmax.mappings import factor as factors
from fairseq_entmax.mappings.factor import LR_FACTOR, NO_FACTOR, RATIO, check_lr_factor, value_of
from fairseq_entmax.mappings.rise import RISE, WARMUP, Rise, check_warmup
from fairseq_entmax.mappings.scripting import refusal
from fairseq_entmax.mappings.strengths import LEARNED, for_scores, or_learned
from fairseq_entmax.mappings.structured import check_gamma

Number = TypeVar("Number", float, Tensor, float | Tensor)
Generator = torch.Generator | None

TEMPERATURE, INITIAL = "temperature", "temperature_init"
# How widely one learned value is shared
SHARE_NONE, SHARE_LAYER, SHARE_ATTENTION, SHARE_MODEL = "none", "layer", "attention", "model"
SHARING = (SHARE_NONE, SHARE_LAYER, SHARE_ATTENTION, SHARE_MODEL)


def check_share(share: str, name: str) -> str:
    """Return ``share``, or raise ValueError unless it is one of :data:`SHARING`."""
    if share not in SHARING:
        raise ValueError(f"{name} must be one of {', '.join(SHARING)}, not {share!r}")
    return share


class Mapping(nn.Module):
    """A mapping from scores to probabilities. Masked keys (``-inf``) get exactly zero.

    A subclass defines :meth:`forward`, and :meth:`head_values` and :meth:`keep_heads` if it has
    values for each head.

    Attributes:
        text_parameters: parameters of the text form, such as ``("alpha",)`` for
            ``entmax:alpha=1.5``.
        rising: those of :meth:`head_values` that a rise changes.
        share: how widely its parameters are shared, one of :data:`SHARING`. Beyond one
            layer, the model makes mappings of the same class use the same parameters.
        lr_factor: what its own stored parameters are multiplied by. Parameters of a state dict
            that were stored by another factor are converted when they are loaded, if the
            mapping stores its factor, as those of this package do.
        is_softmax: whether it is softmax, and stays so whatever training does, so that torch's
            own attention can replace it.
        rise: the rise from softmax to the mapping itself in the first updates, or None.
    """

    text_parameters: ClassVar[tuple[str, ...]] = ()
    rising: ClassVar[tuple[str, ...]] = ()
    share = SHARE_NONE
    lr_factor = NO_FACTOR
    is_softmax = False

    def __init__(self) -> None:
        super().__init__()
        self.rise: Rise | None = None

    @classmethod
    def from_text(cls, parameters: dict[str, Any], num_heads: int, generator: Generator) -> Mapping:
        """Build the mapping that a text names; the default ignores all parameters.

        Args:
            parameters: what :meth:`read_text` returned; and for what the text lacks, the checked
                values of options, such as ``--alpha-init``.
            num_heads: number of heads of the scores, 1 or more.
            generator: draws random initial values; None is torch's own.

        Raises:
            ValueError: a value is not allowed.
        """
        return cls()

    @classmethod
    def read_text(cls, parameters: dict[str, str]) -> dict[str, Any]:
        """Convert a text's parameters, and those that its name implies, for :meth:`from_text`.

        The default returns the texts, after building a mapping of one head from them as a check.

        Raises:
            ValueError: a value is not allowed.
        """
        # A private generator, so that checking does not change the training's random numbers
        cls.from_text(parameters, 1, torch.Generator())
        return parameters

    def forward(self, scores: Tensor) -> Tensor:
        """Map ``(batch, heads, queries, keys)`` to probabilities of the same shape."""
        raise NotImplementedError

    @property
    def risen(self) -> float:
        """How far it has risen, from 0 (softmax) to 1 (the mapping itself)."""
        return 1.0 if self.rise is None else self.rise.share

    def scaled_by_rise(self, value: Number) -> Number:
        """A number that rises to ``value`` from 0, at which the mapping is softmax."""
        return value if self.risen == 1.0 else self.risen * value

    def head_values(self) -> dict[str, Tensor]:
        """Numbers worth watching, by name: ``(heads,)``, or ``(1,)`` if all heads share one."""
        return {}

    @property
    def learned(self) -> tuple[str, ...]:
        """Which :meth:`head_values` training changes: by default all, if there is any parameter."""
        return tuple(self.head_values()) if any(True for _ in self.parameters()) else ()

    @property
    def changing(self) -> tuple[str, ...]:
        """Which :meth:`head_values` change in the course of training: learned or rising ones."""
        names = self.learned if self.rise is None else (*self.learned, *self.rising)
        return tuple(name for name in self.head_values() if name in names)

    def learns(self, name: str) -> list[bool]:
        """Whether training changes each number that :meth:`head_values` has under this name."""
        return [name in self.learned] * self.head_values()[name].numel()

    def changes(self, name: str) -> list[bool]:
        """Like :meth:`learns`, but also true for numbers that rise."""
        return [name in self.changing] * self.head_values()[name].numel()

    def keep_heads(self, indices: Sequence[int]) -> None:
        """Keep only these heads, in this order, as pruning does.

        Args:
            indices: heads from 0, at least one.
        """

    def epsilon(self) -> float | Tensor | None:
        """alpha - 1 for a kernel that does all of attention, if the mapping is alpha-entmax.

        Kernels take it from here, as subtracting 1 from an alpha near 1 leaves no digits. It is a
        number above 0, ``(heads,)``, or ``(1,)`` for all heads; by default it is None.
        """
        return None

    def score_scale(self) -> float | Tensor | None:
        """Factor of scores, or of a kernel's queries: a number, ``(heads,)``, ``(1,)`` or None."""
        return None

    def scaled(self, scores: Tensor) -> Tensor:
        """Scores times :meth:`score_scale`, if any; :meth:`forward` begins with this product."""
        scale = self.score_scale()
        if not isinstance(scale, Tensor):
            return scores if scale is None else scores * scale
        masked = scores == -torch.inf  # a product with -inf would have NaN as its gradient
        product = scores.masked_fill(masked, 0.0) * for_scores(scale, scores)
        return product.to(scores.dtype).masked_fill(masked, -torch.inf)

    def epsilon_holds(self) -> bool:
        """Whether :meth:`epsilon` is that of this :meth:`forward`, unchanged and without hooks."""
        return self._is_of_forward("epsilon") and not has_hook(self)

    def _is_of_forward(self, method: str) -> bool:
        mapping_class: Any = type(self)
        return "forward" not in self.__dict__ and _is_forward_beside(
            mapping_class, mapping_class.forward, method
        )

    def exported(self) -> nn.Module:
        """Call :meth:`scriptable`, or raise its error if it is for another :meth:`forward`."""
        if not self._is_of_forward("scriptable"):
            raise refusal(type(self).__name__)
        return self.scriptable()

    def scriptable(self) -> nn.Module:
        """A module for TorchScript and ONNX that maps :meth:`scaled` scores, with constant numbers.

        Raises:
            ValueError: there is no such module, as by default.
        """
        raise refusal(type(self).__name__)

    def convert(self, state_dict: dict[str, Any], prefix: str) -> None:
        """Convert our parameters in a state dict, under this prefix, to our own factors."""
        for path, part in self.named_modules():
            if isinstance(part, Mapping):
                part._convert_parameters(state_dict, f"{prefix}{path}." if path else prefix)

    def _convert_parameters(self, state_dict: dict[str, Any], prefix: str) -> None:
        names = [name for name, parameter in self._parameters.items() if parameter is not None]
        if names:
            ours = self.lr_factor if RATIO in self._buffers else NO_FACTOR
            factors.convert(state_dict, prefix, names, ours)

    def _save_factor(self) -> None:
        """Make checkpoints store the factor of our own parameters, unless it is 1."""
        if self.lr_factor != NO_FACTOR and any(
            parameter is not None for parameter in self._parameters.values()
        ):
            self.register_buffer(RATIO, factors.as_ratio(self.lr_factor))

    def _load_from_state_dict(
        self, state_dict: dict[str, Any], prefix: str, *args: Any, **kwargs: Any
    ) -> None:
        self._convert_parameters(state_dict, prefix)
        if self.rise is None:
            state_dict.pop(f"{prefix}{RISE}.updates", None)
        super()._load_from_state_dict(state_dict, prefix, *args, **kwargs)


@functools.cache
def _is_forward_beside(mapping_class: Any, forward: Any, method: str) -> bool:
    """Whether a mapping's ``forward`` is that of the class that defines its ``method``."""
    owner = next(base for base in mapping_class.__mro__ if method in vars(base))
    return forward is owner.forward


def has_hook(module: Any) -> bool:
    """Whether a module has hooks, which see or change what it does."""
    return bool(
        module._forward_hooks
        or module._forward_pre_hooks
        or module._backward_hooks
        or module._backward_pre_hooks
    )


class OfHeads(Mapping):
    """A mapping with numbers that are fixed or learned, one for each head or one for all."""

    # Text parameter to the function that reads its value, given its name; each text is read once
    readers: ClassVar[dict[str, Callable[[Any, str], Any]]] = {
        "share": check_share,
        LR_FACTOR: check_lr_factor,
        TEMPERATURE: or_learned(check_gamma),
        INITIAL: check_gamma,
        WARMUP: check_warmup,
    }
    text_parameters: ClassVar[tuple[str, ...]] = tuple(readers)
    # Number that may be learned to its parameter; text parameter of an initial value to its number
    parameter_of: ClassVar[dict[str, str]] = {TEMPERATURE: "log_temperature"}
    init_of: ClassVar[dict[str, str]] = {INITIAL: TEMPERATURE}
    fixed_temperature = 1.0

    @classmethod
    def read(cls, given: Dictionary[str, Any]) -> dict[str, Any]:
        """Read texts, or arguments in Python, by :attr:`readers`; None is left out."""
        known = ((name, value) for name, value in given.items() if value is not None)
        return {name: cls.readers[name](value, name) for name, value in known}

    def _set_numbers(self, values: dict[str, Any], count: int, generator: Generator) -> None:
        """Set the numbers read, except the temperature; each learned one has ``count`` values."""
        raise NotImplementedError

    @classmethod
    def from_text(cls, parameters: dict[str, Any], num_heads: int, generator: Generator) -> OfHeads:
        make: Any = cls
        mapping: OfHeads = make(2.0)  # sparsemax, until its own numbers are set
        mapping.share = parameters.get("share", SHARE_NONE)
        count = num_heads if mapping.share == SHARE_NONE else 1
        mapping._set_numbers(parameters, count, generator)
        mapping.fixed_temperature = parameters.get(TEMPERATURE, 1.0)
        if mapping.fixed_temperature is None:
            start = math.log(parameters.get(INITIAL, 1.0))
            mapping.log_temperature = nn.Parameter(torch.full((count,), start / mapping.lr_factor))
            mapping._save_factor()
        if parameters.get(WARMUP):
            mapping.rise = Rise(parameters[WARMUP])
        return mapping

    @property
    def temperature(self) -> float | Tensor:
        """The divisor of scores: gamma of Niculae and Blondel 2017, section 2. It does not rise."""
        log = getattr(self, "log_temperature", None)
        return self.fixed_temperature if log is None else value_of(log, self.lr_factor).exp()

    def score_scale(self) -> float | Tensor | None:
        temperature = self.temperature
        return None if isinstance(temperature, float) and temperature == 1.0 else 1.0 / temperature

    def numbers(self) -> dict[str, float | Tensor]:
        """The numbers in use, by name: a float, or ``(heads,)`` or ``(1,)`` if learned."""
        return {} if self.score_scale() is None else {TEMPERATURE: self.temperature}

    @classmethod
    def read_text(cls, parameters: dict[str, str]) -> dict[str, Any]:
        values = cls.read(parameters)
        mapping = cls.from_text(values, 1, torch.Generator())
        learned, numbers = mapping.learned, mapping.numbers()
        fixed = {name: f"{name}={numbers[name]:g}" for name in numbers if name not in learned}
        for init, name in cls.init_of.items():
            if init in parameters and name not in learned:
                what = f"{name}={LEARNED}: write both, or neither"
                if name in fixed:
                    what = f"a learned {name}, but {fixed[name]} is fixed: leave one out"
                raise ValueError(f"{init} needs {what}")
        for option in ("share", LR_FACTOR):
            if option in parameters and not learned:
                texts = [fixed[name] for name in cls.init_of.values() if name in fixed]
                verb = "is" if len(texts) == 1 else "are"
                raise ValueError(
                    f"{option} needs a learned number, but {' and '.join(texts)} {verb} fixed: leave one out"
                )
        return values

    def head_values(self) -> dict[str, Tensor]:
        return {
            name: torch.as_tensor(value, dtype=torch.float64).view(-1)
            for name, value in self.numbers().items()
        }

    @property
    def learned(self) -> tuple[str, ...]:
        names = self.parameter_of.items()
        return tuple(name for name, one in names if getattr(self, one, None) is not None)

    def keep_heads(self, indices: Sequence[int]) -> None:
        for name in self.learned:
            stored = getattr(self, self.parameter_of[name])
            if len(stored) > 1:
                kept = nn.Parameter(stored.detach()[list(indices)], stored.requires_grad)
                setattr(self, self.parameter_of[name], kept)

    def extra_repr(self) -> str:
        fixed = self.numbers().items()
        texts = [f"{name}={value}" for name, value in fixed if name not in self.learned]
        if self.learned:
            count = sum(parameter.numel() for parameter in self.parameters())
            texts.append(f"{' and '.join(self.learned)} learned, {count} values")
        if self.learned and self.lr_factor != NO_FACTOR:
            texts.append(f"{LR_FACTOR}={self.lr_factor:g}")
        return ", ".join(texts)
