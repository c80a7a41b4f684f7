"""The model ``entmax_transformer`` and its architectures.

It is fairseq's ``transformer`` with another mapping from attention scores to weights. Each
architecture of fairseq's ``transformer`` has its counterpart: ``transformer_iwslt_de_en``
is ``entmax_transformer_iwslt_de_en``.
"""

from __future__ import annotations

import logging
from argparse import Namespace
from collections.abc import Iterator
from typing import Any

import torch
from fairseq.criterions import CRITERION_REGISTRY
from fairseq.distributed import fsdp_wrap
from fairseq.distributed import utils as distributed_utils
from fairseq.models import register_model, register_model_architecture
from fairseq.models.transformer import (
    TransformerConfig,
    TransformerDecoderBase,
    TransformerEncoderBase,
    TransformerModel,
)
from fairseq.modules.checkpoint_activations import checkpoint_wrapper
from omegaconf import OmegaConf, open_dict
from torch import Tensor, nn

from fairseq_entmax import compat, data_bin, fairseq_changes, kernels
from fairseq_entmax.attentions import CROSS, DECODER_SELF, ENCODER_SELF
from fairseq_entmax.mappings import Entmax
from fairseq_entmax.models.alpha_record import AlphaMonitor
from fairseq_entmax.models.options import (
    SHARE_ATTENTION,
    SHARE_MODEL,
    AttentionOptions,
    add_arguments,
    check_stock_options,
    keep_layers,
    own_options,
    read_options,
    set_defaults,
    take_heads_of_start,
)
from fairseq_entmax.modules import (
    EntmaxDecoderLayer,
    EntmaxEncoderLayer,
    HardConcreteGate,
    MultiheadAttention,
    PruningState,
    mark_future_mask,
)
from fairseq_entmax.modules import gates as gates_module

logger = logging.getLogger(__name__)

fairseq_changes.install()


class EntmaxTransformerEncoder(TransformerEncoderBase):
    """fairseq's encoder, each layer with the mapping that the options give it."""

    def __init__(self, cfg: Any, dictionary: Any, embed_tokens: nn.Module, **kwargs: Any) -> None:
        # fairseq builds the layers, bottom first, inside its constructor
        self._layer_numbers = iter(range(cfg.encoder.layers))
        super().__init__(cfg, dictionary, embed_tokens, **kwargs)
        del self._layer_numbers

    def build_encoder_layer(self, cfg: Any) -> nn.Module:
        options: AttentionOptions = cfg.attention_options
        heads = options.build_heads(ENCODER_SELF, next(self._layer_numbers))
        return _wrapped(EntmaxEncoderLayer(cfg, heads, return_fc=self.return_fc), cfg)


class EntmaxTransformerDecoder(TransformerDecoderBase):
    """fairseq's decoder, each layer with the mappings that the options give it."""

    def __init__(self, cfg: Any, dictionary: Any, embed_tokens: nn.Module, **kwargs: Any) -> None:
        self._layer_numbers = iter(range(cfg.decoder.layers))
        super().__init__(cfg, dictionary, embed_tokens, **kwargs)
        del self._layer_numbers

    def build_decoder_layer(self, cfg: Any, no_encoder_attn: bool = False) -> nn.Module:
        options: AttentionOptions = cfg.attention_options
        number = next(self._layer_numbers)
        layer = EntmaxDecoderLayer(
            cfg,
            options.build_heads(DECODER_SELF, number),
            None if no_encoder_attn else options.build_heads(CROSS, number),
            no_encoder_attn,
        )
        return _wrapped(layer, cfg)

    def buffered_future_mask(self, tensor: Tensor) -> Tensor:
        return mark_future_mask(super().buffered_future_mask(tensor))


def _wrapped(layer: nn.Module, cfg: Any) -> nn.Module:
    """Apply ``--checkpoint-activations`` and fully sharded training, as fairseq does."""
    min_num_params = cfg.min_params_to_wrap
    if cfg.checkpoint_activations:
        layer = checkpoint_wrapper(layer, offload_to_cpu=cfg.offload_activations)
        # a checkpointed layer is always wrapped, whatever its size
        min_num_params = 0
    return fsdp_wrap(layer, min_num_params=min_num_params)


