"""The model ``entmax_classifier`` and its architectures, for the task ``sentence_prediction``.

It is fairseq's Transformer encoder with sparse attention, whose words are pooled by attention with
a mapping of its own, and projected to the classes. With ``--pair-attention`` the texts of a pair
are pooled apart, as Niculae and Blondel 2017 do for entailment.
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from fairseq import hub_utils
from fairseq.criterions import CRITERION_REGISTRY
from fairseq.dataclass.utils import gen_parser_from_dataclass
from fairseq.models import (
    FairseqEncoderModel,
    register_model,
    register_model_architecture,
)
from fairseq.models.transformer import TransformerConfig, TransformerModelBase
from fairseq.modules import FairseqDropout
from omegaconf import OmegaConf, open_dict
from torch import Tensor, nn

from fairseq_entmax import compat, kernels
from fairseq_entmax.attentions import ENCODER_SELF, HYPOTHESIS, POOLING, PREMISE
from fairseq_entmax.classification_data import check_data
from fairseq_entmax.mappings import Mapping
from fairseq_entmax.models.adaptive import AdaptiveModel
from fairseq_entmax.models.classifier_config import (
    ClassifierConfig,
    ClassifierOptions,
    PoolingOptions,
    read_classifier,
)
from fairseq_entmax.models.classifier_hub import ClassifierHubInterface
from fairseq_entmax.models.classifier_loading import adapted
from fairseq_entmax.models.config import set_defaults
from fairseq_entmax.models.entmax_transformer import EntmaxTransformerEncoder, wrap_layers
from fairseq_entmax.models.head_record import HeadMonitor
from fairseq_entmax.models.options import check_heads_apart, read_options, seed_of_its_own
from fairseq_entmax.models.saved import start_of_heads
from fairseq_entmax.modules import attention_modules
from fairseq_entmax.modules.pooling import AttentionPooling
from fairseq_entmax.modules.texts import SourceSymbols

# fairseq's options of a Transformer that speak of something that an encoder alone does not have
_NOT_OF_ENCODER = (
    "decoder_",
    "adaptive_",
    "share_",
    "tie_",
    "merge_",
    "no_cross_",
    "cross_",
    "no_decoder_",
    "max_target_",
    "base_",
    "char_",
    "export",
)


class ClassificationHead(nn.Module):
    """Dropout, and a projection to the classes."""

    def __init__(self, embed_dim: int, num_classes: int, dropout: float) -> None:
        super().__init__()
        self.dropout_module = FairseqDropout(dropout, module_name=type(self).__name__)
        self.out_proj = nn.Linear(embed_dim, num_classes)

    def forward(self, features: Tensor) -> Tensor:
        """``(batch, embed_dim)`` to scores ``(batch, classes)``."""
        return self.out_proj(self.dropout_module(features))


class EncoderClassifier(FairseqEncoderModel):
    """An encoder of fairseq's, pooled by attention; what is not particular to sparse attention.

    Args:
        cfg: fairseq's options of a Transformer.
        encoder: fairseq's.
        symbols: of its sources.

    Attributes:
        poolings: the attentions that pool, by name; given by :meth:`take_poolings`.
        classification_heads: by name; as the task and its criterion know them.
    """

    def __init__(self, cfg: Any, encoder: Any, symbols: SourceSymbols) -> None:
        super().__init__(encoder)
        self.cfg = cfg
        self.symbols = symbols
        self.poolings = nn.ModuleDict()
        self.classification_heads = nn.ModuleDict()

    @classmethod
    def add_args(cls, parser: Any) -> None:
        """Add fairseq's options of an encoder."""
        everything = ArgumentParser(add_help=False, allow_abbrev=False)
        gen_parser_from_dataclass(
            everything, TransformerConfig(), delete_default=True, with_prefix=""
        )
        for action in everything._actions:
            if not action.dest.startswith(_NOT_OF_ENCODER):
                parser._add_action(action)

    @classmethod
    def build_model(cls, args: Any, task: Any) -> Any:
        """Build a model, without its poolings."""
        cfg = TransformerConfig.from_namespace(args)
        cfg.head_seed = seed_of_its_own()
        if cfg.encoder.layers_to_keep:
            cfg.encoder.layers = len(cfg.encoder.layers_to_keep.split(","))
        if cfg.offload_activations:
            cfg.checkpoint_activations = True
        dictionary = task.source_dictionary
        width, path = cfg.encoder.embed_dim, cfg.encoder.embed_path
        embedding = TransformerModelBase.build_embedding(cfg, dictionary, width, path)
        encoder = EntmaxTransformerEncoder(cfg, dictionary, embedding)
        return cls(cfg, encoder, SourceSymbols.of(task))

    def take_poolings(self, heads: int, mappings: dict[str, Mapping]) -> None:
        """Get the attentions that pool.

        Args:
            heads: how many each has.
            mappings: by name: of one text, or of hypothesis and premise.
        """
        width = self.cfg.encoder.embed_dim
        for name, mapping in mappings.items():
            takes_query = name == PREMISE
            self.poolings[name] = AttentionPooling(width, heads, mapping, takes_query)
        if PREMISE in mappings:
            self.combine = nn.Linear(2 * width, width)

    def register_classification_head(
        self, name: str, num_classes: int | None = None, **kwargs: Any
    ) -> None:
        """Add a projection to classes; called by the task."""
        assert num_classes
        head = ClassificationHead(self.cfg.encoder.embed_dim, num_classes, self.cfg.dropout)
        self.classification_heads[name] = head

    def forward(
        self,
        src_tokens: Tensor,
        src_lengths: Tensor | None = None,
        features_only: bool = False,
        classification_head_name: str | None = None,
        prev_output_tokens: Any = None,
    ) -> tuple[Tensor, dict[str, Any]]:
        """Classify.

        Args:
            src_tokens: ``(batch, tokens)``.
            src_lengths: ``(batch,)``.
            features_only, prev_output_tokens: what fairseq's criterion and task may give too.
            classification_head_name: which projection; None for none.

        Returns:
            The scores of classes ``(batch, classes)``, or the vector of each text ``(batch,
            embed_dim)`` without a projection; and a dictionary, in which ``pooling`` has the
            weights ``(batch, heads, tokens)`` of each attention that pools, by its name.

        Raises:
            ValueError: texts of pairs are to be pooled apart, and a source has no second one.
        """
        encoded = self.encoder(src_tokens, src_lengths)
        features, weights = self._pool(encoded["encoder_out"][0], src_tokens)
        extra = {"pooling": weights, "encoder_out": encoded}
        if classification_head_name is None:
            return features, extra
        return self.classification_heads[classification_head_name](features), extra

    def _pool(self, states: Tensor, tokens: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        symbols = self.symbols
        if PREMISE not in self.poolings:
            keys = symbols.keys(tokens, symbols.text(tokens))
            pooled, weights = self.poolings[POOLING](states, keys)
            return pooled, {POOLING: weights}
        first, second = symbols.texts(tokens)
        hypothesis, of_hypothesis = self.poolings[HYPOTHESIS](states, symbols.keys(tokens, second))
        premise, of_premise = self.poolings[PREMISE](
            states, symbols.keys(tokens, first), hypothesis
        )
        features = torch.tanh(self.combine(torch.cat([premise, hypothesis], 1)))
        return features, {HYPOTHESIS: of_hypothesis, PREMISE: of_premise}

    def load_state_dict(
        self, state_dict: Any, strict: bool = True, model_cfg: Any = None, args: Any = None
    ) -> Any:
        """Load what :func:`adapted` makes of a checkpoint."""
        return super().load_state_dict(adapted(self, state_dict), strict, model_cfg, args)


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
        """
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

    def check_criterion(self, criterion: Any) -> None:
        """Check the data of a training that a YAML file describes; called before it.

        Raises:
            ValueError: as :func:`check_data`.
        """
        task = getattr(criterion.task, "cfg", None)
        if task is not None and getattr(task, "num_classes", None) is not None:
            check_data(task, ("train",), self.attention_options.pooling.is_pair, may_lack=True)

    def pooling_mappings(self) -> dict[str, Mapping]:
        """The mappings of the attentions that pool, by name."""
        return {name: pooling.mapping for name, pooling in self.poolings.items()}  # type: ignore[misc]

    def get_normalized_probs(
        self, net_output: tuple[Tensor, Any], log_probs: bool, sample: Any = None
    ) -> Tensor:
        """Probabilities of classes ``(batch, classes)``, or their logarithms."""
        scores = net_output[0].float()
        return F.log_softmax(scores, -1) if log_probs else F.softmax(scores, -1)


def check_command(args: Namespace) -> None:
    """Check what a command line gives, before anything is made.

    Raises:
        ValueError: an option, the environment or the criterion; names what is wrong.
    """
    options = EntmaxClassifierModel.attention_options_of(args)
    kernels.chosen()
    if start_of_heads(args) is None:
        check_heads_apart(options, args)
    if getattr(args, "save_dir", None) is None:  # no training
        return
    criterion = CRITERION_REGISTRY.get(getattr(args, "criterion", None))
    if hasattr(criterion, "check_options"):
        criterion.check_options(args, options.gated_heads())
    if getattr(args, "task", None) != "sentence_prediction" or not getattr(args, "data", None):
        return
    splits = [args.train_subset]
    if not args.disable_validation:
        splits += str(args.valid_subset).split(",")
    check_data(args, splits, options.pooling.is_pair)


def _architecture(**sizes: Any) -> Callable[[Any], None]:
    """An architecture with these sizes instead of fairseq's, after which options are checked."""

    def defaults(args: Any) -> None:
        set_defaults(args, ClassifierConfig)
        for name, value in {**_stock_defaults(), **sizes}.items():
            if getattr(args, name, None) is None:
                setattr(args, name, value)
        if isinstance(args, Namespace):
            with compat.stopping_command():
                check_command(args)

    return defaults


def _stock_defaults() -> dict[str, Any]:
    parser = ArgumentParser(add_help=False)
    gen_parser_from_dataclass(parser, TransformerConfig(), delete_default=False, with_prefix="")
    return {
        action.dest: action.default
        for action in parser._actions
        if not action.dest.startswith(_NOT_OF_ENCODER)
    }


register_model_architecture("entmax_classifier", "entmax_classifier")(_architecture())
register_model_architecture("entmax_classifier", "entmax_classifier_small")(
    _architecture(
        encoder_layers=2,
        encoder_embed_dim=128,
        encoder_ffn_embed_dim=256,
        encoder_attention_heads=4,
    )
)
