"""How many updates one model makes in the time in which another makes so many.

pace.py measure entmax-large-seed1 entmax15-large-seed1 --output claims/bible_es_en --json pace.json
pace.py updates pace.json 16552

The two models take turns: both make updates on the same batches in every round, from their trained
weights, and nothing else runs beside them.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from claims_speed import loaded, seconds, training
from jobs import write_whole
from messages import one_sentence

Work = Callable[[], None]


def in_turns(works: Sequence[Work], rounds: int, device: str) -> list[list[float]]:
    """Of each work the seconds of its rounds; a first round, which is not counted, warms up."""
    taken: list[list[float]] = [[] for _ in works]
    for number in range(rounds + 1):
        for work, of_work in zip(works, taken, strict=True):
            one = seconds(work, device)
            if number:
                of_work.append(one)
    return taken


def ratio_of(model: Sequence[float], reference: Sequence[float]) -> float:
    """Updates a second of a model, those of the reference being 1: the median over the rounds.

    Args:
        model, reference: seconds of each round, of as many updates.
    """
    return statistics.median(b / a for a, b in zip(model, reference, strict=True))


def updates_in_equal_time(pace: Mapping[str, Any], updates: int) -> int:
    """How many updates the model makes while the reference makes `updates`; 1 or more."""
    return max(1, round(updates * float(pace["ratio"])))


def measure(options: argparse.Namespace) -> dict[str, Any]:
    device = "cpu" if options.device == "cpu" else "cuda"
    works, counts = [], []
    for run in (options.model, options.reference):
        checkpoint = options.output / "runs" / run / "checkpoints" / "checkpoint_best.pt"
        model, config, task = loaded(f"{checkpoint}", f"{options.output / 'data-bin'}", device)
        work, count = training(model, config, task, options.updates, device)
        works.append(work)
        counts.append(count)
    if len(set(counts)) > 1:
        raise ValueError(f"{options.model} and {options.reference} have other batches")
    model_seconds, reference_seconds = in_turns(works, options.rounds, options.device)
    return {
        "model": options.model,
        "reference": options.reference,
        "device": options.device,
        "updates": counts[0],
        "model_seconds_rounds": model_seconds,
        "reference_seconds_rounds": reference_seconds,
        "ratio": ratio_of(model_seconds, reference_seconds),
    }


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    measuring = commands.add_parser("measure", help="write a file with the ratio of their speeds")
    measuring.add_argument("model")
    measuring.add_argument("reference")
    measuring.add_argument("--output", type=Path, required=True, help="the corpus's folder")
    measuring.add_argument("--json", type=Path, required=True, help="the file to write")
    measuring.add_argument("--device", choices=("cpu", "gpu"), default="cpu")
    measuring.add_argument("--updates", type=int, default=20, help="to make in a round")
    measuring.add_argument("--rounds", type=int, default=15)
    counting = commands.add_parser("updates", help="print how many the model makes meanwhile")
    counting.add_argument("json", type=Path, help="as measure wrote it")
    counting.add_argument("updates", type=int, help="of the reference")
    options = parser.parse_args(arguments)
    with one_sentence():
        if options.command == "updates":
            pace = json.loads(options.json.read_text(encoding="utf-8"))
            print(updates_in_equal_time(pace, options.updates))
            return
        import fairseq_entmax.models  # noqa: F401

        write_whole(options.json, f"{json.dumps(measure(options), indent=1)}\n")


if __name__ == "__main__":
    main()
