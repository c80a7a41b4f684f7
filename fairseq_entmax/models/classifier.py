"""The model ``entmax_classifier`` and its architectures, for the task ``sentence_prediction``.

It is fairseq's Transformer encoder with sparse attention, whose words are pooled by attention with
a mapping of its own, and projected to the classes. With ``--pair-attention`` the texts of a pair
are pooled apart, as Niculae and Blondel 2017 do for entailment.
"""

from __future__ import annotations

import os
from argparse import Namespace
from collections.abc import Callable
from typing import Any

import torch
from fairseq import hub_utils
from fairseq.models import (
    ARCH_MODEL_REGISTRY,
    MODEL_REGISTRY,
    register_model,
    register_model_architecture,
)
from fairseq.models.transformer import TransformerConfig
from fairseq.tasks import TASK_REGISTRY
from fairseq.tasks.sentence_prediction import SentencePredictionTask
from omegaconf import OmegaConf, open_dict
from torch import nn

from fairseq_entmax import checkpoints, compat
from fairseq_entmax.attentions import ENCODER_SELF
from fairseq_entmax.classification_data import check_classes, check_words
from fairseq_entmax.mappings import Mapping
from fairseq_entmax.models.adaptive import AdaptiveModel
from fairseq_entmax.models.classifier_config import (
    ClassifierConfig,
    ClassifierOptions,
    PoolingOptions,
    read_classifier,
)
from fairseq_entmax.models.classifier_hub import ClassifierHubInterface
from fairseq_entmax.models.config import is_command_to_train, set_defaults
from fairseq_entmax.models.encoder_classifier import EncoderClassifier, stock_defaults
from fairseq_entmax.models.entmax_transformer import check_command, wrap_layers
from fairseq_entmax.models.head_record import HeadMonitor
from fairseq_entmax.models.options import read_options
from fairseq_entmax.modules import attention_modules

# Of fairseq's criterion: what it works out of the names of classes


@register_model("entmax_classifier")
class EntmaxClassifierModel(AdaptiveModel, EncoderClassifier):
    """A Transformer encoder with sparse attention that classifies texts and pairs of texts.

    Takes fairseq's options of a Transformer's encoder, and those of
    :class:`~fairseq_entmax.models.classifier_config.ClassifierConfig`.
    """

    attentions = (ENCODER_SELF,)
    config = ClassifierConfig
    attention_options: ClassifierOptions

    @classmethod
    def hub_models(cls) -> dict[str, Any]:
        """None: there are no pretrained ones."""
        return {}

    @classmethod
    def attention_options_of(cls, args: Any) -> ClassifierOptions:
        cfg = TransformerConfig.from_namespace(args)
        return read_classifier(read_options(cfg, cls.attentions, cls.config), cfg)

    @classmethod
    def build_model(cls, args: Any, task: Any) -> Any:
        model = super().build_model(args, task)
        wrap_layers(model.encoder, model.cfg)
        # Said in the checkpoint, whatever becomes of the encoder's mappings
        said = model.attention_options.pooling.arguments()
        if OmegaConf.is_config(args):
            with open_dict(args):
                args.update(said)
        else:
            vars(args).update(said)
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
            ValueError: a checkpoint is of no classifier, or the models of an ensemble do not tell
                the same number of classes apart or do not pool alike.
        """
        for name in checkpoint_file.split(os.pathsep):
            _check_classifies(os.path.join(model_name_or_path, name))
        loaded = hub_utils.from_pretrained(
            model_name_or_path, checkpoint_file, data_name_or_path, cls.hub_models(), **kwargs
        )
        return ClassifierHubInterface(loaded["args"], loaded["task"], loaded["models"])

    def head_seed(self) -> int:
        return int(self.cfg.head_seed)

    def take_heads(self, options: Any, args: Any) -> None:
        pooling: PoolingOptions = options.pooling
        # Another generator than that of the heads, which are to be the same however words are pooled
        generator = torch.Generator().manual_seed(self.head_seed() + 1)
        mappings = {name: pooling.build(name, generator) for name in pooling.specs}
        self.take_poolings(pooling.heads, mappings)
        super().take_heads(options, args)
        save_dir = None if getattr(args, "no_save", False) else getattr(args, "save_dir", None)
        modules = [(name, 0, pooled) for name, pooled in self.poolings.items()]
        attentions = [*attention_modules(self), *modules]
        self.monitor = HeadMonitor(attentions, save_dir, options.log_interval)

    def scriptable_form(self) -> nn.Module:
        raise ValueError(
            "a classifier cannot be scripted or exported as a whole, as what pools its words has no such "
            "form: script or export model.encoder, which gives the states of the words"
        )

    def check_criterion(self, criterion: Any) -> None:
        super().check_criterion(criterion)
        self.is_for_training = True
        task = getattr(criterion.task, "cfg", None)
        if task is not None and getattr(task, "num_classes", None) is not None:
            check_words(task)
            check_classes(task)

    def pooling_mappings(self) -> dict[str, Mapping]:
        """The mappings of the attentions that pool, by name."""
        return {name: pooling.mapping for name, pooling in self.poolings.items()}  # type: ignore[misc]


def _check_classifies(path: str) -> None:
    """Refuse a checkpoint of another model; fairseq says what else is wrong with one.

    Raises:
        ValueError: names the model.
    """
    try:
        settings = checkpoints.model_settings(checkpoints.load_checkpoint(path), path)
    except (OSError, ValueError):
        return
    name = settings.get("arch") or settings.get("_name")
    model = ARCH_MODEL_REGISTRY.get(name) or MODEL_REGISTRY.get(name)
    if model is not None and not issubclass(model, EntmaxClassifierModel):
        raise ValueError(
            f"{path} is of the model {name}, which is no classifier: give a checkpoint that was "
            f"trained with --arch entmax_classifier or entmax_classifier_small, or load it by the "
            f"from_pretrained of {model.__name__}"
        )


def check_training(args: Namespace) -> None:
    """Check what a command line gives, before anything is made.

    Raises:
        ValueError: an option, the environment, the criterion or the data; names what is wrong.
    """
    check_command(args, EntmaxClassifierModel)
    if not is_command_to_train(args) or not getattr(args, "data", None):
        return
    is_task = issubclass(TASK_REGISTRY[args.task], SentencePredictionTask)
    if not is_task or getattr(args, "classification_head_name", None) is None:
        raise ValueError(
            f"--arch {args.arch} puts texts into classes: give --task sentence_prediction with "
            f"--criterion sentence_prediction, or sentence_prediction_with_head_l0, not --task "
            f"{args.task} with --criterion {args.criterion}"
        )
    if args.task != "sentence_prediction":  # one made from it, which may have other data
        return
    check_words(args)
    check_classes(args)


def _architecture(**sizes: Any) -> Callable[[Any], None]:
    """An architecture with these sizes instead of fairseq's, after which options are checked."""

    def defaults(args: Any) -> None:
        set_defaults(args, ClassifierConfig)
        for name, value in {**stock_defaults(), **sizes}.items():
            if getattr(args, name, None) is None:
                setattr(args, name, value)
        if isinstance(args, Namespace):
            with compat.stopping_command():
                check_training(args)

    return defaults


register_model_architecture("entmax_classifier", "entmax_classifier")(_architecture())
register_model_architecture("entmax_classifier", "entmax_classifier_small")(
    _architecture(
        encoder_layers=2,
        encoder_embed_dim=128,
        encoder_ffn_embed_dim=256,
        encoder_attention_heads=4,
    )
)
