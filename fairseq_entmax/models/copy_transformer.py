"""The model ``entmax_copy_transformer``, which copies words from its source.

It is ``entmax_transformer``, but mixes the weights of one cross-attention head, or the mean of
several, into the generator's distribution: the CopyTransformer of Gehrmann et al. 2018, after the
pointer-generator of See, Liu and Manning 2017. Its architectures are those of
``entmax_transformer`` with ``copy_`` in the name, and ``entmax_copy_transformer_opennmt``.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from fairseq import utils
from fairseq.models import (
    ARCH_CONFIG_REGISTRY,
    register_model,
    register_model_architecture,
)
from fairseq.models.transformer import TransformerConfig
from torch import Tensor, nn

from fairseq_entmax import command_errors, compat
from fairseq_entmax.attention import MultiheadAttention
from fairseq_entmax.attention.copying import CopyParts, mixture_log_probs
from fairseq_entmax.models.base import architecture, register_counterparts
from fairseq_entmax.models.config import FEATURES
from fairseq_entmax.models.entmax_transformer import (
    EntmaxTransformerDecoder,
    EntmaxTransformerEncoder,
    EntmaxTransformerModel,
)
from fairseq_entmax.models.features.copying import Copying

logger = logging.getLogger(__name__)

# The parameters that have a row for each word
_OF_WORDS = (
    "encoder.embed_tokens.weight",
    "decoder.embed_tokens.weight",
    "decoder.output_projection.weight",
)


class WordEmbedding(nn.Embedding):
    """An embedding in which markers, which have no row, get the vector of the unknown word."""

    padding_idx: int

    def __init__(self, num_words: int, embed_dim: int, padding: int, unknown: int) -> None:
        super().__init__(num_words, embed_dim, padding_idx=padding)
        self.unknown = unknown
        # The initial values of fairseq's embeddings
        nn.init.normal_(self.weight, mean=0, std=embed_dim**-0.5)
        nn.init.constant_(self.weight[padding], 0)

    def forward(self, words: Tensor) -> Tensor:
        return super().forward(words.masked_fill(words >= self.num_embeddings, self.unknown))


class CopyEncoder(EntmaxTransformerEncoder):
    """An encoder that adds the source tokens to its output."""

    def forward(self, src_tokens: Tensor, *args: Any, **kwargs: Any) -> dict[str, Any]:
        encoded: dict[str, Any] = super().forward(src_tokens, *args, **kwargs)
        return {**encoded, "src_tokens": [src_tokens]}


class CopyDecoder(EntmaxTransformerDecoder):
    """A decoder whose output is the log probabilities of words, generated or copied.

    ``copy_switch`` maps its last hidden state to the logit of g, the share that is generated. Of the
    ``num_words`` in the dictionary, ``num_generated`` have an embedding: all but the markers.
    """

    copy: Copying

    def __init__(self, cfg: Any, dictionary: Any, embed_tokens: nn.Embedding) -> None:
        self.num_generated = embed_tokens.num_embeddings
        super().__init__(cfg, dictionary, embed_tokens, no_encoder_attn=False)
        self.num_words = len(dictionary)
        self.copy_switch = nn.Linear(self.output_embed_dim, 1)
        nn.init.xavier_uniform_(self.copy_switch.weight)
        nn.init.zeros_(self.copy_switch.bias)
        self.filled: list[str] = []
        self._mixes = True

    def build_output_projection(self, cfg: Any, dictionary: Any, embed_tokens: nn.Module) -> None:
        # fairseq needs only the dictionary's length
        super().build_output_projection(cfg, range(self.num_generated), embed_tokens)

    @contextmanager
    def unmixed(self) -> Iterator[None]:
        """Within this context, :meth:`forward` returns the generator's logits."""
        before, self._mixes = self._mixes, False
        try:
            yield
        finally:
            self._mixes = before

    def give_copy_scores(self) -> None:
        """From now on, also return the scores of the copy heads."""
        self.copy_attention().scores_of = self.copy.copy_heads

    def copy_attention(self) -> MultiheadAttention:
        layer: Any = self.layers[self.copy.layer]
        attention: MultiheadAttention = layer.encoder_attn
        return attention

    def forward(
        self,
        prev_output_tokens: Tensor,
        encoder_out: dict[str, list[Tensor]] | None = None,
        incremental_state: Any = None,
        features_only: bool = False,
        **options: Any,
    ) -> tuple[Tensor, dict[str, Any]]:
        """Log probabilities of all words ``(batch, target, words)``, and a dictionary.

        They are -inf at markers that the copy gives no weight. Inside :meth:`unmixed`, the
        generator's logits, without markers, take their place. In the dictionary, ``attn`` is the
        copy's distribution, and ``copy`` holds the parts of the mixture.
        """
        output, extra = super().forward(
            prev_output_tokens, encoder_out, incremental_state, features_only, **options
        )
        if features_only or not self._mixes:
            return output, extra
        return mixture_log_probs(output, extra["copy"], self.num_words), extra

    def extract_features(
        self,
        prev_output_tokens: Tensor,
        encoder_out: dict[str, list[Tensor]] | None,
        incremental_state: Any = None,
        full_context_alignment: bool = False,
        alignment_layer: int | None = None,
        alignment_heads: int | None = None,
    ) -> tuple[Tensor, dict[str, Any]]:
        """Like fairseq's, but alignments are always the copy's distribution."""
        assert encoder_out is not None
        of_heads: list[Tensor] = []
        # Taken from the layer: with float16, fairseq's own processing rounds the weights
        handle = self.layers[self.copy.layer].register_forward_hook(
            lambda _layer, _inputs, outputs: of_heads.append(outputs[1])
        )
        try:
            features, extra = super().extract_features(
                prev_output_tokens,
                encoder_out,
                incremental_state,
                full_context_alignment,
                self.copy.layer,
            )
        finally:
            handle.remove()
        parts = self._parts(features, of_heads[0], encoder_out["src_tokens"][0])
        return features, {**extra, "attn": [parts.weights], "copy": parts}

    def _parts(self, features: Tensor, of_heads: Tensor, source: Tensor) -> CopyParts:
        attention = self.copy_attention()
        weights = of_heads[list(self.copy.copy_heads)]
        switch = self.copy_switch(features).squeeze(-1)
        parts = CopyParts(switch.to(weights.dtype), weights.mean(0), source)
        if not attention.scores_of:
            return parts
        return parts._replace(head_weights=weights, head_scores=of_heads[attention.num_heads :])

    def _load_from_state_dict(
        self, state_dict: dict[str, Any], prefix: str, *args: Any, **kwargs: Any
    ) -> None:
        """Keep the initial switch if the checkpoint is of a model that does not copy."""
        switch = self.copy_switch.named_parameters(f"{prefix}copy_switch")
        self.filled = compat.fill_in(state_dict, switch)
        super()._load_from_state_dict(state_dict, prefix, *args, **kwargs)


