"""What prune.sh trains: the budgets of heads, and the options of fairseq-train that they mean.

pruning_plan.py all=24,encoder=4,2/3/3 --updates 1030 --layers 3 --heads 8 --example all=24
pruning_plan.py all=4 --updates 600 --layers 2 --heads 4 --example all=4 --attentions decoder-self

Prints when heads are pushed and decided, as options, and then a line a budget: its name as a part
of a folder's name, and its options, with a tab between them.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from dataclasses import dataclass

from messages import UsageError, one_sentence

ATTENTIONS = ("encoder-self", "decoder-self", "cross")
# When heads are decided, in percent of the search: near its end, as what is left of them recovers
# afterwards, without gates and at a rate of its own
DECISION_PART, WHOLE = 95, 100
# The number of heads falls to its target in 2/3 of the updates before, the criterion's default too
WARMUP_PART = DECISION_PART * 2 // 3
FEWEST_UPDATES = 4  # of a search of fewer there is nothing before and behind the decision

WITHIN_ALL = re.compile(r"all=([0-9]{1,4})")
WITHIN_ENCODER = re.compile(r"encoder=([0-9]{1,4})")
# In place of a number: this attention has no gates, and keeps all its heads
WITHOUT_GATES = "-"
OF_ONE = rf"([0-9]{{1,4}}|{WITHOUT_GATES})"


@dataclass(frozen=True)
class Budget:
    """How many heads to keep.

    Attributes:
        text: as it was given: ``all=N``, ``encoder=N``, or ``E/D/C``, in which - is an attention without gates.
        options: of fairseq-train, which prune to it.
    """

    text: str
    options: tuple[str, ...]

    @property
    def name(self) -> str:
        """The text as a part of a folder's name."""
        return self.text.replace(WITHOUT_GATES, "x").replace("/", "-").replace("=", "")


def schedule(updates: int) -> tuple[str, ...]:
    """The options that say when heads are pushed and decided.

    Args:
        updates: of the search, at least `FEWEST_UPDATES`.

    Raises:
        UsageError: there are fewer.
    """
    if updates < FEWEST_UPDATES:
        raise UsageError(
            f"option --search-updates got '{updates}': give {FEWEST_UPDATES} or more, the heads "
            "are decided shortly before its end"
        )
    warmup, decision = (updates * part // WHOLE for part in (WARMUP_PART, DECISION_PART))
    return "--l0-warmup-updates", f"{warmup}", "--decide-heads-at", f"{decision}"


def parse_budget(text: str, heads: int, attentions: Sequence[str] = ATTENTIONS) -> Budget:
    """Read one budget.

    Args:
        heads: of each attention, over all layers: the most that can be kept.
        attentions: those of the model; the budget of each is in their order.

    Raises:
        UsageError: it is none, or keeps more heads than there are.
    """
    within_all, within_encoder = WITHIN_ALL.fullmatch(text), WITHIN_ENCODER.fullmatch(text)
    of_each = re.fullmatch("/".join([OF_ONE] * len(attentions)), text)
    everywhere = ("--head-gates", ",".join(attentions), "--target-heads")
    if within_all and int(within_all[1]) <= len(attentions) * heads:
        return Budget(text, (*everywhere, within_all[1]))
    has_encoder = attentions == ATTENTIONS
    if has_encoder and within_encoder and int(within_encoder[1]) <= heads:
        target = f"{ATTENTIONS[0]}={within_encoder[1]}"
        encoder = ("--head-gates", ATTENTIONS[0], "--target-heads", target, "--freeze-decoder")
        return Budget(text, encoder)
    if of_each:
        pairs = zip(attentions, of_each.groups(), strict=True)
        targets = {name: count for name, count in pairs if count != WITHOUT_GATES}
        if targets and max(map(int, targets.values())) <= heads:
            counts = ",".join(f"{name}={count}" for name, count in targets.items())
            gated = ("--head-gates", ",".join(targets))
            return Budget(text, (*gated, "--target-heads", counts))
    allowed = f"all=N with N up to {len(attentions) * heads}"
    if has_encoder:
        allowed += (
            f", encoder=N with N up to {heads}, or three numbers up to {heads}, such as 2/3/3"
        )
    raise UsageError(f"option --budgets got '{text}': give {allowed}")


def parse_budgets(
    text: str, heads: int, example: str, attentions: Sequence[str] = ATTENTIONS
) -> list[Budget]:
    """Read budgets with commas between them, and perhaps behind the last.

    Args:
        heads: of each attention, over all layers.
        example: for the message.
        attentions: those of the model.

    Raises:
        UsageError: there are none, or one is wrong.
    """
    if not text:
        raise UsageError(f"option --budgets got '{text}': give some, such as {example}")
    return [parse_budget(one, heads, attentions) for one in text.removesuffix(",").split(",")]


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("budgets")
    parser.add_argument("--updates", type=int, required=True, help="of the search")
    parser.add_argument("--layers", type=int, required=True, help="of encoder and of decoder")
    parser.add_argument("--heads", type=int, required=True, help="of an attention of a layer")
    parser.add_argument("--example", required=True, help="budgets for a message")
    parser.add_argument("--attentions", nargs="+", choices=ATTENTIONS, default=ATTENTIONS)
    options = parser.parse_args(arguments)
    with one_sentence():
        timing = schedule(options.updates)
        heads = options.layers * options.heads
        attentions = tuple(options.attentions)
        budgets = parse_budgets(options.budgets, heads, options.example, attentions)
        print(*timing)
        for budget in budgets:
            print(budget.name, " ".join(budget.options), sep="\t")


if __name__ == "__main__":
    main()
