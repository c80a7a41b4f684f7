"""Translate prune.sh's budgets of heads into options of fairseq-train.

pruning_plan.py all=24,encoder=4,2/3/3 --updates 1030 --layers 3 --heads 8
pruning_plan.py all=4 --updates 600 --layers 2 --heads 4 --attentions decoder-self

Prints the options that say when heads are pushed and decided, then a line for each budget: its name
as part of a folder's name, a tab, and its options.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence

from messages import UsageError, one_sentence

ATTENTIONS = ("encoder-self", "decoder-self", "cross")
# When heads are decided, in percent of the search: near its end, as the remaining heads recover
# afterwards, without gates and at another learning rate
DECISION_PART, WHOLE = 95, 100
# The number of heads falls to its target in 2/3 of the updates before that, as by default
WARMUP_PART = DECISION_PART * 2 // 3
WITHIN = re.compile(r"(all|encoder)=([0-9]{1,4})")
# In place of a number: this attention has no gates, and keeps all its heads
WITHOUT_GATES = "-"
OF_ONE = rf"([0-9]{{1,4}}|{WITHOUT_GATES})"


def schedule(updates: int) -> tuple[str, ...]:
    """The options that say when heads are pushed and decided in a search of `updates` updates."""
    warmup, decision = (updates * part // WHOLE for part in (WARMUP_PART, DECISION_PART))
    return "--l0-warmup-updates", f"{warmup}", "--decide-heads-at", f"{decision}"


def options_of(text: str, heads: int, attentions: Sequence[str] = ATTENTIONS) -> tuple[str, ...]:
    """The options of a budget, ``all=N``, ``encoder=N`` or ``E/D/C``, of `heads` per attention."""
    within = WITHIN.fullmatch(text)
    of_each = re.fullmatch("/".join([OF_ONE] * len(attentions)), text)
    has_encoder = attentions == ATTENTIONS
    if within and within[1] == "all" and int(within[2]) <= len(attentions) * heads:
        return "--head-gates", ",".join(attentions), "--target-heads", within[2]
    if within and within[1] == "encoder" and has_encoder and int(within[2]) <= heads:
        target = f"{ATTENTIONS[0]}={within[2]}"
        return "--head-gates", ATTENTIONS[0], "--target-heads", target, "--freeze-decoder"
    if of_each:
        pairs = zip(attentions, of_each.groups(), strict=True)
        targets = {name: count for name, count in pairs if count != WITHOUT_GATES}
        if targets and max(map(int, targets.values())) <= heads:
            counts = ",".join(f"{name}={count}" for name, count in targets.items())
            return "--head-gates", ",".join(targets), "--target-heads", counts
    allowed = f"all=N with N up to {len(attentions) * heads}"
    if has_encoder:
        allowed += (
            f", encoder=N with N up to {heads}, or three numbers up to {heads}, such as 2/3/3"
        )
    raise UsageError(f"option --budgets got '{text}': give {allowed}")


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("budgets", help="comma-separated budgets; a trailing comma is allowed")
    parser.add_argument("--updates", type=int, required=True, help="updates of the search")
    parser.add_argument(
        "--layers", type=int, required=True, help="layers of encoder and of decoder"
    )
    parser.add_argument("--heads", type=int, required=True, help="heads of an attention in a layer")
    parser.add_argument("--attentions", nargs="+", choices=ATTENTIONS, default=ATTENTIONS)
    options = parser.parse_args(arguments)
    heads, attentions = options.layers * options.heads, tuple(options.attentions)
    with one_sentence():
        timing = schedule(options.updates)
        texts = options.budgets.removesuffix(",").split(",")
        if twice := [text for text in texts if texts.count(text) > 1]:
            raise UsageError(f"option --budgets has '{twice[0]}' twice: remove one of them")
        budgets = {text: options_of(text, heads, attentions) for text in texts}
        print(*timing)
        for text, given in budgets.items():
            name = text.replace(WITHOUT_GATES, "x").replace("/", "-").replace("=", "")
            print(name, " ".join(given), sep="\t")


if __name__ == "__main__":
    main()
