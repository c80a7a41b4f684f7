#!/usr/bin/env python3
"""Keeps constraints.txt, the versions that the project is tested with, true on every machine.

    scripts/constraints.py check     resolve it for each Python and kind of machine
    scripts/constraints.py update    write it and downloads.tsv anew, with the newest versions

What is installed on one machine says nothing about others: torch's build for CPUs asks for fewer
packages than the one that the package index has for Linux, and each Python has other wheels. So
`check` asks uv to resolve the project with all its extras, under the constraints, for machines of
other kinds than this, with the index's own torch. It needs the network, and uv.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
CONSTRAINTS = ROOT / "constraints.txt"
DOWNLOADS = ROOT / "scripts" / "lib" / "downloads.tsv"
HEADER = """\
# What fairseq-entmax is tested with: pip install -c constraints.txt '.[fairseq]'
# Written by `scripts/constraints.py update`, checked by `scripts/constraints.py check`.
"""
PYTHONS = ("3.11", "3.12", "3.13")
# What `uname -s -m` says: uv's name of the platform
MACHINES = {
    "Linux x86_64": "x86_64-manylinux_2_28",
    "Linux aarch64": "aarch64-manylinux_2_28",
    "Darwin arm64": "aarch64-apple-darwin",
}
LEAST_MACOS = "14.0"  # of torch's wheels
# What the two commands of the README install, and with which Python their download is measured
EXTRAS = ("fairseq,report", "fairseq,recipes,tagger,test")
MEASURED_PYTHON = "3.12"
# What torch's build for CPUs does without
IS_OF_CUDA = re.compile(r"torch|triton|nvidia-.*|cuda-.*")
TOLERANCE = 0.1


class CannotResolve(Exception):
    """What uv says of versions that do not go together."""


@dataclass(frozen=True)
class Download:
    """Megabytes that pip fetches for an empty virtual environment."""

    torch: int
    """torch, and on Linux CUDA's libraries for it."""
    rest: int


def compile_versions(*options: str, constraints: Path | None = None) -> str:
    """What uv resolves the project to.

    Raises:
        CannotResolve: the versions do not go together, or uv is not there.
    """
    uv = shutil.which("uv") or shutil.which("uv", path=Path(sys.executable).parent)
    if uv is None:
        raise CannotResolve("the command uv is not there: pip install uv")
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
    """Names in what was resolved that the constraints leave open."""

    def names(text: str) -> set[str]:
        return {
            re.sub(r"[-_.]+", "-", line.partition("==")[0].strip()).lower()
            for line in text.splitlines()
            if "==" in line and not line.startswith("#")
        }

    return sorted(names(resolved) - names(constraints))


def check_machine(constraints: Path, machine: str, python: str) -> str:
    """Resolve the project with all extras for one Python on one kind of machine.

    Returns:
        How many packages these are.

    Raises:
        CannotResolve: they do not go together, or have versions that the constraints leave open.
    """
    options = ["--all-extras", "--python-version", python, "--python-platform", MACHINES[machine]]
    resolved = compile_versions(*options, constraints=constraints)
    open_names = unpinned(resolved, constraints.read_text(encoding="utf-8"))
    if open_names:
        raise CannotResolve(f"no version is given for {', '.join(open_names)}")
    return f"{len(resolved.splitlines())} packages"


def measure(constraints: Path, machine: str, extras: str) -> Download:
    """How much is downloaded on one kind of machine."""
    chosen = [word for extra in extras.split(",") for word in ("--extra", extra)]
    platform = ["--python-version", MEASURED_PYTHON, "--python-platform", MACHINES[machine]]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "pylock.toml"
        output = ["--format", "pylock.toml", "--output-file", str(path)]
        compile_versions(*chosen, *platform, *output, constraints=constraints)
        packages = tomllib.loads(path.read_text(encoding="utf-8"))["packages"]
    torch = sum(_bytes(one) for one in packages if IS_OF_CUDA.fullmatch(one["name"]))
    return Download(round(torch / 1e6), round(sum(map(_bytes, packages)) / 1e6 - torch / 1e6))


def _bytes(package: dict[str, Any]) -> int:
    """The size of what pip takes: a wheel that fits, or else the sources."""
    files = package.get("wheels") or [package.get("sdist", {})]
    return max(int(file.get("size", 0)) for file in files)


def read_downloads() -> dict[tuple[str, str], Download]:
    """What downloads.tsv says of each machine and set of extras."""
    rows = [line.split("\t") for line in DOWNLOADS.read_text(encoding="utf-8").splitlines()[1:]]
    return {(machine, extras): Download(int(t), int(r)) for machine, extras, t, r in rows}


def write_downloads(downloads: dict[tuple[str, str], Download]) -> None:
    lines = ["machine\textras\tMB of torch\tMB of the rest"]
    lines += [f"{m}\t{e}\t{size.torch}\t{size.rest}" for (m, e), size in downloads.items()]
    DOWNLOADS.write_text("\n".join(lines) + "\n", encoding="utf-8")


def check_download(constraints: Path, machine: str, extras: str) -> str:
    """Compare what downloads.tsv says with what would be downloaded.

    Raises:
        CannotResolve: it says something else.
    """
    found = measure(constraints, machine, extras)
    said = read_downloads().get((machine, extras))
    if said is None or not all(
        abs(a - b) <= TOLERANCE * b + 1
        for a, b in ((said.torch, found.torch), (said.rest, found.rest))
    ):
        raise CannotResolve(
            f"{DOWNLOADS.name} says {said}, and it is {found}: run scripts/constraints.py update"
        )
    return f"{found.torch} MB of torch, {found.rest} MB of the rest"


def check(constraints: Path, machines: Iterable[str], pythons: Iterable[str]) -> list[str]:
    """Check every combination, print what comes of it; which failed."""
    machines = list(machines)
    checks = [
        (f"{machine}, Python {python}, all extras", check_machine, machine, python)
        for machine in machines
        for python in pythons
    ]
    checks += [
        (f"{machine}, download of [{extras}]", check_download, machine, extras)
        for machine in machines
        for extras in EXTRAS
    ]
    failed = []
    with ThreadPoolExecutor(max_workers=4) as pool:
        results = [
            (name, pool.submit(function, constraints, machine, what))
            for name, function, machine, what in checks
        ]
        for name, result in results:
            try:
                print(f"{name}: {result.result()}", flush=True)
            except CannotResolve as error:
                failed.append(name)
                print(f"{name}: FAILED\n{error}", file=sys.stderr, flush=True)
    return failed


def update() -> None:
    """Write constraints.txt and downloads.tsv anew."""
    versions = compile_versions("--all-extras", "--universal", "--python-version", PYTHONS[0])
    CONSTRAINTS.write_text(HEADER + versions, encoding="utf-8")
    pairs = [(machine, extras) for machine in MACHINES for extras in EXTRAS]
    write_downloads({pair: measure(CONSTRAINTS, *pair) for pair in pairs})


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("command", choices=("check", "update"))
    parser.add_argument(
        "--constraints",
        type=Path,
        default=CONSTRAINTS,
        metavar="FILE",
        help="check these constraints instead of the project's",
    )
    options = parser.parse_args(arguments)
    try:
        if options.command == "update":
            update()
        else:
            failed = check(options.constraints.resolve(), MACHINES, PYTHONS)
            if failed:
                print(f"constraints: cannot be installed: {'; '.join(failed)}", file=sys.stderr)
                return 1
    except (CannotResolve, OSError) as error:
        print(f"constraints: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
