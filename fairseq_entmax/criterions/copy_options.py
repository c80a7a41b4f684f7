"""The options of the criterion for models that copy."""

# Not from __future__ import annotations: fairseq looks at the types of these fields at run time
from dataclasses import dataclass, field

from fairseq.criterions.label_smoothed_cross_entropy import (
    LabelSmoothedCrossEntropyCriterionConfig,
)


@dataclass
class CopyCrossEntropyConfig(LabelSmoothedCrossEntropyCriterionConfig):
    """fairseq's options of label-smoothed cross-entropy, and the weight of the aid."""

    copy_loss_weight: float = field(
        default=0.0,
        metadata={
            "help": "weight of the Fenchel-Young loss of the copy heads against the places where "
            "the target stands in the source, which starts sparse copy heads; 0 for none"
        },
    )
