"""Runs all that a GPU is needed for, most informative first, and writes one JSON and one table.

    scripts/benchmarks/gpu.sh                                # at most 20 minutes
    scripts/benchmarks/gpu.sh --minutes 10 --output results
    scripts/benchmarks/gpu.sh --parts tests attention
    scripts/benchmarks/gpu.sh --dry-run                      # the commands, and the time each may take
    scripts/benchmarks/gpu.sh --device cpu --quick           # toy sizes on a CPU, to try the script

In this order: the tests of the Triton kernels and of a whole model on the device; attention here
against torch's flash attention, cuDNN's and the memory-efficient one, entmax_bisect and adasplash;
the mapping alone; training at the size of transformer_iwslt_de_en, in fp16 and bf16 on the shipped corpus and with
sources of 400 words, against stock fairseq; generation against stock fairseq; the loss of a
vocabulary, models that copy, and mappings with structure. A part may take its share of the time and
what those before it left. One that fails, or is over its time, is said in the table, and the others
run. What it had measured by then is in the table: the tests, shapes or kinds of scores that it was
done with, and of training, generation and copying the rounds; the corpus has no figures. Written
after every part: gpu.json and gpu.md. Ctrl-C and SIGTERM end the part that runs, and both files have
what there is by then.

It needs a clone of the project, a GPU of compute capability 8.0 or later, and in one environment:

    pip install torch                      # a build with CUDA, which brings Triton
    pip install -e '.[fairseq,test]'       # the project, fairseq, pytest and the package entmax
    pip install adasplash                  # a peer, left out where it is missing

PYTHON is the Python to take, such as PYTHON=.venv/bin/python; default: python3.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import math
import shlex
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gpu_process import SIGNALS, finished

NO_GPU = UNWRITABLE = 2
# Lines of what a part printed that are kept with the numbers
KEPT_LINES = 30
TEXT_PARTS = ("package entmax", "entmax"), ("adasplash", "adasplash")


def filled(word: str, places: dict[str, str]) -> str:
    """A word of a command with the paths that are known now."""
    for place, path in places.items():
        word = word.replace(place, path)
    return word


def run(part: Any, number: int, work: Path, seconds: float) -> dict[str, Any]:
    """Run a part; what came of it.

    Args:
        part: of gpu_parts.py.
        number: that names its files.
        work: folder that the parts share.
        seconds: that it may take.
    """
    file, log = work / f"{number}.json", work / f"{number}.log"
    places = {"{json}": str(file), "{work}": str(work)}
    command = [filled(word, places) for word in part.command]
    result: dict[str, Any] = {"part": part.name, "seconds": 0.0, "lines": []}
    if part.needs and not (work / part.needs).exists():
        return {**result, "status": "left out: what it needs was not made"}
    begin = time.monotonic()
    if seconds <= 0:
        return {**result, "status": "left out: no time was left"}
    status = finished(command, part.environment, seconds, log)
    result["seconds"] = round(time.monotonic() - begin, 1)
    said = log.read_text(encoding="utf-8", errors="replace")
    result["said"] = said.splitlines()[-KEPT_LINES:]
    if status == 0:
        result["status"] = "done"
    elif status is None and SIGNALS.came:
        result["status"] = f"stopped by {SIGNALS.came.name}"
    elif status is None:
        result["status"] = f"stopped after {seconds:.0f} s"
    else:
        result["status"] = f"failed: {last_words(result['said'])}"
    try:
        report = said if part.reads_output else json.loads(file.read_text(encoding="utf-8"))
        result["report"] = None if part.reads_output else report
        result["lines"] = [line._asdict() for line in part.lines(report)]
    except (OSError, ValueError, KeyError, StopIteration):
        # Nothing was written, or not all of it
        if status == 0:
            result["status"] = "failed: it wrote no numbers"
    return result


def last_words(lines: list[str]) -> str:
    """The last line that says something."""
    said = [line.strip() for line in lines if line.strip().strip("=-")]
    return said[-1][:200] if said else "without a word"


def table(facts: str, results: list[dict[str, Any]]) -> str:
    """One table in Markdown: what became of each part, and its lines."""
    from common import markdown
    from gpu_tables import TITLES

    rows = []
    for result in results:
        outcome = f"{result['status']}, {result['seconds']:.0f} s".replace("|", "/")
        rows.append([f"**{result['part']}**", outcome, *[""] * (len(TITLES) - 2)])
        rows += [
            [result["part"], *(str(value).replace("|", "/") for value in line.values())]
            for line in result["lines"]
        ]
    return f"{facts}\n\n{markdown(TITLES, rows, left=3)}\n"


def peers() -> str:
    """Which of the packages that are compared with are there."""
    return ", ".join(
        f"{name} {'is' if importlib.util.find_spec(module) else 'is not'} installed"
        for name, module in TEXT_PARTS
    )


def gather(
    chosen: list[Any], scale: float, write: Callable[[list[dict[str, Any]]], None]
) -> list[dict[str, Any]]:
    """Run the parts one after the other, each in its share of the time and what was left of others'."""
    results: list[dict[str, Any]] = []
    begin, end = time.monotonic(), 0.0
    with tempfile.TemporaryDirectory() as folder:
        for number, part in enumerate(chosen):
            if SIGNALS.came:
                break
            end += part.share * scale
            seconds = end - (time.monotonic() - begin)
            print(f"==> {part.name}: at most {seconds:.0f} s", flush=True)
            results.append(run(part, number, Path(folder), seconds))
            print(f"    {results[-1]['status']}, {results[-1]['seconds']:.0f} s", flush=True)
            write(results)
    return results


