"""The command for a GPU: what it runs, that a part stops no other, and what it leaves."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from tests.scripts.support import BENCHMARKS, load


@pytest.fixture
def gpu(monkeypatch):
    return load("gpu", monkeypatch)


def script(*words):
    return subprocess.run(
        ["bash", BENCHMARKS / "gpu.sh", *map(str, words)],
        env={**os.environ, "PYTHON": sys.executable},
        capture_output=True,
        text=True,
        check=False,
    )


def python(gpu, name, code, share=60):
    return gpu.Part(name, share, [sys.executable, "-c", code])


def test_a_part_that_fails_stops_no_other_and_all_have_what_they_printed(gpu, tmp_path):
    chosen = [
        python(gpu, "one", "print('before'); raise SystemExit(7)"),
        python(gpu, "two", "print('all')"),
    ]
    assert gpu.gather(chosen, 60.0, tmp_path, "a GPU")
    assert (tmp_path / "two.log").read_text() == "all\n"
    text = (tmp_path / "gpu.md").read_text()
    assert text.startswith("a GPU\n")
    assert "## one: failed: exit status 7\n\n```\nbefore\n```" in text
    assert "## two: done" in text
    assert not gpu.gather(chosen[:1], 60.0, tmp_path, "a GPU")


def is_over(status):
    """Whether a process is gone, or waits for its end to be noted."""
    try:
        return status.read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="processes are read from /proc")
@pytest.mark.parametrize("by", ["time", "signal"])
def test_a_part_ends_with_all_that_it_started(gpu, tmp_path, by):
    begun = tmp_path / "begun"
    code = (
        "import os, subprocess, time; pid = subprocess.Popen(['sleep', '60']).pid; "
        f"open({str(begun) + '.new'!r}, 'w').write(str(pid)); "
        f"os.rename({str(begun) + '.new'!r}, {str(begun)!r}); time.sleep(60)"
    )
    if by == "time":
        slow = python(gpu, "slow", code)
        assert gpu.run(slow, tmp_path, 3.0) == "stopped after 3 s"
    else:
        command = (
            f"import sys; sys.path.insert(0, {str(BENCHMARKS)!r}); import gpu; "
            f"gpu.quick_parts = lambda: [gpu.Part('slow', 1, [sys.executable, '-c', {code!r}])]; "
            f"sys.exit(gpu.main(['--device', 'cpu', '--quick', '--output', {str(tmp_path)!r}]))"
        )
        process = subprocess.Popen([sys.executable, "-c", command])
        for _ in range(600):
            if begun.exists() or process.poll() is not None:
                break
            time.sleep(0.1)
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 128 + signal.SIGTERM
    status = Path("/proc", begun.read_text(), "stat")
    for _ in range(50):
        if is_over(status):
            break
        time.sleep(0.1)
    assert is_over(status)


def test_every_command_is_of_a_script_or_a_test_that_is_there_and_is_tried(gpu):
    scripts = [
        {word for one in every for word in one.command if str(gpu.BENCHMARKS) in word}
        for every in (gpu.parts(), gpu.quick_parts())
    ]
    assert scripts[0] <= scripts[1]
    assert all(Path(word).is_file() for word in scripts[0])
    assert all(path.exists() for path in [*gpu.TESTS, gpu.CORPUS])


@pytest.mark.slow
def test_the_tests_are_found_from_another_folder_without_those_that_need_no_gpu(gpu, tmp_path):
    pytest.importorskip("triton")
    command = gpu.tests(gpu.TESTS, "-m", "not compiles_only", "--collect-only")
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout[-2000:]
    assert "test_loss_and_gradients_are_those_of_the_cpu" in result.stdout
    assert "test_tiles_without_support_are_found_and_skipping_them_changes_no_bit" in result.stdout
    assert "test_the_kernels_compile_and_fit" not in result.stdout


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_it_says_so_and_writes_nothing(tmp_path):
    result = script("--output", tmp_path / "results")
    assert result.returncode == 2
    assert "there is no GPU here that torch can use" in result.stderr
    assert not (tmp_path / "results").exists()
    result = script("--dry-run", "--parts", "mapping")
    assert result.returncode == 0, result.stderr
    assert result.stdout.startswith("mapping: ")
    assert "mapping.py --device cuda --json" in result.stdout


@pytest.mark.slow
def test_the_command_runs_a_part_at_toy_size_on_a_cpu(gpu, tmp_path):
    pytest.importorskip("triton")
    result = script("--device", "cpu", "--quick", "--output", tmp_path, "--parts", "losses")
    assert result.returncode == 0, result.stderr
    text = (tmp_path / "gpu.md").read_text()
    assert "## losses: done" in text, (tmp_path / "losses.log").read_text()
    assert (tmp_path / "losses.json").is_file()
