"""Cross-entropy of models that copy, and an auxiliary loss for their copy heads."""

# No ``from __future__ import annotations``: fairseq reads the types of options at run time
import math
from dataclasses import dataclass
from typing import Any

import torch
from fairseq.criterions import register_criterion
from fairseq.criterions.label_smoothed_cross_entropy import (
    LabelSmoothedCrossEntropyCriterion,
    LabelSmoothedCrossEntropyCriterionConfig,
)
from fairseq.logging import metrics
from torch import Tensor

from fairseq_entmax import command_errors, compat
from fairseq_entmax.attention.copying import CopyParts, mixture_log_probs, mixture_loss
from fairseq_entmax.criterions.head_l0 import with_head_l0
from fairseq_entmax.criterions.sparse_output import check_smoothing, losses_and_log
from fairseq_entmax.mappings import Mapping
from fairseq_entmax.mappings.base import TEMPERATURE
from fairseq_entmax.mappings.losses import fenchel_young_loss

NAME = "copy_cross_entropy"


@dataclass
class CopyCrossEntropyConfig(LabelSmoothedCrossEntropyCriterionConfig):
    """fairseq's options of label-smoothed cross-entropy, and those of the auxiliary loss."""

    copy_loss_weight: float = compat.option(
        0.0,
        "weight of a Fenchel-Young loss that trains copy heads to find the target's positions in "
        "the source, so that sparse copy heads start to learn; 0: none",
    )
    copy_loss_alone: bool = compat.option(
        False,
        "copy heads learn what to copy only from the loss of --copy-loss-weight, not from the "
        "cross-entropy, whose gradient is unbounded for sparse heads",
    )


