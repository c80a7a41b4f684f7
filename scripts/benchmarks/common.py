"""What the benchmarks share: turns, clocks, what was measured on, tables and files."""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor

import fairseq_entmax

Item = TypeVar("Item")


def rotated(names: Sequence[Item], turn: int) -> list[Item]:
    """The names in an order in which each is first as often as the others."""
    first = turn % len(names)
    return [*names[first:], *names[:first]]


def now(tensor: Tensor) -> float:
    """The time at which all that was asked of the tensor's device is done."""
    if tensor.is_cuda:
        torch.cuda.synchronize(tensor.device)
    return time.perf_counter()


def processors() -> int:
    """How many of them this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def machine(device: str = "cpu") -> dict[str, Any]:
    """What is measured, when, and on what."""
    facts = {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "fairseq_entmax": fairseq_entmax.__version__,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "processor": _processor(),
        "processors": processors(),
        "vectors": torch.backends.cpu.get_cpu_capability(),
        "device": device,
    }
    if device == "cuda":
        name, (major, minor) = torch.cuda.get_device_name(), torch.cuda.get_device_capability()
        facts |= {"gpu": name, "capability": f"{major}.{minor}", "cuda": torch.version.cuda}
    return facts


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:  # no Linux
        return platform.processor()
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor())


def said(facts: dict[str, Any]) -> str:
    """A line of what :func:`machine` found."""
    on = facts.get("gpu") or f"{facts['processor']} ({facts['vectors']})"
    versions = f"fairseq-entmax {facts['fairseq_entmax']}, torch {facts['torch']}"
    return f"{on}, {versions}, {facts['date'][:10]}"


def markdown(titles: Sequence[str], rows: Sequence[Sequence[str]], left: int = 1) -> str:
    """A table in Markdown; its first columns, ``left`` of them, are text, the others numbers."""
    lines = [titles, ["---"] * left + ["---:"] * (len(titles) - left), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def check_least(parser: argparse.ArgumentParser, options: argparse.Namespace, **least: int) -> None:
    """End with a sentence unless these options, one number or several, are that or more."""
    for name, number in least.items():
        for given in _given(options, name):
            if given < number:
                parser.error(f"{_option(name)} must be {number} or more, not {given}")


def check_positive(
    parser: argparse.ArgumentParser, options: argparse.Namespace, *names: str
) -> None:
    """End with a sentence unless these options, one number or several, are finite and above 0."""
    for name in names:
        for given in _given(options, name):
            if not 0 < given < math.inf:
                parser.error(f"{_option(name)} must be a number above 0, not {given:g}")


def check_alpha(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    """End with a sentence unless ``--alpha`` is one that can be learned, above 1 and up to 2."""
    if not 1 < options.alpha <= 2:
        parser.error(f"--alpha must be above 1 and at most 2, not {options.alpha:g}")


def check_device(parser: argparse.ArgumentParser, device: str) -> None:
    """End with a sentence where a GPU is asked for and there is none."""
    if device == "cuda" and not torch.cuda.is_available():
        parser.error("--device cuda needs a GPU that torch can use, and there is none here")


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _given(options: argparse.Namespace, name: str) -> list[Any]:
    """The numbers of an option; none where it was not given."""
    value = getattr(options, name)
    if value is None:
        return []
    return list(value) if isinstance(value, (list, tuple)) else [value]


def write_json(path: str | Path, content: Any) -> None:
    """Write the file whole or not at all."""
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_name(f".{target.name}.{os.getpid()}")
    partial.write_text(json.dumps(content, indent=1, default=str) + "\n", encoding="utf-8")
    partial.replace(target)
