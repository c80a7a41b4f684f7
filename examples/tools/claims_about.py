"""record.json of claims.sh: with what its record was made, by which calls, and in how many hours."""

from __future__ import annotations

import argparse
import datetime
import importlib
import importlib.metadata
import json
import os
import platform
import re
from pathlib import Path
from typing import Any

from claims_scope import MODELS, SIZES
from jobs import spent, write_whole
from provenance import commit

FORMAT, VERSION = "fairseq-entmax-claims", 1
ABOUT = "record.json"
SECONDS_OF_HOUR = 3600
DISTRIBUTIONS = {"fairseq-entmax": "fairseq-entmax", "torch": "torch", "sacrebleu": "sacrebleu"}


def processor() -> str:
    """Its name, as the system knows it."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        text = ""
    named = re.search(r"(?m)^model name\s*: (.+)$", text)
    return named[1] if named else platform.processor() or platform.machine()


def cores() -> int:
    """The cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def versions() -> dict[str, str]:
    found = {name: importlib.metadata.version(one) for name, one in DISTRIBUTIONS.items()}
    # Which distribution it is of differs
    found["fairseq"] = f"{importlib.import_module('fairseq').__version__}"
    return {**found, "python": platform.python_version()}


def today() -> str:
    """The day."""
    return datetime.datetime.now(datetime.timezone.utc).date().isoformat()


def history(calls: Path) -> list[dict[str, Any]]:
    """Of each call that had something to do, when it was, by which code, and for how long."""
    found = [json.loads(path.read_text("utf-8")) for path in sorted(calls.glob("*.json"))]
    return [
        {
            **{name: one.get(name) for name in ("date", "commit", "changed")},
            "hours": round(one["seconds"] / SECONDS_OF_HOUR, 3),
        }
        for one in found
    ]


def write_about(options: argparse.Namespace) -> None:
    """Write record.json: with what, and for how long over all calls that had something to do."""
    calls = options.output / "jobs" / "calls"
    folders = (calls, options.output / "jobs" / "preparations")  # claims.sh prepares the data
    hours, core_hours = (
        round(sum(spent(folder, key) for folder in folders) / SECONDS_OF_HOUR, 3)
        for key in ("seconds", "cpu_seconds")
    )
    content: dict[str, Any] = {
        "format": FORMAT,
        "version": VERSION,
        "date": today(),
        "versions": versions(),
        "processor": processor(),
        "cores": cores(),
        "hours": hours,
        "core_hours": core_hours,
        "calls": len(list(calls.glob("*.json"))),
        "quick": options.quick,
        "seeds": options.seeds,
        "more_seeds": options.more_seeds,
        "corpora": options.corpora,
        "models": options.models or list(MODELS),
        "sizes": options.sizes or list(SIZES),
        "commit": commit(),
        "history": history(calls),
    }
    write_whole(options.record / ABOUT, f"{json.dumps(content, indent=2, sort_keys=True)}\n")
