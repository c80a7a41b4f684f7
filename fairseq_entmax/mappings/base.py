"""Mappings from attention scores to probabilities, as modules.

A mapping takes scores ``(batch, heads, queries, keys)`` and returns probabilities of the
same shape. It owns everything about itself: what it learns, what of it is worth watching, what
is left of it when heads are pruned, and whether a kernel can take its place. A new one
subclasses :class:`Mapping` and gets its name by ``register_mapping``, wherever it stands.
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
# How far one learned value reaches
SHARE_NONE, SHARE_LAYER, SHARE_ATTENTION, SHARE_MODEL = "none", "layer", "attention", "model"
SHARING = (SHARE_NONE, SHARE_LAYER, SHARE_ATTENTION, SHARE_MODEL)


def check_share(share: str, name: str) -> str:
    """Return ``share``, or raise ValueError where it is none of :data:`SHARING`."""
    if share not in SHARING:
        raise ValueError(f"{name} must be one of {', '.join(SHARING)}, not {share!r}")
    return share


class Mapping(nn.Module):
    """Scores to probabilities. Masked keys (``-inf``) get exactly zero.

    A subclass writes :meth:`forward`, and :meth:`head_values` and :meth:`keep_heads` where it
    has something for each head.

    Attributes:
        text_parameters: what the text form takes, such as ``("alpha",)`` for
            ``entmax:alpha=1.5``.
        share: how far its parameters reach, one of :data:`SHARING`. Beyond one layer, the
            model makes mappings of the same class use the same parameters.
        lr_factor: what its own parameters have to be multiplied by. Parameters of a state dict
            that were stored by another factor are converted as they are loaded.
        is_softmax: whether it is softmax whatever it is trained with, so that torch's own
            attention can take its place.
        rise: from softmax to the mapping itself in the first updates; None where it has none.
    """

    text_parameters: ClassVar[tuple[str, ...]] = ()
    share = SHARE_NONE
    lr_factor = NO_FACTOR
    is_softmax = False

    def __init__(self) -> None:
        super().__init__()
        self.rise: Rise | None = None

    @classmethod
    def from_text(cls, parameters: dict[str, Any], num_heads: int, generator: Generator) -> Mapping:
        """Build the mapping that a text names; without parameters unless a class says otherwise.

        Args:
            parameters: what :meth:`read_text` returned; and, of what the text did not have, the
                values of options that stand for it, such as ``--alpha-init``, checked.
            num_heads: number of heads of the scores, 1 or more.
            generator: where random starting values come from; None is torch's own.

        Raises:
            ValueError: a value is not allowed.
        """
        return cls()

    @classmethod
    def read_text(cls, parameters: dict[str, str]) -> dict[str, Any]:
        """What stood behind the name, and what the name stands for, as :meth:`from_text` takes it.

        The texts as they are, unless a class says otherwise, once a mapping of one head was built of them.

        Raises:
            ValueError: a value is not allowed.
        """
        # Not with torch's own random numbers, which a check is not to use up
        cls.from_text(parameters, 1, torch.Generator())
        return parameters

    def forward(self, scores: Tensor) -> Tensor:
        """Map ``(batch, heads, queries, keys)`` to probabilities of the same shape."""
        raise NotImplementedError

    @property
    def risen(self) -> float:
        """How far it has risen from softmax, 0, to itself, 1."""
        return 1.0 if self.rise is None else self.rise.share

    def on_its_way(self, value: Number) -> Number:
        """A number that has risen to ``value`` from 0, where the mapping is softmax."""
        return value if self.risen == 1.0 else self.risen * value

    def head_values(self) -> dict[str, Tensor]:
        """Numbers worth watching, by name: ``(heads,)``, or ``(1,)`` where all heads share one."""
        return {}

    @property
    def learned(self) -> tuple[str, ...]:
        """Which of :meth:`head_values` training changes: all, if there is anything to learn."""
        return tuple(self.head_values()) if any(True for _ in self.parameters()) else ()

    @property
    def changing(self) -> tuple[str, ...]:
        """Which of :meth:`head_values` are other ones in the course of a training: learned, or rising."""
        return self.learned if self.rise is None else tuple(self.head_values())

    def learns(self, name: str) -> list[bool]:
        """Of each number that :meth:`head_values` has of this name, whether training changes it."""
        return [name in self.learned] * self.head_values()[name].numel()

    def changes(self, name: str) -> list[bool]:
        """As :meth:`learns`, with those that rise."""
        return [name in self.changing] * self.head_values()[name].numel()

    def keep_heads(self, indices: Sequence[int]) -> None:
        """Forget all heads but these, in this order, as pruning does.

        Args:
            indices: heads from 0, at least one.
        """

    def epsilon(self) -> float | Tensor | None:
        """alpha - 1, for a kernel for the whole of attention, where the mapping is alpha-entmax.

        Kernels have it from here, as the difference of an alpha near 1 has no digits left. A number above
        0, or ``(heads,)``, or ``(1,)`` for all heads; None, unless a class says otherwise.
        """
        return None

    def score_scale(self) -> float | Tensor | None:
        """What scores are multiplied by first, or queries before a kernel: a number, ``(heads,)``, ``(1,)``, or None."""
        return None

    def scaled(self, scores: Tensor) -> Tensor:
        """Scores times :meth:`score_scale`, with which :meth:`forward` begins where there is one."""
        scale = self.score_scale()
        if not isinstance(scale, Tensor):
            return scores if scale is None else scores * scale
        masked = scores == -torch.inf  # a product with -inf would have NaN as its gradient
        product = scores.masked_fill(masked, 0.0) * for_scores(scale, scores)
        return product.to(scores.dtype).masked_fill(masked, -torch.inf)

    def epsilon_holds(self) -> bool:
        """Whether :meth:`epsilon` speaks of this :meth:`forward`, which nobody has changed or watches."""
        return self._is_of_forward("epsilon") and not has_hook(self)

    def _is_of_forward(self, method: str) -> bool:
        mapping_class: Any = type(self)
        return "forward" not in self.__dict__ and _is_forward_beside(
            mapping_class, mapping_class.forward, method
        )

    def exported(self) -> nn.Module:
        """:meth:`scriptable`, or its ValueError where it does not speak of this :meth:`forward`."""
        if not self._is_of_forward("scriptable"):
            raise refusal(type(self).__name__)
        return self.scriptable()

    def scriptable(self) -> nn.Module:
        """What does the same to :meth:`scaled` scores in TorchScript and ONNX, with its numbers as constants.

        Raises:
            ValueError: there is nothing of the kind; so it is unless a class says otherwise.
        """
        raise refusal(type(self).__name__)

    def convert(self, state_dict: dict[str, Any], prefix: str) -> None:
        """Store by our own factors what a state dict has of our parameters, under this prefix."""
        for path, part in self.named_modules():
            if isinstance(part, Mapping):
                part._convert_parameters(state_dict, f"{prefix}{path}." if path else prefix)

    def _convert_parameters(self, state_dict: dict[str, Any], prefix: str) -> None:
        names = [name for name, parameter in self._parameters.items() if parameter is not None]
        if names:
            factors.convert(state_dict, prefix, names, self.lr_factor)

    def _save_factor(self) -> None:
        """Have checkpoints say by which factor our own parameters are stored, where it is not 1."""
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
    """Whether a mapping's ``forward`` is that of the class whose ``method`` it has."""
    owner = next(base for base in mapping_class.__mro__ if method in vars(base))
    return forward is owner.forward


