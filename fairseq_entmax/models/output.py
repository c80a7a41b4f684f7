"""How a model's output becomes probabilities of words: by softmax, or alpha-entmax."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fairseq_entmax.attentions import DECODER_SELF
from fairseq_entmax.criterions.sparse_options import EntmaxLossConfig
from fairseq_entmax.criterions.sparse_output import NAME, SOFTMAX, EntmaxLossWithHeadL0
from fairseq_entmax.mappings.functional import check_alpha
from fairseq_entmax.models.config import AttentionConfig
from fairseq_entmax.models.copy_config import CopyConfig


def output_alpha(config: AttentionConfig, args: Any, attentions: Sequence[str]) -> float:
    """alpha of the mapping from a model's scores of words to their probabilities.

    Args:
        config: our options.
        args: all options; where ``--output-alpha`` is none of them, ``--loss-alpha`` of
            ``--criterion entmax_loss`` is taken.
        attentions: those that the model has.

    Returns:
        From 1, softmax, to 2, sparsemax.

    Raises:
        ValueError: the model has no scores of words that alpha-entmax could map; names the option.
    """
    given = config.checked("output_alpha")
    if given is not None:
        option = f"--output-alpha {given:g}"
    elif getattr(args, "criterion", None) in (NAME, EntmaxLossWithHeadL0.name):
        given = getattr(args, "loss_alpha", None)
        given = EntmaxLossConfig.loss_alpha if given is None else check_alpha(given, "--loss-alpha")
        option = f"--criterion {args.criterion}"
    else:
        return SOFTMAX
    if given == SOFTMAX:
        return SOFTMAX
    if DECODER_SELF not in attentions:
        raise ValueError(
            f"{option} is for models that write words, which this is not: leave it out"
        )
    if isinstance(config, CopyConfig):
        raise ValueError(
            f"{option}: the output of a model that copies is a mixture, which has a loss of its "
            f"own: give --criterion copy_cross_entropy, or --arch entmax_transformer"
        )
    if getattr(args, "adaptive_softmax_cutoff", None):
        raise ValueError(
            f"{option}: --adaptive-softmax-cutoff has no one score for each word: leave one out"
        )
    return float(given)
