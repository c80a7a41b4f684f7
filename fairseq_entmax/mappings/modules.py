"""Mappings from attention scores to probabilities, as modules.

A mapping takes scores ``(batch, heads, queries, keys)`` and returns probabilities of the
same shape. It owns everything about itself: what it learns, what of it is worth watching, what
is left of it when heads are pruned, and whether a kernel can take its place. A new one
subclasses :class:`Mapping` and gets one line in ``registry.py``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from fairseq_entmax.kernels import FusedEntmax
from fairseq_entmax.mappings.functional import (
    check_alpha,
    logit_of_alpha,
    map_scores,
)

NORMAL = "normal"

# How far one learned value reaches
SHARE_NONE, SHARE_LAYER, SHARE_ATTENTION, SHARE_MODEL = "none", "layer", "attention", "model"
SHARING = (SHARE_NONE, SHARE_LAYER, SHARE_ATTENTION, SHARE_MODEL)


class Mapping(nn.Module):
    """Scores to probabilities. Masked keys (``-inf``) get exactly zero.

    A subclass writes :meth:`forward`, and :meth:`head_values` and :meth:`keep_heads` where it
    has something for each head.

    Attributes:
        text_parameters: what the text form takes, such as ``("alpha",)`` for
            ``entmax:alpha=1.5``.
        share: how far its parameters reach, one of :data:`SHARING`. Beyond one layer, the
            model makes mappings of the same class use the same parameters.
        needs_words_alone: whether keys have to be words in their order, so that an attention with
            ``add_bias_kv`` or ``add_zero_attn``, whose keys are more than that, refuses it.
    """

    text_parameters: ClassVar[tuple[str, ...]] = ()
    share = SHARE_NONE
    needs_words_alone = False

    @classmethod
    def from_text(
        cls, parameters: dict[str, str], num_heads: int, generator: torch.Generator | None
    ) -> Mapping:
        """Build the mapping that a text names; without parameters unless a class says otherwise.

        Args:
            parameters: what stood behind the name, names to values, both as text.
            num_heads: number of heads of the scores, 1 or more.
            generator: where random starting values come from; None is torch's own.

        Raises:
            ValueError: a value is not allowed.
        """
        return cls()

    @classmethod
    def check_text(cls, parameters: dict[str, str]) -> None:
        """Refuse wrong values as soon as the text is read, when no number of heads is known.

        Builds the mapping of one head unless a class says otherwise.

        Raises:
            ValueError: a value is not allowed.
        """
        # Not with torch's own random numbers, which a check is not to use up
        cls.from_text(parameters, 1, torch.Generator())

    def forward(self, scores: Tensor) -> Tensor:
        """Map ``(batch, heads, queries, keys)`` to probabilities of the same shape."""
        raise NotImplementedError

    def head_values(self) -> dict[str, Tensor]:
        """Numbers worth watching, by name: ``(heads,)``, or ``(1,)`` where all heads share one."""
        return {}

    @property
    def learned(self) -> tuple[str, ...]:
        """Which of :meth:`head_values` training changes: all, if there is anything to learn."""
        return tuple(self.head_values()) if any(True for _ in self.parameters()) else ()

    def keep_heads(self, indices: Sequence[int]) -> None:
        """Forget all heads but these, in this order, as pruning does.

        Args:
            indices: heads from 0, at least one.
        """

    def fused(self) -> FusedEntmax | None:
        """What a kernel for the whole of attention needs to do what this mapping does.

        None where the mapping is to be called itself: that is so unless a class says otherwise.
        """
        return None

    def is_fused_forward(self) -> bool:
        """Whether :meth:`fused` speaks of this :meth:`forward`, which nobody has changed since."""
        kind: Any = type(self)
        owner = next(base for base in kind.__mro__ if "fused" in vars(base))
        return kind.forward is owner.forward and "forward" not in vars(self)


class Entmax(Mapping):
    """Alpha-entmax, with alpha fixed or learned (Correia et al. 2019, section 3).

    A learned alpha is ``1 + sigmoid(a)`` (eq. 10), so that it is in range whatever the
    optimiser does. With alpha fixed at 1 it is softmax, at 2 sparsemax (Martins and Astudillo
    2016), at 1.5 the 1.5-entmax of Peters et al. 2019.

    Args:
        alpha: a number in [1, 2] that stays; ``None`` learns it.
        num_alphas: how many are learned: the number of heads, or 1 for all heads together.
        alpha_init: where they start: ``"normal"`` draws ``a`` from N(0, 1), the paper's
            choice; a number strictly between 1 and 2 starts every alpha there. Unused when
            alpha is fixed.
        generator: where the draws come from; None is torch's own.

    Attributes:
        alpha_logit: parameter ``(num_alphas,)``, the ``a`` of eq. 10; ``None`` when alpha
            is fixed.

    Raises:
        ValueError: ``alpha``, ``num_alphas`` or ``alpha_init`` is out of range.
    """

    text_parameters = ("alpha", "init", "share")

    def __init__(
        self,
        alpha: float | None = None,
        num_alphas: int = 1,
        alpha_init: str | float = NORMAL,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        self.fixed_alpha = None if alpha is None else check_alpha(alpha)
        self.alpha_logit: nn.Parameter | None = None
        if self.fixed_alpha is None:
            if num_alphas < 1:
                raise ValueError(f"num_alphas must be at least 1, not {num_alphas}")
            self.alpha_logit = nn.Parameter(_initial_logits(num_alphas, alpha_init, generator))

    @classmethod
    def from_text(
        cls, parameters: dict[str, str], num_heads: int, generator: torch.Generator | None
    ) -> Entmax:
        alpha = check_alpha(parameters["alpha"]) if "alpha" in parameters else None
        check_alpha_init(parameters.get("init", NORMAL), "init")
        share = check_share(parameters.get("share", SHARE_NONE), "share")
        num_alphas = num_heads if share == SHARE_NONE else 1
        mapping = cls(alpha, num_alphas, parameters.get("init", NORMAL), generator)
        mapping.share = share
        return mapping

    @classmethod
    def check_text(cls, parameters: dict[str, str]) -> None:
        super().check_text(parameters)
        unused = [
            name for name in ("init", "share") if "alpha" in parameters and name in parameters
        ]
        if unused:
            raise ValueError(
                f"{' and '.join(unused)} are for an alpha that is learned, and alpha="
                f"{parameters['alpha']} is fixed: leave one out"
            )

    @property
    def alpha(self) -> float | Tensor:
        """The alpha in use: a number, or ``(num_alphas,)`` where it is learned."""
        if self.alpha_logit is None:
            assert self.fixed_alpha is not None
            return self.fixed_alpha
        logit = self.alpha_logit
        # Not in half precision, even where the model is: alpha near 1 needs the digits
        return 1.0 + torch.sigmoid(logit if logit.dtype == torch.float64 else logit.float())

    @property
    def is_softmax(self) -> bool:
        """Whether it is softmax whatever it is trained with."""
        return self.fixed_alpha == 1.0

    def forward(self, scores: Tensor) -> Tensor:
        alpha = self.alpha
        if isinstance(alpha, Tensor):
            alpha = alpha.view(-1, 1, 1)
        return map_scores(scores, alpha)

    def head_values(self) -> dict[str, Tensor]:
        return {"alpha": torch.as_tensor(self.alpha, dtype=torch.float64).view(-1)}

    def keep_heads(self, indices: Sequence[int]) -> None:
        if self.alpha_logit is not None and self.share == SHARE_NONE:
            self.alpha_logit = nn.Parameter(self.alpha_logit.detach()[list(indices)].clone())

    def fused(self) -> FusedEntmax | None:
        # Softmax has torch's own kernels, and is to give fairseq's numbers
        return None if self.is_softmax else FusedEntmax(self.alpha - 1.0)

    def extra_repr(self) -> str:
        if self.alpha_logit is None:
            return f"alpha={self.fixed_alpha}"
        return f"alpha learned, {self.alpha_logit.numel()} values"


def check_alpha_init(alpha_init: str | float, name: str = "alpha_init") -> str | float:
    """Return ``alpha_init``, as the text ``normal`` or as a number.

    Raises:
        ValueError: it is neither ``normal`` nor strictly between 1 and 2.
    """
    if alpha_init == NORMAL:
        return NORMAL
    try:
        number = float(alpha_init)
    except (TypeError, ValueError):
        raise ValueError(
            f"{name} must be '{NORMAL}' or a number strictly between 1 and 2, not {alpha_init!r}"
        ) from None
    logit_of_alpha(number, name)
    return number


def check_share(share: str, name: str) -> str:
    """Return ``share``.

    Raises:
        ValueError: it is none of :data:`SHARING`.
    """
    if share not in SHARING:
        raise ValueError(f"{name} must be one of {', '.join(SHARING)}, not {share!r}")
    return share


def _initial_logits(
    num_alphas: int, alpha_init: str | float, generator: torch.Generator | None
) -> Tensor:
    checked = check_alpha_init(alpha_init)
    if isinstance(checked, str):
        return torch.randn(num_alphas, generator=generator)
    return torch.full((num_alphas,), logit_of_alpha(checked))
