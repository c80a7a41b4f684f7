"""scripts/lib/venv.sh: which torch is installed, and what is printed before a download."""

import os
import subprocess

import pytest
from packaging.markers import Marker

from tests.scripts.support import ROOT

SOURCES = f'source "{ROOT}/examples/lib/common.sh"; source "{ROOT}/scripts/lib/venv.sh"'


def shell(script, **environment):
    return subprocess.run(
        ["bash", "-c", f"set -euo pipefail; {SOURCES}; {script}"],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
    )


@pytest.fixture
def commands(tmp_path):
    """A function that puts a command into a folder and returns a PATH that begins with it."""

    def add(name, script):
        path = tmp_path / name
        path.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
        path.chmod(0o755)
        return f"{tmp_path}:{os.environ['PATH']}"

    return add


@pytest.mark.parametrize(
    ("system", "gpu", "requested", "build"),
    [
        ("Linux", "echo 'GPU 0: NVIDIA H100'", "", "cuda"),
        ("Linux", "exit 9", "", "cpu"),
        ("Linux", "exit 9", "cuda", "cuda"),
        ("Linux", "echo 'GPU 0: NVIDIA H100'", "cpu", "cpu"),
        ("Darwin", "exit 127", "", "cuda"),  # the only build for it
    ],
)
def test_the_torch_build_fits_the_machine_unless_requested(commands, system, gpu, requested, build):
    if os.path.exists("/dev/nvidia0") and not requested and build == "cpu":
        pytest.skip("this machine has a GPU, and a machine without is meant")
    commands("uname", f"echo {system}")
    path = commands("nvidia-smi", gpu)
    result = shell("torch_build", PATH=path, TORCH_BUILD=requested)
    assert (result.stdout.strip(), result.stderr) == (build, "")


# A Python whose environment has torch $TORCH; it logs the arguments of pip
PYTHON = """
case "$*" in
*"version(\\"torch\\")"*) [ -n "$TORCH" ] && echo "$TORCH" ;;
*"-m pip"*) echo "$*" >>"$LOG"; case "$*" in *index-url*)
    [ "$CPU_STATUS" = 0 ] || echo 'ERROR: no such host'
    exit "$CPU_STATUS" ;;
esac ;;
esac
"""


@pytest.mark.parametrize(
    ("build", "present", "cpu_status", "requested", "messages"),
    [
        ("cpu", "", "0", ["torch==2.13.0+cpu"], ["some 200 MB to download"]),
        (
            *("cpu", "", "1", ["torch==2.13.0+cpu"]),
            ["200 MB", "ERROR: no such host)", "the build with CUDA is used instead, some"],
        ),
        ("cpu", "2.13.0", "0", [], []),
        ("cuda", "2.13.0+cpu", "0", ["torch===2.13.0"], ["with CUDA, some"]),
        ("cuda", "2.13.0", "0", [], []),
    ],
)
def test_the_requested_torch_build_is_installed_after_its_size_is_printed(
    tmp_path, commands, build, present, cpu_status, requested, messages
):
    (tmp_path / "constraints.txt").write_text("torch==2.13.0\ntorchaudio==2.11.0\n")
    (tmp_path / "bin").mkdir()
    path = commands("uname", '[ "$*" = -s ] && echo Linux || echo Linux x86_64')
    commands("bin/python", PYTHON)
    log = tmp_path / "log"
    log.touch()
    environment = {"PATH": path, "TORCH": present, "LOG": str(log), "CPU_STATUS": cpu_status}
    result = shell(f"install_torch {tmp_path} {tmp_path} {build}", **environment)
    assert result.returncode == 0, result.stderr
    assert [line.split()[-1] for line in log.read_text().splitlines()] == requested
    assert result.stdout.count("==> install") == len(messages)
    for text in messages:
        assert text in result.stdout


@pytest.mark.parametrize("machine", ["Linux x86_64", "Linux aarch64", "Darwin arm64"])
@pytest.mark.parametrize("version", ["3.11", "3.12", "3.13"])
def test_fairseq_is_compiled_where_setup_py_has_no_wheel(tmp_path, commands, machine, version):
    text = (ROOT / "setup.py").read_text(encoding="utf-8")
    names: dict = {}
    exec(text[text.index("HAS_WHEEL =") : text.index("setup(")], names)
    fields = ("platform_system", "platform_machine", "python_version")
    where = dict(zip(fields, (*machine.split(), version), strict=True))
    has_wheel = Marker(names["HAS_WHEEL"]).evaluate(where)
    assert has_wheel != Marker(names["HAS_NO_WHEEL"]).evaluate(where)
    (tmp_path / "bin").mkdir()
    commands("bin/python", f"echo {version}")
    path = commands("uname", f"echo {machine}")
    assert (shell(f"has_fairseq_wheel {tmp_path}", PATH=path).returncode == 0) == has_wheel
