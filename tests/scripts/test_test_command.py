"""scripts/test.sh: which checks it runs, and how it ends."""

import os
import shutil
import subprocess

import pytest

from tests.scripts.support import ROOT

TOOLS = ("ruff", "mypy", "lint-imports", "shellcheck")


@pytest.fixture
def project(tmp_path):
    """The command in a separate folder, with stub checks that only record how they are called."""
    (tmp_path / "scripts" / "lib").mkdir(parents=True)
    shutil.copy(ROOT / "scripts" / "test.sh", tmp_path / "scripts")
    (tmp_path / "scripts" / "lib" / "venv.sh").write_text("ensure_venv() { :; }\n")
    (tmp_path / ".ci").mkdir()
    (tmp_path / "examples" / "tools").mkdir(parents=True)
    (tmp_path / "examples" / "lib").mkdir()
    shutil.copy(ROOT / "examples" / "lib" / "common.sh", tmp_path / "examples" / "lib")
    commands = tmp_path / ".venv-test" / "bin"
    commands.mkdir(parents=True)
    for name in (*TOOLS, "python"):
        write(commands / name, f'echo {name} "$@" >>"{tmp_path}/calls"')
    return tmp_path


def write(path, script):
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def run(project, *arguments):
    result = subprocess.run(
        [project / "scripts" / "test.sh", *arguments],
        capture_output=True,
        text=True,
        check=False,
        env={name: value for name, value in os.environ.items() if name != "VENV"},
    )
    calls = project / "calls"
    return result, calls.read_text().splitlines() if calls.exists() else []


def test_the_quick_run_leaves_out_only_the_constraints_and_slow_tests(project):
    _, calls = run(project)
    assert "python scripts/constraints.py check" in calls
    assert calls[-1].endswith("--durations=10")
    (project / "calls").unlink()
    result, calls = run(project, "--quick", "-k", "gates")
    assert result.returncode == 0, result.stderr
    assert [call.split()[0] for call in calls] == ["ruff", "ruff", "mypy", *TOOLS[1:], "python"]
    assert calls[-1].endswith("--durations=10 -m not slow -k gates")
    assert "every quick check passed" in result.stdout


def test_failed_checks_are_named_at_the_end_and_all_others_run(project):
    write(project / ".venv-test" / "bin" / "mypy", "exit 1")
    result, calls = run(project, "--quick")
    assert result.returncode == 1
    assert result.stderr == "test.sh: error: failed: types tool-types\n"
    assert len(calls) == 5  # all but those two
