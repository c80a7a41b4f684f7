"""Criterions of fairseq with a penalty on open heads."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping as Dictionary
from dataclasses import fields, make_dataclass
from functools import partial
from typing import Any, ClassVar

from fairseq import utils
from fairseq.criterions import (
    CRITERION_DATACLASS_REGISTRY,
    CRITERION_REGISTRY,
    FairseqCriterion,
    register_criterion,
)
from fairseq.criterions.adaptive_loss import AdaptiveLoss
from fairseq.criterions.cross_entropy import CrossEntropyCriterion
from fairseq.criterions.label_smoothed_cross_entropy import LabelSmoothedCrossEntropyCriterion
from fairseq.criterions.masked_lm import MaskedLmLoss
from fairseq.criterions.sentence_prediction import SentencePredictionCriterion
from fairseq.logging import metrics
from fairseq.logging.meters import AverageMeter
from torch import Tensor

from fairseq_entmax import command_errors, compat
from fairseq_entmax.attention.pruning_state import PruningState
from fairseq_entmax.attentions import ATTENTIONS
from fairseq_entmax.criterions.penalty import ALL, GatesByLayer, HeadPenalty, count_heads
from fairseq_entmax.criterions.penalty_options import HeadL0Options, read_penalty

logger = logging.getLogger(__name__)

# Names of criterions with a penalty, and of the stock criterions that they are made from
STOCK_NAMES: dict[str, str] = {}


class HeadL0Criterion(FairseqCriterion):
    """A criterion of fairseq plus a penalty on open heads; made by :func:`with_head_l0`.

    For a batch of sample size n (target tokens; sentences with ``--sentence-avg``), the loss is
    that of the stock criterion plus n times the penalty. fairseq divides the sum over batches and
    workers by the sum of n, so the penalty per token does not depend on the batches.

    In validation, gates are as in generation, and the penalty is that of
    :meth:`HeadPenalty.at_validation`. Scores from before the decision select no best checkpoint.
    """

    name: ClassVar[str]  # under which it is registered
    stock: ClassVar[type[FairseqCriterion]]  # which it is made from

    def __init__(self, cfg: Any, task: Any) -> None:
        super().__init__(task)
        self.stock_criterion = self.stock.build_criterion(cfg, task)
        with command_errors.stopping_command():
            self.penalty = read_penalty(cfg)
        if self.penalty.targets is None and not self.penalty.weight:
            logger.warning(
                "neither --l0-weight nor --target-heads was given to --criterion %s: open heads cost nothing",
                self.name,
            )

    def check_model(self, model: Any) -> None:
        """Check, before training, that the model has the gates that the options ask for."""
        if hasattr(self.stock_criterion, "check_model"):
            self.stock_criterion.check_model(model)
        if any(cls.__name__ == "FullyShardedDataParallel" for cls in type(model).__mro__):
            raise ValueError(
                f"--criterion {self.name} cannot see gates that --ddp-backend fully_sharded has "
                f"spread over the workers: use --ddp-backend pytorch_ddp"
            )
        gates = model.head_gates() if hasattr(model, "head_gates") else {}
        if not gates:
            attentions = getattr(model, "attentions", None)
            of_arch = "" if attentions else " to an architecture entmax_…"
            raise ValueError(
                f"--criterion {self.name} needs a model with head gates: add --head-gates with any "
                f"of {','.join(attentions or ATTENTIONS)}{of_arch}"
            )
        self.penalty.check(gates)

    def forward(
        self, model: Any, sample: Any, reduce: bool = True
    ) -> tuple[Tensor, int, dict[str, Any]]:
        """The loss of one batch: arguments and result are those of fairseq's criterion."""
        gates, state = model.head_gates(), model.pruning_state
        updates = compat.trainer_num_updates()
        if model.training or updates is not None:
            self.penalty.advance(gates, state, updates or 0)
        loss, sample_size, logging_output = self.stock_criterion(model, sample, reduce=reduce)
        of = self.penalty
        penalty = of(gates, state) if model.training else of.at_validation(gates)
        added = penalty.to(loss) * sample_size
        # Without reduction there is one loss per token, and their sum must be the same
        share = added if reduce else added / loss.numel()
        loss, logging_output["loss"] = loss + share, logging_output["loss"] + share.data
        logging_output["l0_penalty"] = added.data
        self._log(gates, state)
        return loss, sample_size, logging_output

    @classmethod
    def reduce_metrics(cls, logging_outputs: list[dict[str, Any]]) -> None:
        """Aggregate logs as the stock criterion does; log the penalty, and add it to the loss."""
        without = [
            {**log, "loss": log.get("loss", 0) - log.get("l0_penalty", 0)}
            for log in logging_outputs
        ]
        # What the penalty adds, in the units and with the weights of the stock criterion
        added = cls._logged_loss(logging_outputs) - cls._logged_loss(without)
        cls.stock.reduce_metrics(without)
        penalty = sum(log.get("l0_penalty", 0) for log in logging_outputs) / math.log(2)
        sample_size = sum(log.get("sample_size", 0) for log in logging_outputs)
        metrics.log_scalar("l0_penalty", penalty / sample_size, sample_size, round=4)
        for meters in metrics.get_active_aggregators():
            if isinstance(meters.get("loss"), AverageMeter):
                meters["loss"].sum = meters["loss"].sum + added
            if "ppl" in meters and "nll_loss" not in meters:  # then it is computed from the loss
                meters["ppl"].fn = _perplexity

    @classmethod
    def _logged_loss(cls, logging_outputs: list[dict[str, Any]]) -> Any:
        """The sum of the losses that the stock criterion logs, as it weights them."""
        with metrics.aggregate(new_root=True) as meters:
            cls.stock.reduce_metrics(logging_outputs)
        return getattr(meters.get("loss"), "sum", 0.0)

    def logging_outputs_can_be_summed(self) -> bool:
        return self.stock_criterion.logging_outputs_can_be_summed()

    def _log(self, gates: GatesByLayer, state: PruningState) -> None:
        """Have fairseq log the numbers of heads; they are counted when it shows them."""
        groups = {"": [gate for layers in gates.values() for gate in layers.values()]}
        for attention, layers in gates.items():
            groups["_" + attention.replace("-", "_")] = list(layers.values())
        for suffix, members in groups.items():
            for what in ("expected", "open") if suffix else ("expected", "open", "undecided"):
                compat.log_when_shown(f"heads_{what}{suffix}", partial(count_heads, what), *members)
        for name in self.penalty.targets or (ALL,):
            suffix = "" if name == ALL else "_" + name.replace("-", "_")
            weight = partial(_weight, self.penalty, name)
            compat.log_when_shown(f"l0_weight{suffix}", weight, state)


