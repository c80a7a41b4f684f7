"""The options of the penalty on open heads, their ranges, and the penalty that they define."""

# No ``from __future__ import annotations``: fairseq reads the types of options at run time
import re
from dataclasses import dataclass
from typing import Any

from fairseq.dataclass import FairseqDataclass
from omegaconf import II

from fairseq_entmax import compat
from fairseq_entmax.attentions import ATTENTIONS
from fairseq_entmax.criterions.penalty import ALL, HeadPenalty
from fairseq_entmax.mappings.rise import MOST_UPDATES

# Up to here a loss over a million tokens, with the penalty, is finite in float32, and so is a
# multiplier after the most updates allowed; a smaller rate has no effect that float32 can show
MOST_WEIGHT = 1000
LEAST_RATE, MOST_RATE = 1e-6, 10


@dataclass
class HeadL0Options(FairseqDataclass):
    """Options of a criterion with the penalty, in addition to those of the stock criterion."""

    l0_weight: float = compat.option(
        0.0,
        "lambda: penalty in nats per target token for each head that is expected to be open, from 0 to 1000",
    )
    l0_warmup_updates: int = compat.option(
        -1,
        "updates over which the weight rises from 0, or the target falls from all "
        "heads to --target-heads (-1: none for a weight; for a target, 2/3 of the updates "
        "before the heads are decided)",
    )
    target_heads: str = compat.option(
        "",
        "number of heads to keep, in all, or of each attention, such as "
        "encoder-self=10,cross=16; instead of --l0-weight",
    )
    decide_heads_at: int = compat.option(
        -1,
        "the update at which each gate becomes exactly 0 or 1 (-1: 3/4 of "
        "--max-update with --target-heads, never with --l0-weight)",
    )
    l0_multiplier_lr: float = compat.option(
        0.02, "learning rate of the Lagrange multipliers of --target-heads, from 1e-6 to 10"
    )
    max_update: int = II("optimization.max_update")


def read_penalty(options: Any) -> HeadPenalty:
    """Check the options of :class:`HeadL0Options`, and make the penalty."""
    for option, least, most in (
        ("l0_weight", 0, MOST_WEIGHT),
        ("l0_multiplier_lr", LEAST_RATE, MOST_RATE),
        ("l0_warmup_updates", -1, MOST_UPDATES),
        ("decide_heads_at", -1, MOST_UPDATES),
    ):
        value = getattr(options, option)
        if not least <= value <= most:
            name = option.replace("_", "-")
            raise ValueError(f"--{name} must be from {least:g} to {most:g}, not {value!r:.100}")
    weight, rate = options.l0_weight, options.l0_multiplier_lr
    targets = parse_targets(options.target_heads)
    max_update = options.max_update or 0
    decide_at = None if options.decide_heads_at < 0 else options.decide_heads_at
    if decide_at is not None and 0 < max_update <= decide_at:
        raise ValueError(
            f"--decide-heads-at {decide_at} is not before --max-update {max_update}: training "
            f"would end before the heads are decided; give a smaller number"
        )
    if targets is None:
        return HeadPenalty(weight, None, max(0, options.l0_warmup_updates), decide_at, rate)
    if weight:
        raise ValueError(
            f"--l0-weight {weight} and --target-heads {options.target_heads} were both given: the "
            f"target finds its weight by itself; leave one of the two out"
        )
    if decide_at is None:
        if max_update <= 0:
            raise ValueError(
                f"--target-heads {options.target_heads} needs to know when to decide which heads "
                f"stay: give --decide-heads-at UPDATE, or --max-update, 3/4 of which is the default"
            )
        decide_at = max_update * 3 // 4
    warmup = options.l0_warmup_updates
    warmup = decide_at * 2 // 3 if warmup < 0 else warmup
    if warmup > decide_at:
        raise ValueError(
            f"--l0-warmup-updates {warmup} is after --decide-heads-at {decide_at}, so the "
            f"heads would be decided before the target is reached: give {decide_at} or less"
        )
    return HeadPenalty(0.0, targets, warmup, decide_at, rate)


def parse_targets(text: Any, option: str = "--target-heads") -> dict[str, int] | None:
    """Parse numbers of heads by attention, or for ``"all"``; None for an empty text."""
    if text is None or str(text).strip() == "":
        return None
    targets: dict[str, int] = {}
    for part in str(text).split(","):
        name, equals, number = (piece.strip() for piece in part.rpartition("="))
        name = name if equals else ALL
        is_known = name in ATTENTIONS if equals else "," not in str(text)
        if not is_known or name in targets or not re.fullmatch("[0-9]{1,9}", number):
            raise ValueError(
                f"{option} got {part.strip()!r:.100} in {text!r:.100}: give a whole number, "
                f"or one for each of some attentions, such as encoder-self=10,cross=16 (allowed: "
                f"{', '.join(ATTENTIONS)})"
            )
        targets[name] = int(number)
    return targets
