"""What the benchmarks share: turns, clocks, what was measured on, tables and files."""

from __future__ import annotations

import json
import os
import platform
import time
from collections.abc import Sequence
from datetime import datetime, timezone
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
        "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
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


def write_json(path: str | Path, content: Any) -> None:
    """Write the file whole or not at all."""
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_name(f".{target.name}.{os.getpid()}")
    partial.write_text(json.dumps(content, indent=1, default=str) + "\n", encoding="utf-8")
    partial.replace(target)
