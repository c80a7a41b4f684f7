"""The base class that gives the heads of a fairseq model their mappings and gates.

    @register_model("my_transformer")
    class MyTransformer(ModelWithHeads, TransformerModel): ...

fairseq builds the model. Then every attention in it gets its mapping, number of heads and gates.
"""

from __future__ import annotations

import logging
from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from typing import Any, ClassVar

import torch
from fairseq.dataclass.utils import gen_parser_from_dataclass
from fairseq.distributed import utils as distributed_utils
from fairseq.models import (
    ARCH_CONFIG_REGISTRY,
    ARCH_MODEL_INV_REGISTRY,
    register_model_architecture,
)
from omegaconf import OmegaConf, open_dict
from torch import nn

from fairseq_entmax import command_errors, compat, kernels
from fairseq_entmax.attention import Gate, PruningState, attention_modules
from fairseq_entmax.attention import gates as gates_module
from fairseq_entmax.attentions import ATTENTIONS
from fairseq_entmax.criterions.fitting import check_loss
from fairseq_entmax.criterions.sparse_output import SOFTMAX
from fairseq_entmax.criterions.teacher import Teacher
from fairseq_entmax.mappings import entmax
from fairseq_entmax.mappings.rise import Rise
from fairseq_entmax.models import config
from fairseq_entmax.models.feature import ModelOptions
from fairseq_entmax.models.head_record import HeadMonitor
from fairseq_entmax.models.initial_checkpoint import (
    check_resumed,
    initial_checkpoint_of,
    options_of_initial_checkpoint,
    read_initial_checkpoint,
)
from fairseq_entmax.models.restoring import Restoring
from fairseq_entmax.models.scripting import ForInference

logger = logging.getLogger(__name__)


def check_stock_options(args: Any) -> None:
    """Raise ValueError if an option of fairseq's would bypass the mappings."""
    for side in ("encoder", "decoder"):
        if getattr(args, f"{side}_xformers_att_config", None) is not None:
            raise ValueError(
                f"--{side}-xformers-att-config replaces all of the attention, including its "
                f"mapping: leave it out, or use fairseq's own transformer"
            )
    if getattr(args, "mha_heads_to_keep", -1) != -1:
        raise ValueError(
            f"--mha-heads-to-keep {args.mha_heads_to_keep} shrinks attention without telling the mapping: "
            f"leave it out, and prune with --head-gates or fairseq-entmax prune --keep"
        )


def drawn_seed() -> int:
    """Draw a seed without advancing torch's generator: weights start alike whatever the mapping."""
    with torch.random.fork_rng(devices=[]):
        return int(torch.randint(2**62, ()))


