"""What analysis costs beside a plain teacher-forced validation pass, and how its memory grows.

    python scripts/benchmarks/analysis.py DATA --path CHECKPOINT --gen-subset test --cpu
    python scripts/benchmarks/analysis.py DATA --path CHECKPOINT --memory valid,train --cpu

Takes fairseq's options on data and batches. Validation is fairseq's own step, with its
cross-entropy, over the same batches; analysis makes all measures but relevance: the pass itself,
the gradient on its sample of sentences, and ten attention maps. Both take turns in one process;
the table has medians, and the ratio of speeds in the same repeat. ``--memory`` analyses each subset
named in a process of its own, and shows the most memory that it held.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import time
from typing import Any

from common import machine, write_json
from fairseq.criterions.cross_entropy import CrossEntropyCriterion

from fairseq_entmax.analysis.analyze import analyse
from fairseq_entmax.analysis.analyze import parser as analyze_parser
from fairseq_entmax.analysis.data import loading
from fairseq_entmax.analysis.measures import optional_names
from fairseq_entmax.analysis.models.loaded import load_models

WANTED = [measure for measure in optional_names() if measure != "relevance"]


def parser() -> argparse.ArgumentParser:
    """The options of ``fairseq-entmax analyze``, and this script's."""
    options = analyze_parser()
    options.description, options.prog = __doc__, "scripts/benchmarks/analysis.py"
    options.formatter_class = argparse.RawDescriptionHelpFormatter
    options.set_defaults(no_progress_bar=True)
    options.add_argument("--repeats", type=int, default=5)
    options.add_argument("--memory", metavar="SUBSET,…", help="the subsets to compare")
    options.add_argument("--peak", action="store_true", help=argparse.SUPPRESS)
    options.add_argument("--json", metavar="FILE", default="analysis.json", help="the numbers")
    return options


def validate(args: argparse.Namespace, task: Any, model: Any, criterion: Any) -> float:
    """Seconds of a plain pass over the data set."""
    begin = time.perf_counter()
    for sample in loading.batches(args, task, task.dataset(args.gen_subset), [model]):
        task.valid_step(sample, model, criterion)
    return time.perf_counter() - begin


def speeds(args: argparse.Namespace) -> dict[str, Any]:
    """Seconds of each, and the ratio of speeds."""
    task = loading.setup_task(args)
    loading.load_dataset(task, args.gen_subset)
    (loaded,) = load_models(args, task)
    criterion = CrossEntropyCriterion(task, sentence_avg=False)
    times: dict[str, list[float]] = {"validation": [], "analysis": []}
    for repeat in range(args.repeats + 1):
        plain = validate(args, task, loaded.model, criterion)
        begin = time.perf_counter()
        document = analyse(args, WANTED, task, [loaded])
        full = time.perf_counter() - begin
        if repeat:  # the first round warms up
            times["validation"].append(plain)
            times["analysis"].append(full)
    ratio = statistics.median(a / b for a, b in zip(*times.values(), strict=True))
    sentences = document["data"]["sentences"]
    print(f"{'pass':<11} {'sentences/s':>11}")
    for name, seconds in times.items():
        print(f"{name:<11} {sentences / statistics.median(seconds):>11.1f}")
    print(f"analysis runs at {ratio:.2f} times the speed of validation ({sentences} sentences)")
    return {"sentences": sentences, "seconds": times, "ratio": ratio}


def peaks(args: argparse.Namespace, arguments: list[str]) -> list[dict[str, Any]]:
    """The most memory that an analysis of each subset held, in a process of its own."""
    rows = []
    for subset in args.memory.split(","):
        command = [sys.executable, "-W", "ignore", __file__, *arguments, "--peak"]
        result = subprocess.run(
            [*command, f"--gen-subset={subset}"], stdout=subprocess.PIPE, text=True, check=True
        )
        rows.append({"subset": subset, **json.loads(result.stdout.splitlines()[-1])})
        print(f"{subset:<8} {rows[-1]['sentences']:>8} sentences {rows[-1]['mebibytes']:>8.1f} MiB")
    return rows


def main() -> None:
    arguments = sys.argv[1:]
    args = loading.parse(parser(), arguments)
    loading.log_to_stderr()
    if args.peak:
        document = analyse(args, WANTED)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(json.dumps({"sentences": document["data"]["sentences"], "mebibytes": peak}))
        return
    result = {"memory": peaks(args, arguments)} if args.memory else speeds(args)
    write_json(args.json, {**machine(), "path": args.path}, **result)


if __name__ == "__main__":
    main()
