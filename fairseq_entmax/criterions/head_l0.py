"""Label-smoothed cross-entropy with a penalty on open heads."""

# No annotations as text here: fairseq reads the types of a dataclass of options
import logging
import math
import weakref
from argparse import Namespace
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from fairseq.criterions import register_criterion
from fairseq.criterions.label_smoothed_cross_entropy import (
    LabelSmoothedCrossEntropyCriterion,
    LabelSmoothedCrossEntropyCriterionConfig,
)
from fairseq.logging import metrics
from omegaconf import II
from torch import Tensor

from fairseq_entmax import compat
from fairseq_entmax.attentions import ATTENTIONS
from fairseq_entmax.criterions.penalty import (
    ALL,
    Counts,
    Gates,
    HeadPenalty,
    count_heads,
    undecided_heads,
)
from fairseq_entmax.criterions.penalty_options import MULTIPLIER_LR, read_penalty
from fairseq_entmax.modules.pruning_state import PruningState

logger = logging.getLogger(__name__)

NAME = "label_smoothed_cross_entropy_with_head_l0"
NEEDS_GATES = (
    f"--criterion {NAME} needs a model with head gates: add --head-gates "
    f"{','.join(ATTENTIONS)}, or some of these, to an entmax_transformer"
)


@dataclass
class HeadL0Config(LabelSmoothedCrossEntropyCriterionConfig):
    """Options of the criterion, beside those of fairseq's label-smoothed cross-entropy."""

    l0_weight: float = field(
        default=0.0,
        metadata={
            "help": "lambda: the penalty, in nats per target token, for each head that is "
            "expected to be open; 0, or from 1e-6 to 1000"
        },
    )
    l0_warmup_updates: int = field(
        default=-1,
        metadata={
            "help": "updates in which the weight rises from 0, or the target falls from all "
            "heads to --target-heads (-1: none for a weight, 2/3 of the updates before the heads "
            "are decided for a target)"
        },
    )
    target_heads: str = field(
        default="",
        metadata={
            "help": "how many heads to keep, in all, or of each attention, such as "
            "encoder-self=10,cross=16; instead of --l0-weight"
        },
    )
    decide_heads_at: int = field(
        default=-1,
        metadata={
            "help": "the update at which each gate becomes exactly 0 or 1 (-1: 3/4 of "
            "--max-update with --target-heads, never with --l0-weight)"
        },
    )
    l0_multiplier_lr: float = field(
        default=MULTIPLIER_LR,
        metadata={
            "help": "learning rate of the Lagrange multipliers of --target-heads, from 1e-6 to 10"
        },
    )
    max_update: int = II("optimization.max_update")