class ModelWithHeads(ForInference, Restoring, nn.Module):
    """Mixin for fairseq's Transformers: heads get mappings and gates; what they learn is recorded.

    List it before fairseq's model among the bases of a class.
    """

    attentions: ClassVar[tuple[str, ...]] = ATTENTIONS  # of the models of this class
    # What the models have in addition to fairseq's; only AttentionHeads is required
    features: ClassVar[config.Features] = config.FEATURES
    attention_options: ModelOptions
    monitor: HeadMonitor | None = None
    pruning_state: PruningState | None  # None without gates
    output_rise: Rise | None  # warm-up of the output's alpha; None without one
    _seed = 0
    _passes = (-1, 0)

    @classmethod
    def hub_models(cls) -> dict[str, Any]:
        """Empty, as fairseq's pretrained models belong to its own classes."""
        return {}

    @classmethod
    def add_args(cls, parser: Any) -> None:
        super().add_args(parser)  # type: ignore[misc]
        # fairseq looks for options only in the registered class, not in its bases
        options = (vars(base).get("__dataclass") for base in cls.__mro__)
        dataclass = next(filter(None, options), None)
        if dataclass is not None and getattr(cls, "__dataclass", None) is None:
            gen_parser_from_dataclass(parser, dataclass(), delete_default=True)
        config.add_arguments(parser, cls.features)

    @classmethod
    def _option_names(cls) -> set[str]:
        parser = ArgumentParser(add_help=False)
        cls.add_args(parser)
        return {action.dest for action in parser._actions}

    @classmethod
    def _namespace(cls, cfg: Any) -> Namespace:
        """Options from the ``model`` section, with some on checkpoints and the loss."""
        config.refuse_unknown(cfg, cls._option_names(), cls.features)
        names = "save_dir no_save restore_file continue_once finetune_from_model checkpoint_suffix"
        checkpoint = cfg._get_root().get("checkpoint") or {}
        borrowed = {name: checkpoint.get(name) for name in names.split()}
        criterion = cfg._get_root().get("criterion")
        borrowed["criterion"] = getattr(criterion, "_name", None)
        borrowed["loss_alpha"] = getattr(criterion, "loss_alpha", None)
        return Namespace(**{**borrowed, **OmegaConf.to_container(cfg, resolve=True)})

    @classmethod
    def attention_options_of(cls, args: Any) -> ModelOptions:
        """The options of this package, parsed and checked against each other."""
        return ModelOptions(args, cls.attentions, cls.features)

    @classmethod
    def build_model(cls, args: Any, task: Any) -> Any:
        """Build a model from parsed options, or from the ``model`` section of a YAML file.

        If training starts from a pruned checkpoint and no option gives the numbers of heads, they
        are taken from the checkpoint.
        """
        with command_errors.stopping_command():
            prepared = cls._namespace(args) if OmegaConf.is_config(args) else args
            config.set_defaults(prepared, cls.features)
            check_stock_options(prepared)
            for name in ("encoder_layers_to_keep", "decoder_layers_to_keep"):
                # fairseq's parser turns it into a list, but its models expect a text
                if isinstance(getattr(prepared, name, None), list | tuple):
                    setattr(prepared, name, ",".join(map(str, getattr(prepared, name))))
            initial = read_initial_checkpoint(prepared)
            recorded: dict[str, Any] = dict(options_of_initial_checkpoint(prepared, initial))
            if initial is not None and recorded:
                text = config.as_arguments(recorded)
                logger.info("the numbers of heads are those of %s: %s", initial.path, text)
            vars(prepared).update(recorded)
            options = cls.attention_options_of(prepared)
            check_resumed(prepared, options, initial)
        for feature in options.features.values():
            recorded.update(feature.recorded_options())
        vars(prepared).update(recorded)
        if prepared is not args:
            with open_dict(args):
                args.update(recorded)
        model = super().build_model(prepared, task)  # type: ignore[misc]
        model.take_features(options, prepared)
        return model

    def prepare_criterion(self, criterion: Any, task: Any, save_dir: str = "") -> None:
        """Before training, add the loss against ``--teacher``, if given, to a criterion.

        Raises:
            ValueError: the criterion does not fit the model.
        """
        check_loss(type(criterion), self)
        if self.head_gates() and not hasattr(criterion, "penalty"):
            logger.warning(
                "--head-gates closes no head without a --criterion that ends in _with_head_l0, such "
                "as label_smoothed_cross_entropy_with_head_l0"
            )
        teaching = self.attention_options.features.get("teaching")
        if teaching and teaching.teacher and teaching.teacher_weight:
            teacher = Teacher(teaching.teacher, task, teaching.teacher_weight, save_dir)
            teacher.teach(self, criterion)

    def head_seed(self) -> int:
        """The seed for the initial values of what mappings learn."""
        drawn = getattr(getattr(self, "cfg", None), "head_seed", None)
        return drawn_seed() if drawn is None else int(drawn)

    def take_features(self, options: ModelOptions, args: Any) -> None:
        """Add the features to the model, once fairseq has built it."""
        self.attention_options = options
        self.pruning_state = self.output_rise = None
        for feature in options.features.values():
            feature.attach(self, args)
        self._seed = torch.initial_seed()

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        if self.monitor is not None:
            self.monitor.observe(self.training)
        if self.training:
            self._draw_gates()
        return super().forward(*args, **kwargs)

    @property
    def output_alpha(self) -> float:
        """The current alpha of the mapping from word scores to probabilities; 1 is softmax."""
        alpha = self.attention_options.output_alpha
        rise = self.output_rise
        return alpha if rise is None else SOFTMAX + rise.share * (alpha - SOFTMAX)

    @property
    def gives_zeros(self) -> bool:
        """Whether a word may have probability exactly zero."""
        return self.output_alpha != SOFTMAX

    def get_normalized_probs(self, net_output: Any, log_probs: bool, sample: Any = None) -> Any:
        """Word probabilities, or their logarithms; by entmax, with exact zeros, unless alpha is 1."""
        if self.output_alpha == SOFTMAX:
            return super().get_normalized_probs(net_output, log_probs, sample)  # type: ignore[misc]
        probs = entmax(net_output[0].float(), self.output_alpha)
        return probs.log() if log_probs else probs

    def head_gates(self) -> dict[str, dict[int, Gate]]:
        """The gates on heads, by attention and layer number."""
        gates: dict[str, dict[int, Gate]] = {}
        for attention, number, module in attention_modules(self):
            if module.gate is not None:
                gates.setdefault(attention, {})[number] = module.gate
        return gates

    def set_num_updates(self, num_updates: int) -> None:
        """Called only by fairseq's trainer, before each step."""
        super().set_num_updates(num_updates)  # type: ignore[misc]
        if self.monitor is not None:
            self.monitor.is_trained = True

    def _draw_gates(self) -> None:
        """Draw the gates of one training pass from the seed, the update, and the batch's number in it.

        Batch ``i`` of worker ``r`` out of ``w`` has the number ``i w + r``. So ``w`` workers draw the
        same gates as one worker with ``w`` times as many batches per update."""
        if self.pruning_state is None:
            return
        gates = [gate for layers in self.head_gates().values() for gate in layers.values()]
        updates = compat.trainer_num_updates() or 0
        previous, passes = self._passes
        # Without a trainer there is no update number to tell passes apart, so all are counted
        passes = passes + 1 if previous == updates else 0
        self._passes = updates, passes
        rank = distributed_utils.get_global_rank()
        workers = distributed_utils.get_global_world_size()
        gates_module.draw(gates, self._seed, updates, passes * workers + rank)


def architecture(
    model_class: type[ModelWithHeads], stock_defaults: Callable[[Any], None]
) -> Callable[[Any], None]:
    """Make an architecture's function: set our defaults and fairseq's, then check a command line.

    The check comes before data are read; of options in a checkpoint, once that is read.
    """

    def defaults(args: Any) -> None:
        config.flatten(args)
        config.set_defaults(args, model_class.features)
        stock_defaults(args)
        if isinstance(args, Namespace) and getattr(args, "save_dir", None) is not None:
            with command_errors.stopping_command():
                kernels.chosen()
                if initial_checkpoint_of(args) is None:
                    model_class.attention_options_of(args)

    return defaults


def register_counterparts(
    stock: str,
    model_class: type[ModelWithHeads],
    prefix: str = "entmax_",
    adapted: Callable[[Any], Any] = lambda stock_defaults: stock_defaults,
) -> None:
    """For each architecture of a stock model, register a counterpart under the prefixed name."""
    for name in ARCH_MODEL_INV_REGISTRY[stock]:
        defaults = architecture(model_class, adapted(ARCH_CONFIG_REGISTRY[name]))
        register_model_architecture(prefix + stock, prefix + name)(defaults)