@register_criterion(NAME, dataclass=CopyCrossEntropyConfig)
class CopyCrossEntropyCriterion(LabelSmoothedCrossEntropyCriterion):
    """Label-smoothed cross-entropy of the mixture of generator and copy, in log space.

    Only the generator's words get smoothing, not the markers. A target that neither part can
    produce, such as a marker whose word was cut off the source, costs only its smoothing; such
    targets are counted, and the perplexity leaves them out.

    With ``--copy-loss-weight w``, each target that occurs in the source adds w times the mean
    Fenchel-Young loss of the copy heads against equal weights on its occurrences. A sparse head
    that gives them no weight has no other gradient there. With ``--copy-loss-alone``, copy heads
    learn what to copy only from this loss. The gradient of the cross-entropy with respect to a
    weight is (1 - g) / p(target): softmax multiplies it by the weight, but a sparse mapping passes
    it on unchanged, however small p is.

    Arguments are those of fairseq and :class:`CopyCrossEntropyConfig`; a ValueError names one
    that is out of range.
    """

    def __init__(
        self,
        task: Any,
        sentence_avg: bool,
        label_smoothing: float,
        ignore_prefix_size: int = 0,
        report_accuracy: bool = False,
        copy_loss_weight: float = 0.0,
        copy_loss_alone: bool = False,
    ) -> None:
        super().__init__(task, sentence_avg, label_smoothing, ignore_prefix_size, report_accuracy)
        with command_errors.stopping_command():
            check_smoothing(label_smoothing)
            if not 0 <= copy_loss_weight <= 1e6:
                raise ValueError(
                    f"--copy-loss-weight must be from 0 to 1e6, not {copy_loss_weight}"
                )
            if copy_loss_alone and not copy_loss_weight:
                raise ValueError(
                    "--copy-loss-alone leaves copy heads nothing to learn from with "
                    "--copy-loss-weight 0: give a weight above 0"
                )
        self.copy_loss_weight = copy_loss_weight
        self.copy_loss_alone = copy_loss_alone

    def check_model(self, model: Any) -> None:
        """Check that a model copies, and that its copy heads suit the auxiliary loss."""
        if not hasattr(getattr(model, "decoder", None), "give_copy_scores"):
            raise ValueError(
                f"--criterion {NAME} needs a model that copies: give --arch "
                f"entmax_copy_transformer or another entmax_copy_… architecture, or --criterion "
                f"label_smoothed_cross_entropy"
            )
        values = _values_of_copy_heads(model)
        values.pop(TEMPERATURE, None)  # scores have it already
        alphas = values.pop("alpha", torch.tensor(torch.nan))
        is_other = alphas.isnan().any() or not all(v.isnan().all() for v in values.values())
        if self.copy_loss_weight and is_other:
            raise ValueError(
                "--copy-loss-weight needs copy heads with softmax, sparsemax or alpha-entmax: give "
                "--copy-mapping one of these, or leave --copy-loss-weight out"
            )

    def forward(
        self, model: Any, sample: Any, reduce: bool = True
    ) -> tuple[Tensor, int, dict[str, Any]]:
        """The loss of one batch: arguments and result are those of fairseq's criterion."""
        if self.copy_loss_weight:
            model.decoder.give_copy_scores()
        logits, extra = model(**sample["net_input"], mixed=False)
        target = model.get_targets(sample, (logits, extra))
        parts: CopyParts = extra["copy"]
        is_real = target.ne(self.padding_idx)
        is_real[:, : self.ignore_prefix_size] = False

        mixed = parts._replace(weights=parts.weights.detach()) if self.copy_loss_alone else parts
        mixture = mixture_loss(logits, mixed, target, with_smooth=self.eps > 0)
        num_words = logits.size(-1)
        loss = mixture.nll
        if mixture.smooth is not None:
            loss = self._smoothed(mixture.nll, mixture.smooth, target < num_words, num_words)
        loss = loss * is_real
        copyable = is_real & (parts.source[:, None, :] == target[..., None]).any(-1)
        logged = {
            "nll_loss": (mixture.nll * is_real).sum(),
            "unreachable": (is_real & ~mixture.reachable).sum(),
            "copyable": copyable.sum(),
            "in_copy_support": (copyable & (mixture.copied > 0)).sum(),
            "copy_share": (torch.sigmoid(-parts.switch) * is_real).sum(),
        }
        if self.copy_loss_weight:
            alphas = _values_of_copy_heads(model)["alpha"]
            aid = copy_loss(parts, target, alphas, copyable)
            loss = loss + self.copy_loss_weight * aid.to(loss.dtype)
            logged["copy_loss"] = aid.sum()
        if self.report_accuracy:
            logged |= self._accuracy(model, logits, parts, target, is_real)
        return losses_and_log(loss, sample["ntokens"], self.sentence_avg, reduce, logged)

    def _smoothed(self, nll: Tensor, smooth: Tensor, is_word: Tensor, num_words: int) -> Tensor:
        """fairseq's smoothing: the target gets 1 - eps, the generator's other words share eps."""
        to_each = torch.where(is_word, self.eps / (num_words - 1), self.eps / num_words)
        of_target = torch.where(is_word, 1.0 - self.eps - to_each, 1.0 - self.eps)
        return of_target.to(nll.dtype) * nll + to_each.to(nll.dtype) * smooth

    def _accuracy(
        self, model: Any, logits: Tensor, parts: CopyParts, target: Tensor, is_real: Tensor
    ) -> dict[str, Tensor]:
        with torch.no_grad():
            best = mixture_log_probs(logits, parts, model.decoder.num_words).argmax(-1)
        return {"n_correct": (best.eq(target) & is_real).sum(), "total": is_real.sum()}

    @classmethod
    def reduce_metrics(cls, logging_outputs: list[dict[str, Any]]) -> None:
        """Aggregate what batches and workers logged.

        In addition to fairseq's: ``copy_share``, the mean of 1 - g; ``unreachable``, the percentage
        of targets that neither part can produce; and for targets in the source ``copy_support``,
        the percentage that get weight from the copy, and ``copy_loss``, the mean auxiliary loss.
        """
        super().reduce_metrics(
            [
                # The number of tokens that the perplexity is divided by
                {**log, "ntokens": max(1, log.get("ntokens", 0) - log.get("unreachable", 0))}
                for log in logging_outputs
            ]
        )

        def total(name: str) -> Any:
            return sum(log.get(name, 0) for log in logging_outputs)

        tokens, copyable = total("ntokens"), total("copyable")
        if tokens > 0:
            metrics.log_scalar("copy_share", total("copy_share") / tokens, tokens, round=3)
            metrics.log_scalar("unreachable", 100 * total("unreachable") / tokens, tokens, round=3)
        if copyable > 0:
            supported = 100 * total("in_copy_support") / copyable
            metrics.log_scalar("copy_support", supported, copyable, round=2)
            if any("copy_loss" in log for log in logging_outputs):
                aid = total("copy_loss") / copyable / math.log(2)
                metrics.log_scalar("copy_loss", aid, copyable, round=3)


def copy_loss(parts: CopyParts, target: Tensor, alphas: Tensor, copyable: Tensor) -> Tensor:
    """The mean Fenchel-Young loss of the copy heads, for each word of the target.

    It is 0 for words that are not ``copyable``: they do not occur in the source, or are padding.
    """
    assert parts.head_scores is not None
    assert parts.head_weights is not None
    occurs = (parts.source[:, None, :] == target[..., None]) & copyable[..., None]
    wanted = occurs.to(parts.head_scores.dtype) / occurs.sum(-1, keepdim=True).clamp(min=1)
    losses = fenchel_young_loss(
        parts.head_scores,
        parts.head_weights,
        wanted.expand_as(parts.head_scores),
        alphas.to(parts.head_scores)[:, None, None],
    )
    return losses.mean(0) * copyable


def _values_of_copy_heads(model: Any) -> dict[str, Tensor]:
    """What :meth:`Mapping.head_values` has for the copy heads of a model: ``(heads,)`` each."""
    attention = model.decoder.copy_attention()
    heads = list(model.decoder.copy.copy_heads)
    mapping: Mapping = attention.mapping
    return {
        name: value.detach().expand(attention.num_heads)[heads]
        for name, value in mapping.head_values().items()
    }


with_head_l0(CopyCrossEntropyCriterion)