@register_criterion(NAME, dataclass=HeadL0Config)
class LabelSmoothedCrossEntropyWithHeadL0(LabelSmoothedCrossEntropyCriterion):
    """fairseq's label-smoothed cross-entropy plus a penalty on open heads.

    For a batch of sample size n (target tokens; sentences with ``--sentence-avg``) the loss is
    the summed cross-entropy plus n times the penalty. fairseq divides the sum over batches and
    workers by the sum of n: so the penalty is one number per token, whatever the batches.

    In validation the gates are as in generation, and the penalty is that of
    :meth:`HeadPenalty.at_validation`: the loss that chooses the best checkpoint.

    The options are those of :class:`HeadL0Config`.

    Raises:
        ValueError: an option is wrong, or the model has no gates; names the option, the value
            and what is allowed.
    """

    def __init__(
        self,
        task: Any,
        sentence_avg: bool,
        label_smoothing: float,
        ignore_prefix_size: int = 0,
        report_accuracy: bool = False,
        l0_weight: float = 0.0,
        l0_warmup_updates: int = -1,
        target_heads: str = "",
        decide_heads_at: int = -1,
        l0_multiplier_lr: float = MULTIPLIER_LR,
        max_update: int = 0,
    ) -> None:
        super().__init__(task, sentence_avg, label_smoothing, ignore_prefix_size, report_accuracy)
        try:
            self.penalty = read_penalty(
                l0_weight,
                l0_warmup_updates,
                target_heads,
                decide_heads_at,
                l0_multiplier_lr,
                max_update,
            )
        except ValueError as error:
            compat.stop_command(error)
            raise
        if self.penalty.targets is None and not self.penalty.weight:
            logger.warning(
                "neither --l0-weight nor --target-heads was given to --criterion %s: open heads "
                "cost nothing",
                NAME,
            )
        self._reported: int | None = None

    def forward(
        self, model: Any, sample: Any, reduce: bool = True
    ) -> tuple[Tensor, int, dict[str, Any]]:
        """The loss of one batch: arguments and result are those of fairseq's criterion."""
        gates, state = self._gates_of(model)
        updates = compat.trainer_num_updates()
        if model.training:
            self.penalty.advance(gates, state, updates or 0)
        elif updates is not None:
            self.penalty.advance(gates, state, updates)
            self._report_undecided(gates, updates)
        loss, sample_size, logging_output = super().forward(model, sample, reduce=reduce)
        if model.training:
            penalty = self.penalty(gates, state)
        else:
            penalty = self.penalty.at_validation(gates)
        added = penalty.to(loss) * sample_size
        # Without reduction the loss is one number a token, and its sum is to be the same
        loss = loss + (added if reduce else added / loss.numel())
        logging_output["loss"] = loss.data
        logging_output["l0_penalty"] = added.data
        self._log(gates, state)
        return loss, sample_size, logging_output

    @classmethod
    def check_options(cls, args: Namespace, gated_heads: Mapping[str, int]) -> None:
        """Check the options of ``fairseq-train`` when they are read, before anything is made.

        Args:
            args: all options.
            gated_heads: attention to the number of gates that the model will have.

        Raises:
            ValueError: as the constructor and the first batch, which see to it where training
                is not started by a command line.
        """
        penalty = read_penalty(
            args.l0_weight,
            args.l0_warmup_updates,
            args.target_heads,
            args.decide_heads_at,
            args.l0_multiplier_lr,
            args.max_update or 0,
        )
        if not gated_heads:
            raise ValueError(NEEDS_GATES)
        penalty.check_sizes(gated_heads)

    @classmethod
    def reduce_metrics(cls, logging_outputs: list[dict[str, Any]]) -> None:
        """Aggregate what batches and workers logged."""
        super().reduce_metrics(logging_outputs)
        penalty = sum(log.get("l0_penalty", 0) for log in logging_outputs)
        sample_size = sum(log.get("sample_size", 0) for log in logging_outputs)
        metrics.log_scalar("l0_penalty", penalty / sample_size / math.log(2), sample_size, round=4)

    def _gates_of(self, model: Any) -> tuple[Gates, PruningState]:
        gates = model.head_gates() if hasattr(model, "head_gates") else {}
        try:
            if any(cls.__name__ == "FullyShardedDataParallel" for cls in type(model).__mro__):
                raise ValueError(
                    f"--criterion {NAME} cannot see gates that --ddp-backend fully_sharded has "
                    f"spread over the workers: use --ddp-backend pytorch_ddp"
                )
            if not gates:
                raise ValueError(NEEDS_GATES)
            self.penalty.check(gates)
        except ValueError as error:
            compat.stop_command(error)
            raise
        return gates, model.pruning_state

    def _report_undecided(self, gates: Gates, updates: int) -> None:
        if self._reported == updates:
            return
        self._reported = updates
        heads = undecided_heads(gates)
        if heads:
            listed = ", ".join(f"{a}:{layer}.{h} {value:.3f}" for a, layer, h, value in heads)
            logger.info(
                "%d heads have a gate strictly between 0 and 1 (attention:layer.head gate): %s",
                len(heads),
                listed,
            )

    def _log(self, gates: Gates, state: PruningState) -> None:
        """Let fairseq show the numbers of heads; they are counted when it does."""
        groups = {"": [gate for layers in gates.values() for gate in layers.values()]}
        for attention, layers in gates.items():
            groups["_" + attention.replace("-", "_")] = list(layers.values())
        for suffix, members in groups.items():
            count = _Count(members)
            compat.log_when_shown(f"heads_expected{suffix}", count.of("expected"))
            compat.log_when_shown(f"heads_open{suffix}", count.of("open"))
            if not suffix:
                compat.log_when_shown("heads_undecided", count.of("undecided"))
        for name in self.penalty.targets or (ALL,):
            suffix = "" if name == ALL else "_" + name.replace("-", "_")
            compat.log_when_shown(f"l0_weight{suffix}", _Weight(self.penalty, state, name))


class _Count:
    """Numbers of heads behind some gates, counted when they are asked for."""

    def __init__(self, gates: list[Any]) -> None:
        # fairseq keeps its metrics as long as the process lives; not the model with them
        self._gates = [weakref.ref(gate) for gate in gates]

    def of(self, what: str) -> Callable[[], float]:
        return lambda: self._value(what)

    def _value(self, what: str) -> float:
        gates = [gate for gate in (reference() for reference in self._gates) if gate is not None]
        counts: Counts = count_heads(gates)
        return round(float(getattr(counts, what)), 3)


class _Weight:
    """The present weight of the penalty, looked up when it is asked for."""

    def __init__(self, penalty: HeadPenalty, state: PruningState, name: str) -> None:
        self._penalty = penalty
        self._state = weakref.ref(state)
        self._name = name

    def __call__(self) -> float:
        state = self._state()
        return math.nan if state is None else round(self._penalty.weights(state)[self._name], 5)
