"""A Transformer encoder whose words are pooled by attention, and projected to classes.

It is what :mod:`fairseq_entmax.models.classifier` gives its mappings, heads and gates to.
"""

from __future__ import annotations

from argparse import Action, ArgumentParser
from typing import Any

import torch
import torch.nn.functional as F
from fairseq.dataclass.utils import gen_parser_from_dataclass
from fairseq.models import FairseqEncoderModel
from fairseq.models.transformer import TransformerConfig, TransformerModelBase
from fairseq.modules import FairseqDropout
from torch import Tensor, nn

from fairseq_entmax import compat
from fairseq_entmax.attention.texts import SourceSymbols
from fairseq_entmax.attentions import HYPOTHESIS, POOLING, PREMISE
from fairseq_entmax.models.adaptive import seed_of_its_own
from fairseq_entmax.models.classifier_loading import adapted
from fairseq_entmax.models.entmax_transformer import EntmaxTransformerEncoder

# fairseq's options of a Transformer that speak of something that an encoder alone does not have
_NOT_OF_ENCODER = (
    *("decoder_", "adaptive_", "share_", "tie_", "merge_", "no_cross_", "cross_"),
    *("no_decoder_", "max_target_", "base_", "char_", "export"),
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

    Attributes:
        poolings: the attentions that pool, by name: of one text, or of hypothesis and premise.
        classification_heads: by name; as the task and its criterion know them.
        is_for_training: whether a checkpoint may lack heads, as a training will start them.
    """

    is_for_training = False

    def __init__(self, cfg: Any, encoder: Any, symbols: SourceSymbols) -> None:
        super().__init__(encoder)
        self.cfg = cfg
        self.symbols = symbols
        self.poolings = nn.ModuleDict()
        self.classification_heads = nn.ModuleDict()

    @classmethod
    def add_args(cls, parser: Any) -> None:
        """Add fairseq's options of an encoder."""
        for action in _stock_options(with_defaults=False):
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
        """Classify ``src_tokens`` ``(batch, tokens)``, of ``src_lengths`` ``(batch,)``.

        Returns:
            The scores of classes ``(batch, classes)``, or the vector of each text ``(batch,
            embed_dim)`` without a name of a projection; and a dictionary, in which ``pooling`` has
            the weights ``(batch, heads, tokens)`` of each attention that pools, by its name.
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
        with compat.stopping_command():
            first, second = symbols.texts(tokens)
        hypothesis, of_hypothesis = self.poolings[HYPOTHESIS](states, symbols.keys(tokens, second))
        premise, of_premise = self.poolings[PREMISE](
            states, symbols.keys(tokens, first), hypothesis
        )
        features = torch.tanh(self.combine(torch.cat([premise, hypothesis], 1)))
        return features, {HYPOTHESIS: of_hypothesis, PREMISE: of_premise}

    def get_normalized_probs(
        self, net_output: tuple[Tensor, Any], log_probs: bool, sample: Any = None
    ) -> Tensor:
        """Probabilities of classes ``(batch, classes)``, or their logarithms."""
        scores = net_output[0].float()
        return F.log_softmax(scores, -1) if log_probs else F.softmax(scores, -1)

    def load_state_dict(
        self, state_dict: Any, strict: bool = True, model_cfg: Any = None, args: Any = None
    ) -> Any:
        """Load what :func:`adapted` makes of a checkpoint."""
        return super().load_state_dict(adapted(self, state_dict), strict, model_cfg, args)


def stock_defaults() -> dict[str, Any]:
    """fairseq's options of an encoder, with their defaults."""
    return {action.dest: action.default for action in _stock_options(with_defaults=True)}


def _stock_options(with_defaults: bool) -> list[Action]:
    parser = ArgumentParser(add_help=False)
    gen_parser_from_dataclass(
        parser, TransformerConfig(), delete_default=not with_defaults, with_prefix=""
    )
    return [action for action in parser._actions if not action.dest.startswith(_NOT_OF_ENCODER)]