@register_model("entmax_transformer")
class EntmaxTransformerModel(TransformerModel):
    """fairseq's ``transformer`` with alpha-entmax attention.

    Takes every option of fairseq's ``transformer``, and those of
    :mod:`fairseq_entmax.models.options`. A checkpoint of a stock ``transformer`` can be
    loaded: what it lacks starts as in a new model, and is logged.

    Source: Correia, Niculae, Martins 2019, *Adaptively Sparse Transformers*.
    """

    @classmethod
    def hub_models(cls) -> dict[str, Any]:
        """None: fairseq's own pretrained models belong to its ``transformer``."""
        return {}

    @classmethod
    def add_args(cls, parser: Any) -> None:
        """Add fairseq's options of ``transformer``, and this model's."""
        super().add_args(parser)
        add_arguments(parser)

    @classmethod
    def build_model(cls, args: Any, task: Any) -> EntmaxTransformerModel:
        """Build a model from parsed options, or from the ``model`` section of a YAML file.

        Raises:
            ValueError: an option is wrong; names it, the value, and what is allowed.
        """
        if OmegaConf.is_config(args):
            args = _namespace(args)
        set_defaults(args)
        check_stock_options(args)
        keep_layers(args)
        seed = torch.initial_seed()
        model = super().build_model(args, task)
        model._seed = seed
        _share_alpha(model)
        model.monitor = AlphaMonitor(
            learned_alphas(model),
            getattr(args, "save_dir", None) if not getattr(args, "no_save", False) else None,
            model.cfg.attention_options.alpha_log_interval,
        )
        model.pruning_state = PruningState() if model.head_gates() else None
        if model.cfg.attention_options.freeze_decoder:
            for parameter in model.decoder.parameters():
                parameter.requires_grad_(False)
        return model

    @classmethod
    def build_encoder(cls, cfg: Any, src_dict: Any, embed_tokens: nn.Module) -> nn.Module:
        cfg.attention_options = read_options(cfg, cfg)
        return EntmaxTransformerEncoder(cfg, src_dict, embed_tokens)

    @classmethod
    def build_decoder(cls, cfg: Any, tgt_dict: Any, embed_tokens: nn.Module) -> nn.Module:
        return EntmaxTransformerDecoder(
            cfg, tgt_dict, embed_tokens, no_encoder_attn=cfg.no_cross_attention
        )

    monitor: AlphaMonitor | None = None
    pruning_state: PruningState | None
    _seed = 0
    _passes = (-1, 0)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Run encoder and decoder; arguments and result are those of fairseq's model."""
        if self.monitor is not None:
            self.monitor.observe(self.training)
        if self.training:
            self._draw_gates()
        return super().forward(*args, **kwargs)

    def head_gates(self) -> dict[str, dict[int, HardConcreteGate]]:
        """The gates on heads: attention to layer number to the gates there."""
        found: dict[str, dict[int, HardConcreteGate]] = {}
        for attention, number, module in attention_modules(self):
            if module.gate is not None:
                found.setdefault(attention, {})[number] = module.gate
        return found

    def _draw_gates(self) -> None:
        """Draw the gates of one training pass.

        The draw follows from the seed, the update, and the batch's number in the update. With
        several workers, batch ``i`` of worker ``r`` of ``w`` has the number ``i w + r``: so
        the workers draw differently, and ``w`` workers draw what one worker does that makes
        ``w`` times as many batches an update.
        """
        gates = [gate for layers in self.head_gates().values() for gate in layers.values()]
        if not gates:
            return
        updates = compat.trainer_num_updates() or 0
        previous, passes = self._passes
        # Without a trainer there are no updates to tell the passes apart: they are all counted
        passes = passes + 1 if previous == updates else 0
        self._passes = updates, passes
        rank = distributed_utils.get_global_rank()
        workers = distributed_utils.get_global_world_size()
        gates_module.draw(gates, self._seed, updates, passes * workers + rank)

    def set_num_updates(self, num_updates: int) -> None:
        """Called by fairseq's trainer before each step, and only by it."""
        super().set_num_updates(num_updates)
        if self.monitor is not None:
            self.monitor.updates = num_updates

    def load_state_dict(self, state_dict: dict[str, Any], *args: Any, **kwargs: Any) -> Any:
        """Load a checkpoint of this model or of a stock ``transformer``.

        What the checkpoint lacks keeps its starting value; the log names it.

        Raises:
            ValueError: the checkpoint has head gates where the model has none, other numbers of
                heads, or an alpha that is NaN.
        """
        no_numbers = [
            name
            for name, value in state_dict.items()
            if name.endswith("alpha_logit") and isinstance(value, Tensor) and value.isnan().any()
        ]
        if no_numbers:
            raise _refusal(
                f"the checkpoint has no number (NaN) for {', '.join(no_numbers)}: its training "
                f"has diverged, take an earlier checkpoint"
            )
        gated = {name.rpartition(".gate.")[0] for name in state_dict if ".gate." in name}
        names = {name for name, module in self.named_modules() if _has_gate(module)}
        if gated - names:
            raise _refusal(
                f"the checkpoint has head gates in {', '.join(sorted(gated - names))}, the model "
                f"has none there: give the --head-gates that it was trained with, or take the "
                f"closed heads out of it with 'fairseq-entmax prune'"
            )
        try:
            result = super().load_state_dict(state_dict, *args, **kwargs)
        except RuntimeError as error:
            if "size mismatch" in str(error) and "_proj.weight" in str(error):
                raise _refusal(
                    "the checkpoint has other numbers of heads, or another width, than the model: "
                    "give the options that 'fairseq-entmax prune CHECKPOINT --print-config' prints "
                    f"({error})"
                ) from error
            raise
        new_gates = [name for g in _gates(self) for name in g.filled if name.endswith("weight")]
        if new_gates:
            logger.warning(
                "the checkpoint has no head gates for %s; they start at --gate-init %s",
                ", ".join(name.removesuffix(".gate.weight") for name in new_gates),
                self.cfg.attention_options.gate["init"],
            )
        attentions = [m for m in self.modules() if isinstance(m, MultiheadAttention)]
        filled = [name for attention in attentions for name in attention.filled]
        if filled:
            logger.warning(
                "the checkpoint has no value for %d learned parameters; they start as "
                "--alpha-init %s says: %s",
                len(filled),
                self.cfg.attention_options.alpha_init,
                ", ".join(filled),
            )
        return result


