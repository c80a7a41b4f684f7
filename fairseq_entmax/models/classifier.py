"""The model ``entmax_classifier`` and its architectures, for the task ``sentence_prediction``.

It is fairseq's Transformer encoder with sparse attention, whose words are pooled by attention with
a mapping of its own, and projected to the classes. With ``--pair-attention`` the texts of a pair
are pooled apart, as Niculae and Blondel 2017 do for entailment.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fairseq import hub_utils
from fairseq.models import register_model, register_model_architecture
from fairseq.models.transformer import TransformerConfig
from fairseq.tasks.sentence_prediction import SentencePredictionTask
from torch import nn

from fairseq_entmax import compat
from fairseq_entmax.attentions import ENCODER_SELF
from fairseq_entmax.classification_data import check_classes, check_words
from fairseq_entmax.mappings import Mapping
from fairseq_entmax.models.adaptive import AdaptiveModel, architecture
from fairseq_entmax.models.classifier_hub import ClassifierHubInterface
from fairseq_entmax.models.config import FEATURES
from fairseq_entmax.models.encoder_classifier import EncoderClassifier, stock_defaults
from fairseq_entmax.models.entmax_transformer import wrap_layers
from fairseq_entmax.models.feature import ModelOptions
from fairseq_entmax.models.features.pooling import Pooling


@register_model("entmax_classifier")
class EntmaxClassifierModel(AdaptiveModel, EncoderClassifier):
    """A Transformer encoder with sparse attention that classifies texts and pairs of texts.

    Takes fairseq's options of a Transformer's encoder, and those of
    :class:`~fairseq_entmax.models.features.pooling.Pooling`.
    """

    attentions = (ENCODER_SELF,)
    # Before the record, which looks at what pools
    features = (FEATURES[0], Pooling, *FEATURES[1:])

    @classmethod
    def attention_options_of(cls, args: Any) -> ModelOptions:
        return super().attention_options_of(TransformerConfig.from_namespace(args))

    @classmethod
    def build_model(cls, args: Any, task: Any) -> Any:
        with compat.stopping_command():
            if not isinstance(task, SentencePredictionTask):
                raise ValueError(
                    "an entmax_classifier puts texts into classes: give --task sentence_prediction "
                    "with --criterion sentence_prediction, or sentence_prediction_with_head_l0"
                )
        model = super().build_model(args, task)
        wrap_layers(model.encoder, model.cfg)
        return model

    @classmethod
    def from_pretrained(
        cls,
        model_name_or_path: str,
        checkpoint_file: str = "model.pt",
        data_name_or_path: str = ".",
        **kwargs: Any,
    ) -> ClassifierHubInterface:
        """Load a trained model to classify text with.

        Args:
            model_name_or_path: the folder of the checkpoint.
            checkpoint_file: its name there; several of an ensemble are separated by a colon.
            data_name_or_path: the data folder, for ``input0/dict.txt`` and ``label/dict.txt``; one
                that begins with a dot is looked for in the folder of the checkpoint.
            **kwargs: of fairseq's ``hub_utils.from_pretrained``, such as ``bpe``.

        Raises:
            ValueError: as :class:`ClassifierHubInterface`.
        """
        loaded = hub_utils.from_pretrained(
            model_name_or_path, checkpoint_file, data_name_or_path, cls.hub_models(), **kwargs
        )
        return ClassifierHubInterface(loaded["args"], loaded["task"], loaded["models"])

    def monitored(self) -> list[tuple[str, int, Any]]:
        return super().monitored() + [(name, 0, one) for name, one in self.poolings.items()]

    def scriptable_form(self) -> nn.Module:
        raise ValueError(
            "a classifier cannot be scripted or exported as a whole, as what pools its words has no such "
            "form: script or export model.encoder, which gives the states of the words"
        )

    def check_criterion(self, criterion: Any) -> None:
        super().check_criterion(criterion)
        self.is_for_training = True
        task = criterion.task
        if type(task) is SentencePredictionTask:  # one made from it may have other data
            check_words(task.cfg)
            check_classes(task.cfg)

    def pooling_mappings(self) -> dict[str, Mapping]:
        """The mappings of the attentions that pool, by name."""
        return {name: pooling.mapping for name, pooling in self.poolings.items()}  # type: ignore[misc]


def _architecture(**sizes: Any) -> Callable[[Any], None]:
    """An architecture with these sizes instead of fairseq's."""

    def fill_in(args: Any) -> None:
        for name, value in {**stock_defaults(), **sizes}.items():
            if getattr(args, name, None) is None:
                setattr(args, name, value)

    return architecture(EntmaxClassifierModel, fill_in)


register_model_architecture("entmax_classifier", "entmax_classifier")(_architecture())
register_model_architecture("entmax_classifier", "entmax_classifier_small")(
    _architecture(
        encoder_layers=2,
        encoder_embed_dim=128,
        encoder_ffn_embed_dim=256,
        encoder_attention_heads=4,
    )
)
