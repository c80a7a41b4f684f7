"""Runs everything that needs a GPU, most informative first, and gathers the output.

    scripts/benchmarks/gpu.sh                                # at most 20 minutes
    scripts/benchmarks/gpu.sh --minutes 10 --output results
    scripts/benchmarks/gpu.sh --parts tests attention
    scripts/benchmarks/gpu.sh --dry-run                      # the commands, and the time each may take
    scripts/benchmarks/gpu.sh --device cpu --quick           # toy sizes on a CPU, to try the script

The parts, in this order: tests of the Triton kernels and of a whole model on the device; this package's
attention against torch's flash attention, cuDNN's and the memory-efficient one, entmax_bisect and
adasplash; the mapping alone; training at the size of transformer_iwslt_de_en against stock fairseq, in
fp16 and bf16 on the shipped corpus, and with sources of 400 words; generation against stock fairseq; the
loss over a vocabulary; and structured mappings. A part may take its share of the time and what earlier
parts left. A part that fails, or runs out of time, does not stop the others. In the folder of --output,
each part has its numbers in PART.json and its output in PART.log; gpu.md, which is rewritten after each
part, has the outcome of every part and the end of its output.

It needs a clone of the project, a GPU of compute capability 8.0 or later, and in one environment:

    pip install torch                      # a build with CUDA, which brings Triton
    pip install -e '.[fairseq,test]'       # the project, fairseq, pytest and the package entmax
    pip install adasplash                  # a peer, left out if it is missing

PYTHON is the Python to take, such as PYTHON=.venv/bin/python; default: python3.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

import torch
from common import machine, machine_line

ROOT = Path(__file__).parents[2]
BENCHMARKS = ROOT / "scripts" / "benchmarks"
TRITON = ROOT / "tests" / "kernels" / "triton"
# Tests of the kernels alone, of the modules that choose them, and of whole models
TESTS = [
    TRITON,
    ROOT / "tests" / "attention" / "test_fused_attention.py",
    ROOT / "tests" / "attention" / "test_model_on_gpu.py",
]
CORPUS = ROOT / "examples" / "bible_es_en" / "prepare.sh"
# Lines of a part's output in gpu.md
KEPT_LINES = 60
# Time between asking a part to end and killing it
GRACE_SECONDS = 5.0


class Part(NamedTuple):
    """A command, and its share of the time."""

    name: str
    share: int
    command: list[str]


def benchmark(name: str, words: str = "") -> list[str]:
    """The command of a benchmark; ``{out}`` is the folder of the results."""
    return [sys.executable, "-W", "ignore", str(BENCHMARKS / f"{name}.py"), *words.split()]


def tests(files: list[Path], *words: str) -> list[str]:
    """The command of pytest, which works from any folder."""
    command = [sys.executable, "-m", "pytest", "-v", "--tb=line", "-p", "no:cacheprovider"]
    return [*command, "--rootdir", str(ROOT), *map(str, files), *words]


def parts() -> list[Part]:
    """All parts for a GPU, most informative first."""
    attention = "--device cuda --spread 1.5 --repeats 10"
    train = "--model iwslt_de_en --cuda --rounds 5 --updates 6"
    shipped = f"{{out}}/bible/data-bin {train} --max-tokens 4096"
    large_heads = "--lengths 512 2048 128 --dtypes bf16"
    causal = "--causal --lengths 1024 --dtypes bf16 --models wmt_en_de"
    long = f"random:400x100 {train} --max-tokens 16000 --bf16 --query-scale 4"
    generation = "--device cuda --fp16"
    # Compilation takes most of the tests' time
    processes = str(max(1, min(12, (os.cpu_count() or 1) - 1)))
    return [
        # Without tests that only compile for some kind of GPU: they take minutes and need no GPU
        Part("tests", 220, tests(TESTS, "-m", "not compiles_only", "-n", processes)),
        Part("attention", 120, benchmark("fused_attention", f"{attention} {large_heads}")),
        Part("attention-causal", 60, benchmark("fused_attention", f"{attention} {causal}")),
        Part("mapping", 40, benchmark("mapping", "--device cuda")),
        Part("mapping-drawn", 40, benchmark("mapping", "--device cuda --drawn")),
        Part("corpus", 100, ["bash", str(CORPUS), "--output", "{out}/bible"]),
        Part("training-fp16", 110, benchmark("training", f"{shipped} --fp16")),
        Part("training-bf16", 110, benchmark("training", f"{shipped} --bf16")),
        Part("training-400", 90, benchmark("training", long)),
        Part("generation", 60, benchmark("generation", f"{generation} --repeats 5")),
        Part("generation-base", 70, benchmark("generation", f"{generation} --size base --repeats 3")),
        Part("losses", 40, benchmark("losses", "--device cuda --rows 4096")),
        Part("structure", 40, benchmark("structured", "--device cuda")),
    ]  # fmt: skip


def quick_parts() -> list[Part]:
    """Parts at toy size on a CPU, with Triton's interpreter, to try the script."""
    rows = "--shapes 64x8 --repeats 1"
    tiny = "--device cpu --models wmt_en_de --lengths 8 --dtypes fp32 --tokens 8 --repeats 1"
    train = "random:12x8 --rounds 1 --updates 1 --max-tokens 24"
    return [
        Part("tests", 60, tests([TRITON / "test_contract.py"], "-k", "test_rows_of_one_epsilon")),
        Part("attention", 60, benchmark("fused_attention", tiny)),
        Part("mapping", 60, benchmark("mapping", rows)),
        Part("mapping-drawn", 60, benchmark("mapping", f"--drawn {rows}")),
        Part("training", 120, benchmark("training", train)),
        Part("generation", 60, benchmark("generation", "--sentences 2 --batch 2 --beam 2 --repeats 1")),
        Part("losses", 60, benchmark("losses", "--rows 8 --keys 300 --rounds 1")),
        Part("structure", 60, benchmark("structured", rows)),
    ]  # fmt: skip


