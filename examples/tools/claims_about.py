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

from claims.checks import read_object
from claims_added import SAME, together
from claims_scope import MODELS, SIZES
from jobs import write_whole
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


def history(folder: Path) -> list[dict[str, Any]]:
    """Of each call that had something to do, when it was, by which code, and for how long.

    Args:
        folder: with a file of each, named by the nanosecond in which it began.
    """
    return [
        {
            "call": path.stem,
            **{name: one.get(name) for name in ("date", "commit", "changed")},
            "hours": round(one["seconds"] / SECONDS_OF_HOUR, 4),
            "core_hours": round(one["cpu_seconds"] / SECONDS_OF_HOUR, 4),
        }
        for path in sorted(folder.glob("*.json"))
        for one in [json.loads(path.read_text("utf-8"))]
    ]


def asked_for(options: argparse.Namespace) -> dict[str, Any]:
    """What a call is to make, as the record has it."""
    given = {name: os.environ.get(f"CLAIMS_ASKED_{name.upper()}") for name in SAME}
    return {
        "quick": options.quick,
        "seeds": options.seeds,
        "more_seeds": options.more_seeds,
        "corpora": options.corpora,
        "models": options.models or list(MODELS),
        "sizes": options.sizes or list(SIZES),
        **{name: int(value) if value else None for name, value in given.items()},
    }


def write_about(options: argparse.Namespace) -> None:
    """Write record.json: with what, and for how long over all calls that had something to do.

    With ``--add``, what the record said of the calls that made it before is kept.
    """
    path, jobs = options.record / ABOUT, options.output / "jobs"
    calls = history(jobs / "calls")
    # claims.sh prepares the data
    preparations = [{**one, "prepares": True} for one in history(jobs / "preparations")]
    content: dict[str, Any] = {
        "format": FORMAT,
        "version": VERSION,
        "date": today(),
        "versions": versions(),
        "processor": processor(),
        "cores": cores(),
        "commit": commit(),
        **asked_for(options),
        "history": [*preparations, *calls],
    }
    if options.add and path.exists():
        content = together(read_object(path), content)
    made = content["history"]
    for name in ("hours", "core_hours"):
        content[name] = round(sum(one[name] for one in made), 3)
    content["calls"] = sum(not one.get("prepares") for one in made)
    write_whole(path, f"{json.dumps(content, indent=2, sort_keys=True)}\n")