def parsed(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="gpu.sh", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--output", type=Path, default=Path("gpu"), metavar="DIR")
    parser.add_argument("--minutes", type=float, default=20.0, help="for all parts together")
    parser.add_argument("--parts", nargs="+", metavar="NAME", help="of --dry-run; default: all")
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--quick", action="store_true", help="toy sizes, with --device cpu")
    parser.add_argument("--dry-run", action="store_true", help="say what would run, and end")
    options = parser.parse_args(argv)
    if not 0 < options.minutes < math.inf:
        parser.error(f"--minutes must be a number above 0, not {options.minutes:g}")
    for folder in (options.output, *options.output.parents):
        if folder.exists() and not folder.is_dir():
            parser.error(f"--output got {str(options.output)!r}: {folder} is a file, not a folder")
    if (options.device == "cpu") != options.quick:
        parser.error("--device cpu and --quick belong together: give both, or neither")
    if importlib.util.find_spec("torch") is None:
        parser.error("this Python has no torch: --help says what is to be installed")
    from gpu_parts import parts, quick_parts

    everything = quick_parts() if options.quick else parts("cuda")
    names = [part.name for part in everything]
    for name in options.parts or []:
        if name not in names:
            parser.error(f"--parts got {name!r}: choose from {' '.join(names)}")
    options.chosen = [one for one in everything if one.name in (options.parts or names)]
    # All of them have the whole time, some of them too
    options.scale = options.minutes * 60 / sum(one.share for one in options.chosen)
    return options


def main(argv: list[str] | None = None) -> int:
    options = parsed(argv)
    if options.dry_run:
        for part in options.chosen:
            print(f"{part.name}: at most {part.share * options.scale:.0f} s")
            print(f"    {shlex.join(part.command)}")
        return 0
    with SIGNALS.noted():
        status = measured(options)
    if SIGNALS.came is None:
        return status
    print(
        f"gpu.sh: stopped by {SIGNALS.came.name}; {options.output / 'gpu.md'} has what there is",
        file=sys.stderr,
    )
    return 128 + SIGNALS.came


def measured(options: argparse.Namespace) -> int:
    """Run the parts and write what came of them; the exit status."""
    import torch
    from common import machine, said, write_json

    if options.device == "cuda" and not torch.cuda.is_available():
        print(
            "gpu.sh: error: there is no GPU here that torch can use: run it where torch.cuda.is_available()"
            " is true, or try the script by --device cpu --quick",
            file=sys.stderr,
        )
        return NO_GPU
    facts = {**machine(options.device), "minutes": options.minutes, "quick": options.quick}
    first = f"{said(facts)}; {peers()}"
    try:
        options.output.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        print(
            f"gpu.sh: error: --output got {str(options.output)!r}: {error.strerror}",
            file=sys.stderr,
        )
        return UNWRITABLE

    def write(results: list[dict[str, Any]]) -> None:
        write_json(options.output / "gpu.json", {"settings": facts, "parts": results})
        (options.output / "gpu.md").write_text(table(first, results), encoding="utf-8")

    write([])
    results = gather(options.chosen, options.scale, write)
    print(f"\n{table(first, results)}")
    return 0 if any(result["status"] == "done" for result in results) else 1


if __name__ == "__main__":
    sys.exit(main())
