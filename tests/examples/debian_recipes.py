"""Running recipes that make their data of Debian's package lists, on machines with apt or without."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests import preloaded
from tests.examples import miniatures

PATH = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
needs_apt = pytest.mark.skipif(shutil.which("apt-get") is None, reason="no apt")
# Of miniature lists the shares for validation and test have to be larger
SHARES = {"VALID_SOURCES": "150", "TEST_SOURCES": "150"}


def run(recipe: Path, script: str, *arguments: object, check: bool = True, **further: str):
    """Run a script of a recipe; `further` is of its environment."""
    result = subprocess.run(
        [recipe / script, *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        env={
            **{name: value for name, value in os.environ.items() if name != "RAW_DIR"},
            "PATH": preloaded.path(PATH),
            "OMP_NUM_THREADS": "1",
            **miniatures.TRIAL,
            **SHARES,
            **further,
        },
    )
    if check:
        assert result.returncode == 0, result.stdout[-3000:] + result.stderr[-3000:]
    return result


def stopping(tmp_path: Path) -> str:
    """A PATH on which fairseq-preprocess fails: what follows the lists is tested above."""
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "fairseq-preprocess").write_text("#!/bin/sh\nexit 9\n")
    (folder / "fairseq-preprocess").chmod(0o755)
    return f"{folder}:{PATH}"


def apt_configuration(tmp_path: Path, lists: Path, sources: str = "") -> str:
    """Of a machine with its own lists and sources, for APT_CONFIG; no descriptions are fetched."""
    (tmp_path / "sources.list").write_text(sources)
    lists.mkdir(exist_ok=True)
    config = tmp_path / "apt.conf"
    config.write_text(
        f'Dir::State::lists "{lists}/";\nDir::Etc::sourcelist "{tmp_path}/sources.list";\n'
        'Dir::Etc::sourceparts "/dev/null";\nDir::Etc::parts "/dev/null";\n'
        'Acquire::Languages "none";\nAPT::Architecture "amd64";\n'
        'APT::Update::Post-Invoke { "false"; };\n'
    )
    return str(config)
