"""The entmax loss, for models whose output gives most words a probability of exactly 0."""

# No ``from __future__ import annotations``: fairseq reads the types of options at run time
import math
from dataclasses import dataclass
from typing import Any

from fairseq import utils
from fairseq.criterions import FairseqCriterion, register_criterion
from fairseq.dataclass import FairseqDataclass
from fairseq.logging import metrics
from omegaconf import II
from torch import Tensor

from fairseq_entmax import command_errors, compat
from fairseq_entmax.criterions.head_l0 import with_head_l0
from fairseq_entmax.mappings.functional import check_alpha
from fairseq_entmax.mappings.losses import entmax_loss_parts

NAME = "entmax_loss"
SOFTMAX = 1.0


@dataclass
class EntmaxLossConfig(FairseqDataclass):
    """Options of the criterion ``entmax_loss``."""

    loss_alpha: float = compat.option(
        1.5,
        "alpha of the loss, and of the entmax that turns the model's scores into word "
        "probabilities, from 1 (cross-entropy and softmax) to 2 (sparsemax)",
    )
    label_smoothing: float = compat.option(0.0, "label smoothing, from 0 (none) to below 1")
    ignore_prefix_size: int = compat.option(0, "ignore the first N tokens")
    sentence_avg: bool = II("optimization.sentence_avg")


@register_criterion(NAME, dataclass=EntmaxLossConfig)
class EntmaxLossCriterion(FairseqCriterion):
    """The Fenchel-Young loss of alpha-entmax over the words of the vocabulary.

    For scores z, p = entmax(z) and a target q (1 at the right word, or smoothed as fairseq's
    cross-entropy smooths it), the loss of a word is (p - q) z + H(p), where H is Tsallis' entropy.
    Its gradient is p - q. Without smoothing it is 0 as soon as the right word's score is above all
    others by 1 / (alpha - 1). The constant -H(q) is left out, so at alpha = 1 the loss is fairseq's
    label-smoothed cross-entropy.

    Takes the arguments of :class:`EntmaxLossConfig`; raises ValueError if one is out of range.

    Source:
        Peters, Niculae and Martins 2019, *Sparse Sequence-to-Sequence Models*; Blondel, Martins
        and Niculae 2020, *Learning with Fenchel-Young Losses*; for smoothing Peters and Martins
        2021, *Smoothing and Shrinking the Sparse Seq2Seq Search Space*.
    """

    reads_scores_alone = True

    def __init__(
        self,
        task: Any,
        loss_alpha: float,
        label_smoothing: float,
        sentence_avg: bool,
        ignore_prefix_size: int = 0,
    ) -> None:
        super().__init__(task)
        with command_errors.stopping_command():
            check_alpha(loss_alpha, "--loss-alpha")
            check_smoothing(label_smoothing)
        self.alpha = float(loss_alpha)
        self.label_smoothing = float(label_smoothing)
        self.sentence_avg = sentence_avg
        self.ignore_prefix_size = ignore_prefix_size

    def check_model(self, model: Any) -> None:
        """Check that a model's probabilities are those that the loss trains."""
        options = getattr(model, "attention_options", None)
        if options is None or not hasattr(model, "decoder"):
            raise ValueError(
                f"--criterion {NAME} needs a model of this package that generates words, such as "
                f"--arch entmax_transformer, not {type(model).__name__}"
            )
        of_output = options.output_alpha
        if of_output != self.alpha:
            raise ValueError(
                f"--loss-alpha {self.alpha:g} is not the alpha of the model's output, {of_output:g}: "
                f"give --loss-alpha {of_output:g}, or in training leave --output-alpha out"
            )

    def forward(
        self, model: Any, sample: Any, reduce: bool = True
    ) -> tuple[Tensor, int, dict[str, Any]]:
        """The loss of one batch: arguments and result are those of fairseq's criterion."""
        net_output = model(**sample["net_input"])
        logits, target = net_output[0], model.get_targets(sample, net_output)
        is_real = target.ne(self.padding_idx)
        is_real[:, : self.ignore_prefix_size] = False
        # The current alpha, as it may be rising
        parts = entmax_loss_parts(logits, target, model.output_alpha, self.label_smoothing)
        loss = parts.loss.masked_fill(~is_real, 0.0)
        is_reached = is_real & (parts.target_prob > 0)
        logged = {
            "support": (parts.support * is_real).sum(),
            "reached": is_reached.sum(),
            "n_correct": (logits.detach().argmax(-1).eq(target) & is_real).sum(),
            "total": is_real.sum(),
            "alpha": is_real.sum() * model.output_alpha,
        }
        if self.alpha == SOFTMAX:  # otherwise a target may have probability 0, and infinite loss
            scores = logits.detach().float()
            of_target = scores.gather(-1, target[..., None]).squeeze(-1)
            logged["nll_loss"] = ((scores.logsumexp(-1) - of_target) * is_real).sum()
        return losses_and_log(loss, sample["ntokens"], self.sentence_avg, reduce, logged)

    @classmethod
    def reduce_metrics(cls, logging_outputs: list[dict[str, Any]]) -> None:
        """Aggregate what batches and workers logged.

        ``loss`` is divided by ln 2, like all of fairseq's losses. ``accuracy`` is the percentage of
        targets with the highest score, ``support`` the mean number of words with a probability
        above 0, ``in_support`` the percentage of targets among these, and ``loss_alpha`` the current
        alpha. ``nll_loss`` and ``ppl`` exist only at alpha = 1: one target outside the support makes
        them infinite.
        """

        def total(name: str) -> Any:
            return utils.item(sum(log.get(name, 0) for log in logging_outputs))

        sample_size, words = total("sample_size"), total("total")
        metrics.log_scalar("loss", total("loss") / sample_size / math.log(2), sample_size, round=3)
        if not words:
            return
        for name, logged, factor in (
            ("accuracy", "n_correct", 100),
            ("support", "support", 1),
            ("in_support", "reached", 100),
            ("loss_alpha", "alpha", 1),
        ):
            metrics.log_scalar(name, factor * total(logged) / words, words, round=3)
        if any("nll_loss" in log for log in logging_outputs):
            nll = total("nll_loss") / words / math.log(2)
            metrics.log_scalar("nll_loss", nll, words, round=3)
            metrics.log_derived("ppl", lambda meters: utils.get_perplexity(meters["nll_loss"].avg))

    @staticmethod
    def logging_outputs_can_be_summed() -> bool:
        return True


def losses_and_log(
    losses: Tensor, tokens: int, sentence_avg: bool, reduce: bool, logged: dict[str, Tensor]
) -> tuple[Tensor, int, dict[str, Any]]:
    """What a criterion returns, from a batch's losses ``(batch, words)`` and the values to log."""
    sentences = losses.size(0)
    size = sentences if sentence_avg else tokens
    total = losses.sum() if reduce else losses.reshape(-1, 1)
    numbers = {"loss": total, **logged}
    about = {"ntokens": tokens, "nsentences": sentences, "sample_size": size}
    return total, size, {**about, **{name: one.detach() for name, one in numbers.items()}}


def check_smoothing(smoothing: float) -> None:
    """Raise ValueError unless ``--label-smoothing`` is from 0 to below 1."""
    if not 0 <= smoothing < 1:
        raise ValueError(f"--label-smoothing must be from 0 to below 1, not {smoothing}")


EntmaxLossWithHeadL0 = with_head_l0(EntmaxLossCriterion)
