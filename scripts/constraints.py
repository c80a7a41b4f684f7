#!/usr/bin/env python3
"""Keeps constraints.txt, the versions that the project is tested with, valid on every machine.

    scripts/constraints.py check     resolve it for each Python and kind of machine
    scripts/constraints.py update    rewrite it, with the newest versions

One machine's installation says nothing about others: torch's build for CPUs requires fewer packages
than the build in the package index for Linux, and each Python has other wheels. So `check` asks uv
to resolve the project with all its extras, under the constraints, for every kind of machine, with
the torch of the index. It needs the network, and uv.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CONSTRAINTS = ROOT / "constraints.txt"
HEADER = """\
# What fairseq-entmax is tested with: pip install -c constraints.txt '.[fairseq]'
# Written by `scripts/constraints.py update`, checked by `scripts/constraints.py check`.
"""
_LINE = re.search(r"(?m)^PYTHONS = .*$", (ROOT / "setup.py").read_text(encoding="utf-8"))
PYTHONS = re.findall(r"[0-9.]+", _LINE[0]) if _LINE else []
# From the output of `uname -s -m` to uv's name of the platform
MACHINES = {
    "Linux x86_64": "x86_64-manylinux_2_28",
    "Linux aarch64": "aarch64-manylinux_2_28",
    "Darwin arm64": "aarch64-apple-darwin",
}
LEAST_MACOS = "14.0"  # for torch's wheels


class CannotResolve(Exception):
    """The versions do not fit together; the message is uv's."""


def compile_versions(*options: str, constraints: Path | None = None) -> str:
    """The pinned requirements to which uv resolves the project."""
    uv = shutil.which("uv") or shutil.which("uv", path=Path(sys.executable).parent)
    if uv is None:
        raise CannotResolve("the command uv is missing: pip install uv")
    command = [uv, "pip", "compile", "setup.py", "--quiet", "--no-header", "--no-annotate"]
    if constraints is not None:
        command += ["--constraints", str(constraints)]
    environment = {
        **{name: value for name, value in os.environ.items() if name != "UV_FIND_LINKS"},
        "MACOSX_DEPLOYMENT_TARGET": LEAST_MACOS,
        "UV_PYTHON_DOWNLOADS": "never",
    }
    result = subprocess.run(
        [*command, *options], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    if result.returncode != 0:
        raise CannotResolve(result.stderr.strip())
    return result.stdout


def unpinned(resolved: str, constraints: str) -> list[str]:
    """Names of resolved packages for which the constraints give no version."""

    def names(text: str) -> set[str]:
        return {
            re.sub(r"[-_.]+", "-", line.partition("==")[0].strip()).lower()
            for line in text.splitlines()
            if "==" in line and not line.startswith("#")
        }

    return sorted(names(resolved) - names(constraints))


def check_machine(constraints: Path, machine: str, python: str) -> str:
    """Resolve the project with all extras for one Python and kind of machine; return a message."""
    options = ["--all-extras", "--python-version", python, "--python-platform", MACHINES[machine]]
    resolved = compile_versions(*options, constraints=constraints)
    open_names = unpinned(resolved, constraints.read_text(encoding="utf-8"))
    if open_names:
        raise CannotResolve(f"no version is given for {', '.join(open_names)}")
    return f"{len(resolved.splitlines())} packages"


def check(constraints: Path, machines: Sequence[str], pythons: Sequence[str]) -> list[str]:
    """Check every combination and print the outcome; return those that failed."""
    failed = []
    pairs = [(machine, python) for machine in machines for python in pythons]
    with ThreadPoolExecutor(max_workers=4) as pool:
        results = [pool.submit(check_machine, constraints, *pair) for pair in pairs]
        for (machine, python), result in zip(pairs, results, strict=True):
            try:
                print(f"{machine}, Python {python}: {result.result()}", flush=True)
            except CannotResolve as error:
                failed.append(f"{machine}, Python {python}")
                print(f"{failed[-1]}: FAILED\n{error}", file=sys.stderr, flush=True)
    return failed


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("command", choices=("check", "update"))
    if parser.parse_args().command == "check":
        return 1 if check(CONSTRAINTS, list(MACHINES), PYTHONS) else 0
    versions = compile_versions("--all-extras", "--universal", "--python-version", PYTHONS[0])
    CONSTRAINTS.write_text(HEADER + versions, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