@register_model("entmax_copy_transformer")
class EntmaxCopyTransformerModel(EntmaxTransformerModel):
    """``entmax_transformer`` that copies words from its source.

    Takes the options of ``entmax_transformer`` and those of
    :class:`~fairseq_entmax.models.features.copying.Copying`. Source and target share a dictionary.
    A checkpoint of a ``transformer`` or ``entmax_transformer`` can be loaded: the switch between
    generating and copying starts as in a new model.

    Source: Gehrmann, Deng and Rush 2018, *Bottom-Up Abstractive Summarization*, section 4; Baan et
    al. 2019, *Understanding Multi-Head Attention in Abstractive Summarization*.
    """

    features = (*FEATURES, Copying)
    encoder_class = CopyEncoder
    gives_zeros = True  # to markers that do not occur in the source
    decoder: CopyDecoder

    @classmethod
    def build_model(cls, args: Any, task: Any) -> Any:
        with command_errors.stopping_command():
            markers = Copying.read(args).source_position_markers
            check_dictionaries(task.source_dictionary, task.target_dictionary, markers)
        return super().build_model(args, task)

    @classmethod
    def build_embedding(
        cls, args: Any, dictionary: Any, embed_dim: int, path: str | None = None
    ) -> nn.Embedding:
        cfg = TransformerConfig.from_namespace(args)
        markers = Copying.read(cfg).source_position_markers
        embedding = WordEmbedding(
            len(dictionary) - markers, embed_dim, dictionary.pad(), dictionary.unk()
        )
        if path:
            utils.load_embedding(utils.parse_embedding(path), dictionary, embedding)
        return embedding

    @classmethod
    def build_decoder(cls, cfg: Any, tgt_dict: Any, embed_tokens: Any) -> nn.Module:
        return CopyDecoder(cfg, tgt_dict, embed_tokens)

    def scriptable_form(self) -> nn.Module:
        raise ValueError(
            "a model that copies cannot be scripted or exported, because its output mixes in words "
            "of the source: generate with fairseq-generate, or export a model of --arch entmax_transformer"
        )

    def load_state_dict(
        self, state_dict: Any, strict: bool = True, model_cfg: Any = None, args: Any = None
    ) -> Any:
        """Load a checkpoint of this model, or of one that does not copy.

        The latter may have embeddings for markers in its dictionary; they are dropped.
        """
        with command_errors.stopping_command():
            cut = self._without_markers(state_dict)
        return super().load_state_dict(cut, strict, model_cfg, args)

    def _without_markers(self, state_dict: dict[str, Any]) -> dict[str, Any]:
        decoder, cut = self.decoder, dict(state_dict)
        for name in _OF_WORDS:
            rows = cut[name].size(0) if name in cut else decoder.num_generated
            if rows == decoder.num_words:
                cut[name] = cut[name][: decoder.num_generated].clone()
            elif rows != decoder.num_generated:
                raise ValueError(
                    f"the checkpoint has {rows:,} words in {name}, but the dictionary has "
                    f"{decoder.num_generated:,} and {decoder.num_words - decoder.num_generated} "
                    f"markers: use the data and --source-position-markers it was trained with"
                )
        return cut

    def _log_missing(self) -> None:
        super()._log_missing()
        if self.decoder.filled:
            logger.warning(
                "the checkpoint has no switch between generating and copying; it starts as in a new model"
            )

    def forward(self, *args: Any, mixed: bool = True, **kwargs: Any) -> Any:
        """Run the model; the output is that of :meth:`CopyDecoder.forward`.

        If ``mixed`` is false, the output is the generator's logits, for a loss that needs the
        mixture of only a few words.
        """
        if mixed:
            return super().forward(*args, **kwargs)
        with self.decoder.unmixed():
            return super().forward(*args, **kwargs)


