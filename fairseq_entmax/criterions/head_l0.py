"""Label-smoothed cross-entropy with a penalty on open heads."""

# No annotations as text here: fairseq reads the types of a dataclass of options
import logging
import math
import weakref
from collections.abc import Callable
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
from fairseq_entmax.modules.pruning_state import PruningState

logger = logging.getLogger(__name__)

NAME = "label_smoothed_cross_entropy_with_head_l0"
MULTIPLIER_LR = 0.02


@dataclass
class HeadL0Config(LabelSmoothedCrossEntropyCriterionConfig):
    """Options of the criterion, beside those of fairseq's label-smoothed cross-entropy."""

    l0_weight: float = field(
        default=0.0,
        metadata={
            "help": "lambda: the penalty, in nats per target token, for each head that is "
            "expected to be open"
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
        metadata={"help": "learning rate of the Lagrange multipliers of --target-heads"},
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
                raise ValueError(
                    f"--criterion {NAME} needs a model with head gates: add --head-gates "
                    f"{','.join(ATTENTIONS)}, or some of these, to an entmax_transformer"
                )
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


def read_penalty(
    l0_weight: float,
    l0_warmup_updates: int,
    target_heads: str,
    decide_heads_at: int,
    l0_multiplier_lr: float,
    max_update: int,
) -> HeadPenalty:
    """Check the options against each other, and make the penalty.

    Raises:
        ValueError: names the option, the value, and what is allowed.
    """
    if not (0 <= l0_weight < math.inf):
        raise ValueError(f"--l0-weight must be a number of 0 or more, not {l0_weight}")
    if not (0 < l0_multiplier_lr < math.inf):
        raise ValueError(f"--l0-multiplier-lr must be a number above 0, not {l0_multiplier_lr}")
    for option, value in (
        ("--l0-warmup-updates", l0_warmup_updates),
        ("--decide-heads-at", decide_heads_at),
    ):
        if value < -1:
            raise ValueError(f"{option} must be a number of updates, 0 or more, not {value}")
    targets = parse_targets(target_heads)
    decide_at = None if decide_heads_at < 0 else decide_heads_at
    if decide_at is not None and 0 < max_update <= decide_at:
        raise ValueError(
            f"--decide-heads-at {decide_at} is not before --max-update {max_update}: training "
            f"would end before the heads are decided, give a smaller number"
        )
    if targets is None:
        warmup = max(0, l0_warmup_updates)
        return HeadPenalty(l0_weight, None, warmup, decide_at, l0_multiplier_lr)
    if l0_weight:
        raise ValueError(
            f"--l0-weight {l0_weight} and --target-heads {target_heads} were both given: the "
            f"target finds its weight by itself, leave one of the two out"
        )
    if decide_at is None:
        if max_update <= 0:
            raise ValueError(
                f"--target-heads {target_heads} needs to know when to decide which heads stay: "
                f"give --decide-heads-at UPDATE, or --max-update, 3/4 of which is the default"
            )
        decide_at = max_update * 3 // 4
    warmup = decide_at * 2 // 3 if l0_warmup_updates < 0 else l0_warmup_updates
    if warmup > decide_at:
        raise ValueError(
            f"--l0-warmup-updates {warmup} is behind --decide-heads-at {decide_at}: the target "
            f"would not be reached before the heads are decided"
        )
    return HeadPenalty(0.0, targets, warmup, decide_at, l0_multiplier_lr)


def parse_targets(text: Any) -> dict[str, int] | None:
    """Read ``--target-heads``: ``"24"``, or ``"encoder-self=10,cross=16"``.

    Returns:
        Attention, or ``"all"``, to number of heads; None for an empty text.

    Raises:
        ValueError: names what is wrong.
    """
    if text is None or str(text).strip() == "":
        return None
    allowed = (
        f"give a whole number, or one for each of some attentions, such as "
        f"encoder-self=10,cross=16 (allowed: {', '.join(ATTENTIONS)})"
    )
    targets: dict[str, int] = {}
    for part in str(text).split(","):
        name, equals, number = (piece.strip() for piece in part.rpartition("="))
        name = name if equals else ALL
        known = name in ATTENTIONS if equals else "," not in str(text)
        if not known or name in targets or not (number.isascii() and number.isdigit()):
            raise ValueError(f"--target-heads got {part.strip()!r} in {text!r}: {allowed}")
        targets[name] = int(number)
    return targets