def _refusal(message: str) -> ValueError:
    """An error to raise; one of fairseq's commands ends with it as its message."""
    error = ValueError(message)
    compat.stop_command(error)
    return error


def _has_gate(module: nn.Module) -> bool:
    return isinstance(module, MultiheadAttention) and module.gate is not None


def _gates(model: nn.Module) -> list[HardConcreteGate]:
    return [module for module in model.modules() if isinstance(module, HardConcreteGate)]


def attention_modules(model: Any) -> Iterator[tuple[str, int, MultiheadAttention]]:
    """Every attention of a model as (one of the three names, layer from 0, module)."""
    # By name: to iterate over the layers themselves drops some at random with LayerDrop
    for number, layer in _transformer_layers(model.encoder):
        yield ENCODER_SELF, number, layer.self_attn
    for number, layer in _transformer_layers(model.decoder):
        yield DECODER_SELF, number, layer.self_attn
        if layer.encoder_attn is not None:
            yield CROSS, number, layer.encoder_attn


def _transformer_layers(stack: Any) -> Iterator[tuple[int, Any]]:
    layers = (layer for layer in stack.layers.children() if hasattr(layer, "self_attn"))
    return enumerate(layers)


def learned_alphas(model: Any) -> dict[str, dict[int, Entmax]]:
    """The mappings that learn alpha: attention to layer number to mapping."""
    found: dict[str, dict[int, Entmax]] = {}
    for attention, number, module in attention_modules(model):
        mapping = module.mapping
        if isinstance(mapping, Entmax) and mapping.alpha_logit is not None:
            found.setdefault(attention, {})[number] = mapping
    return found


def _share_alpha(model: EntmaxTransformerModel) -> None:
    """Make the layers, or all attentions, use one parameter, as ``--share-alpha`` says."""
    share = model.cfg.attention_options.share_alpha
    if share not in (SHARE_ATTENTION, SHARE_MODEL):
        return
    shared: dict[str, nn.Parameter] = {}
    for attention, layers in learned_alphas(model).items():
        group = attention if share == SHARE_ATTENTION else SHARE_MODEL
        for mapping in layers.values():
            assert mapping.alpha_logit is not None
            mapping.alpha_logit = shared.setdefault(group, mapping.alpha_logit)


def _namespace(cfg: Any) -> Namespace:
    """The ``model`` section of a configuration as options, with where to save.

    Raises:
        ValueError: a name looks like an option of this model, and is none.
    """
    own_options(cfg)
    with open_dict(cfg):
        if "save_dir" not in cfg:
            cfg.save_dir = "${oc.select:checkpoint.save_dir,null}"
            cfg.no_save = "${oc.select:checkpoint.no_save,false}"
    return Namespace(**OmegaConf.to_container(cfg, resolve=True))


def _check_criterion(args: Namespace, options: AttentionOptions) -> None:
    """Let a criterion of this package check its options beside those of the model."""
    criterion = CRITERION_REGISTRY.get(getattr(args, "criterion", None))
    if hasattr(criterion, "check_options"):
        criterion.check_options(args, {name: sum(options.heads[name]) for name in options.gated})


def _register_architectures() -> None:
    for stock_name, stock_defaults in compat.stock_architectures().items():

        def defaults(args: Any, stock_defaults: Any = stock_defaults) -> None:
            set_defaults(args)
            stock_defaults(args)
            if isinstance(args, Namespace):
                # On the command line, before fairseq makes the save directory
                try:
                    kernels.chosen()
                    take_heads_of_start(args)
                    keep_layers(args)
                    options = read_options(args, TransformerConfig.from_namespace(args))
                    if getattr(args, "save_dir", None) is not None:  # in training
                        _check_criterion(args, options)
                        data_bin.check_training_data(args)
                except ValueError as error:
                    compat.stop_command(error)
                    raise

        register_model_architecture("entmax_transformer", f"entmax_{stock_name}")(defaults)


_register_architectures()
