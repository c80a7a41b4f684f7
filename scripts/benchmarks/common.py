"""What the benchmarks share: turns, clocks, memory, facts on the machine, tables and files."""

from __future__ import annotations

import argparse
import itertools
import json
import os
import platform
import statistics
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.profiler import ProfilerActivity, profile

import fairseq_entmax
from fairseq_entmax.files import write_together
from fairseq_entmax.text_table import text_table

Item = TypeVar("Item")
Result = TypeVar("Result")


def arguments(doc: str | None, file: str | None = None) -> argparse.ArgumentParser:
    """A parser with ``--json``, the file for the numbers."""
    parser = argparse.ArgumentParser(
        description=doc, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", metavar="FILE", default=file, help="file for the numbers")
    return parser


def positive(text: str) -> int:
    """A whole number of 1 or more, for a parser."""
    if (number := int(text)) < 1:
        raise argparse.ArgumentTypeError(f"must be 1 or more, not {number}")
    return number


def device(text: str) -> str:
    """``cpu`` or ``cuda``, for a parser."""
    if text not in ("cpu", "cuda"):
        raise argparse.ArgumentTypeError(f"got {text!r}: give cpu or cuda")
    if text == "cuda" and not torch.cuda.is_available():
        raise argparse.ArgumentTypeError("cuda needs a GPU that torch can use, but there is none")
    return text


def rows_and_keys(text: str) -> tuple[int, int]:
    """Rows and keys from a text such as ``8192x128``, for a parser."""
    rows, keys = map(positive, text.split("x"))
    return rows, keys


def rotated(names: Sequence[Item], turn: int) -> list[Item]:
    """The names, rotated by the turn, so that each is first equally often."""
    first = turn % len(names)
    return [*names[first:], *names[:first]]


def in_turns(
    names: Sequence[str],
    rounds: int,
    run: Callable[[str, int], Result | None],
    after: Callable[[dict[str, list[Result]]], None] = lambda _: None,
) -> dict[str, list[Result]]:
    """The results of ``run`` for each name in each round, from 1 on; round 0 warms up.

    Args:
        names: the contenders that take turns.
        rounds: the number of rounds that count.
        run: called with a name and the round; None leaves that turn out.
        after: called with all results after each round, so that a stopped run has written them.
    """
    found: dict[str, list[Result]] = {name: [] for name in names}
    for turn in range(rounds + 1):
        for name in rotated(names, turn):
            result = run(name, turn)
            if turn and result is not None:
                found[name].append(result)
        if turn:
            after(found)
    return found


def now(tensor: Tensor) -> float:
    """The time once the tensor's device has finished all its work."""
    if tensor.is_cuda:
        torch.cuda.synchronize(tensor.device)
    return time.perf_counter()


def timed(
    run: Callable[..., Tensor], inputs: Sequence[Tensor], grad: Tensor, retain_graph: bool = False
) -> tuple[float, float]:
    """Seconds of a forward pass and of its backward pass."""
    leaves = [tensor.detach().requires_grad_() for tensor in inputs]
    begin = now(grad)
    output = run(*leaves)
    middle = now(grad)
    output.backward(grad, retain_graph=retain_graph)
    return middle - begin, now(grad) - middle


def medians_ms(times: Sequence[tuple[float, float]]) -> list[float]:
    """Median milliseconds of the forward and of the backward pass."""
    return [statistics.median(part) * 1e3 for part in zip(*times, strict=True)]


def median_ratio(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """The median of the ratios within a round."""
    return statistics.median(a / b for a, b in zip(ours, theirs, strict=True))


def peak_bytes(step: Callable[[], Any], device: str) -> int:
    """The peak of the memory that torch allocates during a step, beyond what it held before."""
    if device == "cuda":
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        step()
        torch.cuda.synchronize()
        return torch.cuda.max_memory_allocated() - before
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as record:
        step()
    events = [e for e in record.profiler.kineto_results.events() if e.name() == "[memory]"]
    events.sort(key=lambda event: event.start_ns())
    return max(itertools.accumulate((event.nbytes() for event in events), initial=0))


def processors() -> int:
    """The number of processors that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def machine(device: str = "cpu") -> dict[str, Any]:
    """Versions, date, and facts on the machine."""
    facts = {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "fairseq_entmax": fairseq_entmax.__version__,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "processor": _processor(),
        "processors": processors(),
        "threads": torch.get_num_threads(),
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


def machine_line(facts: dict[str, Any]) -> str:
    """One line on the facts of :func:`machine`."""
    on = facts.get("gpu") or f"{facts['processor']} ({facts['vectors']})"
    versions = f"fairseq-entmax {facts['fairseq_entmax']}, torch {facts['torch']}"
    threads = facts.get("threads", facts["processors"])
    return f"{on}, {threads} thread(s), {versions}, {facts['date'][:10]}"


def table(rows: Sequence[dict[str, Any]], columns: dict[str, tuple[str, str]]) -> str:
    """A text table; `columns` maps titles to fields of rows and formats. None is an empty cell."""
    lines = [list(columns)]
    for row in rows:
        cells = ((row[field], form) for field, form in columns.values())
        lines.append(["" if value is None else format(value, form) for value, form in cells])
    return text_table(lines)


def write_json(path: str | Path | None, settings: dict[str, Any], **content: Any) -> None:
    """Write the numbers with the settings of the measurement, completely or not at all."""
    if path is None:
        return
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps({"settings": settings, **content}, indent=1, default=str)
    write_together({target.resolve(): f"{text}\n".encode()})