def _weight(penalty: HeadPenalty, name: str, *states: PruningState) -> float:
    """The current weight of the penalty, or the multiplier of one of its targets."""
    return round(penalty.weights(states[0])[name], 5) if states else math.nan


def _perplexity(meters: Any) -> float:
    return utils.get_perplexity(meters["loss"].avg - meters["l0_penalty"].avg)


def with_head_l0(stock: type[FairseqCriterion]) -> type[HeadL0Criterion]:
    """Make a criterion with a penalty on open heads from one of fairseq's, and register it.

    Its name is that of the stock criterion with ``_with_head_l0`` appended, and its options are
    those of the stock criterion and of :class:`HeadL0Options`.

    Args:
        stock: a registered criterion with a dataclass of options, whose ``forward`` returns
            (loss, sample size, logging output), and whose ``reduce_metrics`` logs ``loss``.

    Raises:
        ValueError: ``stock`` is not registered, has no dataclass, or has such a criterion already.
    """
    stock_name = next((name for name, known in CRITERION_REGISTRY.items() if known is stock), "")
    if stock_name not in CRITERION_DATACLASS_REGISTRY:
        raise ValueError(f"{stock.__name__} is not a registered criterion with a config dataclass")
    name = f"{stock_name}_with_head_l0"
    # Checkpoints store the name of the class, too
    class_name = stock.__name__.removesuffix("Criterion") + "WithHeadL0"
    members = {"name": name, "stock": stock, "__doc__": f"``{stock_name}`` with the penalty."}
    criterion = type(class_name, (HeadL0Criterion,), members)
    bases = (HeadL0Options, CRITERION_DATACLASS_REGISTRY[stock_name])
    options = make_dataclass(f"{class_name}Options", (), bases=bases)
    # So that the processes that fairseq starts can find it by name
    options.__module__ = __name__
    globals()[options.__name__] = options
    register_criterion(name, dataclass=options)(criterion)
    STOCK_NAMES[name] = stock_name
    return criterion


def plain_criterion(settings: Dictionary[str, Any]) -> dict[str, Any]:
    """Reduce settings of a criterion with a penalty to the stock one's; copy others unchanged."""
    stock_name = STOCK_NAMES.get(settings.get("_name", ""))
    if stock_name is None:
        return dict(settings)
    names = {option.name for option in fields(CRITERION_DATACLASS_REGISTRY[stock_name])}
    stock_settings = {name: value for name, value in settings.items() if name in names}
    return {**stock_settings, "_name": stock_name}


NAME = with_head_l0(LabelSmoothedCrossEntropyCriterion).name
for _stock in (CrossEntropyCriterion, AdaptiveLoss, SentencePredictionCriterion, MaskedLmLoss):
    with_head_l0(_stock)