def command_of(part: Part, output: Path) -> list[str]:
    """The command with the paths of results, to which a benchmark writes its numbers."""
    command = [word.replace("{out}", str(output)) for word in part.command]
    is_benchmark = any(word.startswith(str(BENCHMARKS)) for word in command)
    return [*command, "--json", str(output / f"{part.name}.json")] if is_benchmark else command


def run(part: Part, output: Path, seconds: float) -> str:
    """Run a part and return its outcome. All processes that it started end with it."""
    if seconds <= 0:
        return "skipped: no time was left"
    with (
        (output / f"{part.name}.log").open("w", encoding="utf-8") as log,
        subprocess.Popen(
            command_of(part, output), stdout=log, stderr=subprocess.STDOUT, start_new_session=True
        ) as process,
    ):
        try:
            status = process.wait(seconds)
        except subprocess.TimeoutExpired:
            return f"stopped after {seconds:.0f} s"
        finally:
            # Ask the group of the process to end, and end what does not
            for number in (signal.SIGTERM, signal.SIGKILL):
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, number)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(GRACE_SECONDS)
    return "done" if status == 0 else f"failed: exit status {status}"


def gather(chosen: list[Part], seconds: float, output: Path, heading: str) -> bool:
    """Run parts one after the other, each in its share and unused time; whether any was done."""
    text, outcomes = f"{heading}\n", []
    begin, share = time.monotonic(), 0.0
    for part in chosen:
        share += part.share / sum(one.share for one in chosen)
        remaining = share * seconds - (time.monotonic() - begin)
        print(f"==> {part.name}: at most {remaining:.0f} s", flush=True)
        log = output / f"{part.name}.log"
        log.write_text("", encoding="utf-8")
        log.with_suffix(".json").unlink(missing_ok=True)  # numbers of an earlier call
        outcomes.append(run(part, output, remaining))
        print(f"    {outcomes[-1]}", flush=True)
        lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
        printed = "\n".join(lines[-KEPT_LINES:])
        text += f"\n## {part.name}: {outcomes[-1]}\n\n```\n{printed}\n```\n"
        (output / "gpu.md").write_text(text, encoding="utf-8")
    return "done" in outcomes


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="gpu.sh", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--output", type=Path, default=Path("gpu"), metavar="DIR")
    parser.add_argument("--minutes", type=float, default=20.0, help="time for all parts together")
    parser.add_argument("--parts", nargs="+", metavar="NAME", help="as in --dry-run; default: all")
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--quick", action="store_true", help="use toy sizes, with --device cpu")
    parser.add_argument("--dry-run", action="store_true", help="print what would run, and exit")
    options = parser.parse_args(argv)
    if (options.device == "cpu") != options.quick:
        parser.error("--device cpu and --quick belong together: give both, or neither")
    known = {part.name: part for part in (quick_parts() if options.quick else parts())}
    for name in options.parts or []:
        if name not in known:
            parser.error(f"--parts got {name!r}: choose from {' '.join(known)}")
    chosen = [part for name, part in known.items() if name in (options.parts or known)]
    output = options.output.absolute()
    if options.dry_run:
        for part in chosen:
            print(f"{part.name}: {shlex.join(command_of(part, output))}")
        return 0
    if options.device == "cuda" and not torch.cuda.is_available():
        parser.error(
            "there is no GPU here that torch can use: run it where torch.cuda.is_available() is true, "
            "or try the script with --device cpu --quick"
        )
    output.mkdir(parents=True, exist_ok=True)
    # Use this clone's package, this Python's commands, and one GPU, where fairseq would take all
    for name, first in (("PYTHONPATH", ROOT), ("PATH", Path(sys.executable).parent)):
        os.environ[name] = f"{first}{os.pathsep}{os.environ.get(name, '')}"
    os.environ.setdefault("CUDA_VISIBLE_DEVICES", "0")
    if options.quick:
        os.environ["TRITON_INTERPRET"] = "1"
    # End a running part too, as by Ctrl-C
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    is_done = gather(chosen, options.minutes * 60, output, machine_line(machine(options.device)))
    print(f"\n{output / 'gpu.md'} has the output")
    return 0 if is_done else 1


if __name__ == "__main__":
    sys.exit(main())