def has_hook(module: Any) -> bool:
    """Whether somebody sees, or changes, what a module does."""
    return bool(
        module._forward_hooks
        or module._forward_pre_hooks
        or module._backward_hooks
        or module._backward_pre_hooks
    )


class OfHeads(Mapping):
    """A mapping of numbers that are fixed or learned, one for each head or one for all."""

    # Text parameters to what reads their values, given the name, too: a text once, where it enters
    readers: ClassVar[dict[str, Callable[[Any, str], Any]]] = {
        "share": check_share,
        LR_FACTOR: check_lr_factor,
        TEMPERATURE: or_learned(check_gamma),
        INITIAL: check_gamma,
        WARMUP: check_warmup,
    }
    text_parameters: ClassVar[tuple[str, ...]] = tuple(readers)
    # Numbers that may be learned to their parameters; text parameters of initial values to the numbers
    parameter_of: ClassVar[dict[str, str]] = {TEMPERATURE: "log_temperature"}
    init_of: ClassVar[dict[str, str]] = {INITIAL: TEMPERATURE}
    fixed_temperature = 1.0

    @classmethod
    def read(cls, given: Dictionary[str, Any]) -> dict[str, Any]:
        """What texts, or arguments in Python, say by :attr:`readers`; nothing of None."""
        known = ((name, value) for name, value in given.items() if value is not None)
        return {name: cls.readers[name](value, name) for name, value in known}

    def _set_numbers(self, values: dict[str, Any], count: int, generator: Generator) -> None:
        """Take numbers of :attr:`readers`, but for the temperature, with so many of each that is learned."""
        raise NotImplementedError

    @classmethod
    def from_text(cls, parameters: dict[str, Any], num_heads: int, generator: Generator) -> OfHeads:
        make: Any = cls
        mapping: OfHeads = make(2.0)  # sparsemax, as long as it has no other numbers
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
        """What scores are divided by: gamma of Niculae and Blondel 2017, section 2. It does not rise."""
        log = getattr(self, "log_temperature", None)
        return self.fixed_temperature if log is None else value_of(log, self.lr_factor).exp()

    def score_scale(self) -> float | Tensor | None:
        temperature = self.temperature
        return None if isinstance(temperature, float) and temperature == 1.0 else 1.0 / temperature

    def numbers(self) -> dict[str, float | Tensor]:
        """What is in use: a number, or ``(heads,)`` or ``(1,)`` where it is learned."""
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
                    what = f"a value of {name} that is learned, and {fixed[name]} is fixed: leave one out"
                raise ValueError(f"{init} is for {what}")
        for option in ("share", LR_FACTOR):
            if option in parameters and not learned:
                texts = [fixed[name] for name in cls.init_of.values() if name in fixed]
                verb = "is" if len(texts) == 1 else "are"
                raise ValueError(
                    f"{option} is for what is learned, and {' and '.join(texts)} {verb} fixed: "
                    f"leave one out"
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

    @property
    def changing(self) -> tuple[str, ...]:
        return tuple(one for one in super().changing if one != TEMPERATURE or one in self.learned)

    def keep_heads(self, indices: Sequence[int]) -> None:
        for name in self.learned if self.share == SHARE_NONE else ():
            attribute = self.parameter_of[name]
            setattr(
                self,
                attribute,
                nn.Parameter(getattr(self, attribute).detach()[list(indices)].clone()),
            )

    def extra_repr(self) -> str:
        fixed = self.numbers().items()
        texts = [f"{name}={value}" for name, value in fixed if name not in self.learned]
        if self.learned:
            count = sum(parameter.numel() for parameter in self.parameters())
            texts.append(f"{' and '.join(self.learned)} learned, {count} values")
        if self.learned and self.lr_factor != NO_FACTOR:
            texts.append(f"{LR_FACTOR}={self.lr_factor:g}")
        return ", ".join(texts)
