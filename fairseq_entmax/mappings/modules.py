"""Mappings from attention scores to probabilities, as modules.

A mapping takes scores ``(batch, heads, queries, keys)`` and returns probabilities of the
same shape; it owns what it learns. A new mapping subclasses :class:`Mapping`, says which
parameters its text form takes, and gets one line in ``registry.py``.
"""

from __future__ import annotations

from typing import Any, ClassVar

import torch
import torch.nn.modules.module as nn_module
from torch import Tensor, nn

from fairseq_entmax.mappings.functional import (
    check_alpha,
    logit_of_alpha,
    map_scores,
)

NORMAL = "normal"


class Mapping(nn.Module):
    """Scores to probabilities. Masked keys (``-inf``) get exactly zero."""

    # The parameters that the text form takes, such as ("alpha",).
    text_parameters: ClassVar[tuple[str, ...]] = ()

    @classmethod
    def from_text(
        cls,
        parameters: dict[str, str],
        num_alphas: int,
        alpha_init: str | float,
        generator: torch.Generator | None,
    ) -> Mapping:
        """Build the mapping that a text names.

        Args:
            parameters: what stood behind the name, names to values, both as text.
            num_alphas: how many alphas to learn, where the mapping learns any: the number
                of heads, or 1 for one that all heads share.
            alpha_init: starting value of a learned alpha, see :class:`Entmax`.
            generator: where random starting values come from; None is torch's own.

        Raises:
            ValueError: a value is not allowed.
        """
        return cls()

    @property
    def alpha(self) -> float | Tensor:
        """The alpha in use: a number, or ``(num_alphas,)`` where it is learned."""
        raise NotImplementedError

    @property
    def fusible_alpha(self) -> float | Tensor | None:
        """The alpha that a kernel for the whole of attention can be given in place of this mapping.

        A number, or ``(num_alphas,)``; None where the mapping is to be called itself: that is
        so unless a class says otherwise.
        """
        return None

    def forward(self, scores: Tensor) -> Tensor:
        """Map ``(batch, heads, queries, keys)`` to probabilities of the same shape."""
        raise NotImplementedError


class _FixedEntmax(Mapping):
    """Alpha-entmax with a constant alpha, which a subclass names."""

    fixed_alpha: ClassVar[float]

    @property
    def alpha(self) -> float:
        return self.fixed_alpha

    @property
    def fusible_alpha(self) -> float | None:
        # Softmax has torch's own kernels, and is to give fairseq's numbers
        return None if self.fixed_alpha == 1.0 else self.fixed_alpha

    def forward(self, scores: Tensor) -> Tensor:
        return map_scores(scores, self.fixed_alpha)


class Softmax(_FixedEntmax):
    """Softmax, the control: every key that is not masked gets some weight."""

    fixed_alpha = 1.0


class Entmax15(_FixedEntmax):
    """1.5-entmax (Peters et al. 2019)."""

    fixed_alpha = 1.5


class Sparsemax(_FixedEntmax):
    """Sparsemax (Martins and Astudillo 2016)."""

    fixed_alpha = 2.0


class Entmax(Mapping):
    """Alpha-entmax, with alpha fixed or learned (Correia et al. 2019, section 3).

    A learned alpha is ``1 + sigmoid(a)`` (eq. 10), so that it is in range whatever the
    optimiser does.

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

    text_parameters = ("alpha",)

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
        cls,
        parameters: dict[str, str],
        num_alphas: int,
        alpha_init: str | float,
        generator: torch.Generator | None,
    ) -> Entmax:
        alpha = check_alpha(parameters["alpha"]) if "alpha" in parameters else None
        return cls(alpha, num_alphas, alpha_init, generator)

    @property
    def alpha(self) -> float | Tensor:
        if self.alpha_logit is None:
            assert self.fixed_alpha is not None
            return self.fixed_alpha
        logit = self.alpha_logit
        # Not in half precision, even where the model is: alpha near 1 needs the digits
        return 1.0 + torch.sigmoid(logit if logit.dtype == torch.float64 else logit.float())

    @property
    def fusible_alpha(self) -> float | Tensor | None:
        alpha = self.alpha
        return None if isinstance(alpha, float) and alpha == 1.0 else alpha

    def forward(self, scores: Tensor) -> Tensor:
        alpha = self.alpha
        if isinstance(alpha, Tensor):
            alpha = alpha.view(-1, 1, 1)
        return map_scores(scores, alpha)

    def extra_repr(self) -> str:
        if self.alpha_logit is None:
            return f"alpha={self.fixed_alpha}"
        return f"alpha learned, {self.alpha_logit.numel()} values"


def is_fusible(mapping: Mapping) -> bool:
    """Whether a kernel may do what calling the mapping would: nobody changed or watches it."""
    owner: Any = next(c for c in type(mapping).__mro__ if "fusible_alpha" in vars(c))
    hooks = (
        *(mapping._forward_hooks, mapping._forward_pre_hooks),
        *(mapping._backward_hooks, mapping._backward_pre_hooks),
        *(nn_module._global_forward_hooks, nn_module._global_forward_pre_hooks),
        *(nn_module._global_backward_hooks, nn_module._global_backward_pre_hooks),
    )
    # A class below the one that names the alpha may have another forward
    is_own = type(mapping).forward is owner.forward and "forward" not in vars(mapping)
    return is_own and not any(hooks)


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


def _initial_logits(
    num_alphas: int, alpha_init: str | float, generator: torch.Generator | None
) -> Tensor:
    checked = check_alpha_init(alpha_init)
    if isinstance(checked, str):
        return torch.randn(num_alphas, generator=generator)
    return torch.full((num_alphas,), logit_of_alpha(checked))
