"""What gpu.py runs: commands, the share of the time that each may take, and what each reports."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import gpu_tables as tables

ROOT = Path(__file__).parents[2]
BENCHMARKS = ROOT / "scripts" / "benchmarks"
CORPUS = ROOT / "examples" / "bible_es_en" / "prepare.sh"
# Of the kernels alone, of the modules that choose them, and of whole models
TESTS = [
    ROOT / "tests" / "kernels" / "triton",
    ROOT / "tests" / "modules" / "test_fused_attention.py",
    ROOT / "tests" / "modules" / "test_model_on_gpu.py",
]
# Without those that compile for a GPU of a kind, which takes minutes and needs none
ON_A_GPU = ["-m", "not compiles_only"]

Lines = list[tables.Line]


@dataclass(frozen=True)
class Part:
    """A command whose numbers are gathered.

    Attributes:
        name: in the table and for ``--parts``, without spaces and commas.
        share: seconds that it may take, of :data:`MINUTES` in all.
        command: words; ``{json}`` is the file that it is to write, ``{work}`` a folder that the
            parts share.
        lines: from what it wrote, the lines of the table.
        needs: a path below ``{work}`` that an earlier part makes.
        reads_output: its numbers are in what it prints, not in a file.
    """

    name: str
    share: int
    command: list[str]
    lines: Callable[[Any], Lines]
    needs: str = ""
    reads_output: bool = False
    environment: dict[str, str] = field(default_factory=dict)


MINUTES = 20


def benchmark(name: str, *words: object) -> list[str]:
    """The command of a benchmark that writes JSON."""
    script = str(BENCHMARKS / f"{name}.py")
    return [sys.executable, "-W", "ignore", script, *map(str, words), "--json", "{json}"]


def tests(files: list[Path], *words: str, processes: int) -> list[str]:
    """Pytest from any folder, by some processes where it can and more than one is asked for."""
    command = [sys.executable, "-m", "pytest", "-v", "--tb=line", "-p", "no:cacheprovider"]
    command += ["--rootdir", str(ROOT), *map(str, files), *words]
    if processes > 1 and importlib.util.find_spec("xdist"):
        command += ["-n", str(processes)]
    return command


def parts(device: str) -> list[Part]:
    """All of them for a GPU, most informative first."""
    cuda = ["--device", device]
    train = ["--model", "iwslt_de_en", "--cuda", "--rounds", 5, "--updates", 6]
    shipped = [*train, "--max-tokens", 4096]
    bible = "{work}/bible/data-bin"
    attention = [*cuda, "--spread", 1.5, "--repeats", 10]
    return [
        Part(
            "tests",
            220,
            # Compiling takes most of the time
            tests(TESTS, *ON_A_GPU, processes=max(1, min(6, (os.cpu_count() or 1) - 1))),
            tables.tests,
            reads_output=True,
        ),
        Part(
            "attention",
            190,
            benchmark(
                "fused_attention",
                *attention,
                "--lengths",
                512,
                2048,
                128,
                "--dtypes",
                "bf16",
                "fp16",
            ),
            tables.attention,
        ),
        Part(
            "attention-causal",
            60,
            benchmark(
                "fused_attention",
                *attention,
                *("--causal", "--lengths", 1024, "--dtypes", "bf16", "--models", "wmt_en_de"),
            ),
            tables.attention,
        ),
        Part("mapping", 40, benchmark("mapping", *cuda), tables.mapping),
        Part("mapping-drawn", 40, benchmark("mapping", *cuda, "--drawn"), tables.drawn),
        Part(
            "corpus",
            100,
            ["bash", str(CORPUS), "--output", "{work}/bible"],
            tables.nothing,
            reads_output=True,
            environment={"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"},
        ),
        *(
            Part(
                f"training-{dtype}",
                110,
                benchmark("training", bible, *shipped, f"--{dtype}"),
                tables.training,
                needs="bible/data-bin",
            )
            for dtype in ("fp16", "bf16")
        ),
        Part(
            "training-400",
            90,
            benchmark(
                "training",
                "random:400x100",
                *train,
                *("--max-tokens", 16000, "--bf16", "--query-scale", 4),
            ),
            tables.training,
        ),
        Part(
            "generation-quickstart",
            60,
            benchmark("generation", *cuda, "--fp16", "--repeats", 5),
            tables.generation,
        ),
        Part(
            "generation-base",
            70,
            benchmark("generation", *cuda, "--fp16", "--size", "base", "--repeats", 3),
            tables.generation,
        ),
        Part("losses", 40, benchmark("losses", *cuda, "--rows", 4096), tables.losses),
        Part("copying", 40, benchmark("copying", *cuda, "--sentences", 16), tables.copying),
        Part("structure", 40, benchmark("structured", *cuda), tables.structured),
    ]


def quick_parts() -> list[Part]:
    """The same at toy size on a CPU, Triton in its interpreter: to try the script."""
    once = ["--repeats", 1]
    few = ["--rounds", 1]
    interpreted = {"TRITON_INTERPRET": "1"}
    return [
        Part(
            "tests",
            60,
            tests([TESTS[0] / "test_contract.py"], "-k", "test_rows_of_one_epsilon", processes=1),
            tables.tests,
            reads_output=True,
            environment=interpreted,
        ),
        Part(
            "attention",
            60,
            benchmark(
                "fused_attention",
                *("--device", "cpu", "--models", "wmt_en_de", "--lengths", 8, "--dtypes", "fp32"),
                *("--tokens", 8, *once),
            ),
            tables.attention,
            environment=interpreted,
        ),
        Part("mapping", 60, benchmark("mapping", "--shapes", "64x8", *once), tables.mapping),
        Part(
            "mapping-drawn",
            60,
            benchmark("mapping", "--drawn", "--shapes", "64x8", *once),
            tables.drawn,
        ),
        Part(
            "training-random",
            120,
            benchmark("training", "random:12x8", *few, "--updates", 1, "--max-tokens", 24),
            tables.training,
        ),
        Part(
            "generation-quickstart",
            60,
            benchmark("generation", "--sentences", 2, "--batch", 2, "--beam", 2, *once),
            tables.generation,
        ),
        Part("losses", 60, benchmark("losses", "--rows", 8, "--keys", 300, *few), tables.losses),
        Part(
            "copying",
            60,
            benchmark(
                "copying",
                *("--sentences", 1, "--source", 20, "--target", 10, "--words", 100),
                *("--markers", 10, *few),
            ),
            tables.copying,
        ),
        Part(
            "structure", 60, benchmark("structured", "--shapes", "64x8", *once), tables.structured
        ),
    ]
