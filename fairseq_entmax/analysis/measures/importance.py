"""What a head matters to the model's output, by relevance and by the gradient of the loss."""

from __future__ import annotations

from typing import Any

from fairseq_entmax.analysis.measures.base import ByHead, ImportanceMeasure, Number


class Relevance(ImportanceMeasure):
    """Layer-wise relevance propagation to the top-1 logit."""

    name = "relevance"
    source = "Voita et al. 2019, section 4"
    sentences = 16
    numbers = (
        Number(
            "relevance",
            "Relevance",
            "the head's share of its layer's relevance to the predicted token, by layer-wise "
            "relevance propagation; the heads of one attention of a layer sum to 1",
            ("relevance",),
            is_main=True,
        ),
    )

    def check(self, model: Any) -> None:
        from fairseq_entmax.analysis.importance.relevance import check_rules

        check_rules(model)

    def shares(self, model: Any, samples: Any, padding_idx: int) -> ByHead:
        from fairseq_entmax.analysis.importance.shares import relevance_shares

        return relevance_shares(model, samples)


class Gradient(ImportanceMeasure):
    """Sensitivity of the loss to the head's gate."""

    name = "gradient"
    source = "Michel et al. 2019"
    sentences = 100
    at_once = 16
    numbers = (
        Number(
            "gradient",
            "Gradient",
            "the head's share of how much the loss changes with the gates of its layer's heads; "
            "the heads of one attention of a layer sum to 1",
            ("gradient",),
            is_main=True,
        ),
    )

    def check(self, model: Any) -> None:
        from fairseq_entmax.analysis.importance.sensitivity import check_gradient

        check_gradient(model)

    def shares(self, model: Any, samples: Any, padding_idx: int) -> ByHead:
        from fairseq_entmax.analysis.importance.shares import gradient_shares

        return gradient_shares(model, samples, padding_idx)
