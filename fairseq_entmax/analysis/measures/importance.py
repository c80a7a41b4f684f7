"""A head's importance to the model's output, by relevance and by the gradient of the loss."""

from __future__ import annotations

from typing import Any

from fairseq_entmax.analysis.importance import ByHead
from fairseq_entmax.analysis.measures.base import ImportanceMeasure


class Relevance(ImportanceMeasure):
    """Relevance to the top-1 logit, propagated layer by layer; a mean over predictions."""

    name, title = "relevance", "Relevance"
    meaning = (
        "the head's share of its layer's relevance to the predicted token, by layer-wise "
        "relevance propagation; the heads of one attention of a layer sum to 1"
    )
    source = "Voita et al. 2019, section 4"
    is_main = True
    sentences = 128

    def check(self, model: Any) -> None:
        from fairseq_entmax.analysis.importance.relevance import check_rules

        check_rules(model)

    def importance(self, model: Any, sample: Any) -> ByHead:
        from fairseq_entmax.analysis.importance.relevance import head_relevance

        relevance = head_relevance(model, sample)
        return {
            # A sentence counts once for each of its predictions
            attention: {layer: relevance.by_sentence(heads) for layer, heads in layers.items()}
            for attention, layers in relevance.shares().items()
        }


class Gradient(ImportanceMeasure):
    """Sensitivity of the loss to the head's gate; a mean over sentences."""

    name, title = "gradient", "Gradient"
    meaning = (
        "the head's share of the loss's sensitivity to the gates of its layer's heads; the heads "
        "of one attention of a layer sum to 1"
    )
    source = "Michel et al. 2019"
    is_main = True
    sentences = 256
    at_once = 16

    def check(self, model: Any) -> None:
        from fairseq_entmax.analysis.importance.sensitivity import check_gradient

        check_gradient(model)

    def importance(self, model: Any, sample: Any) -> ByHead:
        from fairseq_entmax.analysis.importance.sensitivity import head_sensitivity

        return head_sensitivity(model, sample)
