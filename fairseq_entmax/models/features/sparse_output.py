"""Word probabilities that may be exactly zero."""

from dataclasses import dataclass
from typing import Any

from fairseq_entmax.attentions import DECODER_SELF
from fairseq_entmax.criterions.sparse_output import (
    NAME,
    SOFTMAX,
    EntmaxLossConfig,
    EntmaxLossWithHeadL0,
)
from fairseq_entmax.mappings.functional import check_alpha
from fairseq_entmax.mappings.rise import Rise, check_warmup
from fairseq_entmax.models.feature import Feature, ModelOptions, option


@dataclass
class SparseOutput(Feature):
    """The mapping from word scores to probabilities, set by ``--output-alpha`` or by the loss."""

    name = "output"
    output_alpha: float | None = option(
        None,
        "alpha of the entmax that turns the output's scores into word probabilities in "
        "generation and evaluation, from 1 (softmax) to 2 (sparsemax)",
        lambda value: check_alpha(value, "alpha of the output"),
        "NUMBER",
        "--loss-alpha with --criterion entmax_loss, otherwise 1",
    )
    loss_alpha_warmup_updates: int = option(
        0,
        "raise alpha of --criterion entmax_loss, and with it that of the output, from 1 (cross-entropy "
        "and softmax) to its value over N updates",
        lambda value: check_warmup(value, "the number"),
        "N",
    )

    def fit(self, options: ModelOptions, args: Any) -> None:
        alpha, option = self.output_alpha, "--output-alpha"
        criterion = getattr(args, "criterion", None)  # none if a trained model is read
        is_of_loss = criterion in (NAME, EntmaxLossWithHeadL0.name)
        if alpha is None and is_of_loss:
            alpha = getattr(args, "loss_alpha", None)
            default = EntmaxLossConfig.loss_alpha
            alpha = default if alpha is None else check_alpha(alpha, "--loss-alpha")
            option = f"--criterion {criterion}"
        self.output_alpha = SOFTMAX if alpha is None else float(alpha)
        if not is_of_loss and self.output_alpha == SOFTMAX:
            if self.loss_alpha_warmup_updates and criterion is not None:
                raise ValueError(
                    f"--loss-alpha-warmup-updates {self.loss_alpha_warmup_updates} needs "
                    f"--criterion {NAME}: add it, or leave this option out"
                )
            return
        reason = ""
        if DECODER_SELF not in options.attentions:
            reason = "this model does not generate words"
        elif options.copy is not None:
            reason = "the output of a model that copies is a mixture, trained by copy_cross_entropy"
        elif getattr(args, "adaptive_softmax_cutoff", None):
            reason = "--adaptive-softmax-cutoff gives words no single score"
        if reason:
            raise ValueError(f"{option} with alpha {alpha:g}: {reason}: leave one out")

    def attach(self, model: Any, args: Any) -> None:
        if self.loss_alpha_warmup_updates and self.output_alpha != SOFTMAX:
            model.output_rise = Rise(self.loss_alpha_warmup_updates)

    def recorded_options(self) -> dict[str, Any]:
        return {} if self.output_alpha == SOFTMAX else {"output_alpha": self.output_alpha}
