"""The options of the entmax loss."""

# Not from __future__ import annotations: fairseq looks at the types of these fields at run time
from dataclasses import dataclass, field

from fairseq.dataclass import FairseqDataclass
from omegaconf import II


@dataclass
class EntmaxLossConfig(FairseqDataclass):
    """Options of the criterion ``entmax_loss``."""

    loss_alpha: float = field(
        default=1.5,
        metadata={
            "help": "alpha of the loss, and of the entmax that makes probabilities of words from "
            "the model's scores: from 1 (cross-entropy and softmax) to 2 (sparsemax)"
        },
    )
    label_smoothing: float = field(
        default=0.0,
        metadata={"help": "epsilon for label smoothing, from 0 (none) to below 1"},
    )
    ignore_prefix_size: int = field(default=0, metadata={"help": "ignore the first N tokens"})
    sentence_avg: bool = II("optimization.sentence_avg")