def check_dictionaries(source: Any, target: Any, markers: int) -> None:
    """Raise ValueError if the dictionaries differ, or end with another number of markers."""
    if source != target:
        raise ValueError(
            f"a model that copies needs one dictionary for source and target, not two with "
            f"{len(source):,} and {len(target):,} words: prepare the data with fairseq-preprocess "
            f"--joined-dictionary"
        )
    there = markers_of(target)
    if there != markers:
        remedy = "make it with 'fairseq-entmax oov vocabulary', or leave the option out"
        raise ValueError(
            f"--source-position-markers {markers}: the dictionary ends with {there} words "
            f"<unk-0>, <unk-1> and so on: {f'give --source-position-markers {there}' if there else remedy}"
        )


def markers_of(dictionary: Any) -> int:
    """How many markers ``<unk-0>``, ``<unk-1>`` and so on a dictionary ends with."""
    last = re.fullmatch(r"<unk-(\d{1,6})>", dictionary[len(dictionary) - 1])
    number = int(last[1]) + 1 if last else 0
    markers = [f"<unk-{marker}>" for marker in range(number)]
    return number if dictionary.symbols[len(dictionary) - number :] == markers else 0


def _opennmt(args: Any) -> None:
    """OpenNMT-py's CopyTransformer, as Baan et al. 2019 (section 4) use it."""
    sizes = {"layers": 4, "embed_dim": 512, "ffn_embed_dim": 2048, "attention_heads": 8}
    sizes["normalize_before"] = True
    of_sides = {f"{side}_{name}": sizes[name] for side in ("encoder", "decoder") for name in sizes}
    for name, value in {**of_sides, "share_all_embeddings": True}.items():
        setattr(args, name, getattr(args, name, value))
    ARCH_CONFIG_REGISTRY["transformer"](args)


register_counterparts("transformer", EntmaxCopyTransformerModel, "entmax_copy_")
register_model_architecture("entmax_copy_transformer", "entmax_copy_transformer_opennmt")(
    architecture(EntmaxCopyTransformerModel, _opennmt)
)
