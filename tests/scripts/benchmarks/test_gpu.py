"""The GPU command: what it runs, that a failed part stops no other, and what it leaves behind."""

import os
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


def test_a_failed_part_stops_no_other_and_all_output_is_kept(gpu, tmp_path):
    chosen = [python(gpu, "one", "print('before'); exit(7)"), python(gpu, "two", "print('all')")]
    assert gpu.gather(chosen, 60.0, tmp_path, "a GPU")
    assert (tmp_path / "two.log").read_text() == "all\n"
    text = (tmp_path / "gpu.md").read_text()
    assert text.startswith("a GPU\n")
    assert "## one: failed: exit status 7\n\n```\nbefore\n```" in text
    assert "## two: done" in text
    assert not gpu.gather(chosen[:1], 60.0, tmp_path, "a GPU")


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="processes are read from /proc")
def test_a_part_that_takes_too_long_is_stopped_with_its_child_processes(gpu, tmp_path):
    begun = tmp_path / "begun"
    code = (
        "import subprocess, time; pid = subprocess.Popen(['sleep', '60']).pid; "
        f"open({str(begun)!r}, 'w').write(str(pid)); time.sleep(60)"
    )
    assert gpu.run(python(gpu, "slow", code), tmp_path, 6.0) == "stopped after 6 s"
    for _ in range(50):
        status = Path("/proc", begun.read_text(), "stat")
        # Gone, or a zombie
        if not status.exists() or status.read_text().rpartition(")")[2].split()[0] == "Z":
            return
        time.sleep(0.1)
    pytest.fail("what the part started is at work")


def test_every_command_names_an_existing_script_and_is_also_tried_quickly(gpu):
    scripts = [
        {word for one in every for word in one.command if str(gpu.BENCHMARKS) in word}
        for every in (gpu.parts(), gpu.quick_parts())
    ]
    assert scripts[0] <= scripts[1]
    assert all(Path(word).is_file() for word in scripts[0])
    assert all(path.exists() for path in [*gpu.TESTS, gpu.CORPUS])


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_the_command_says_so_and_writes_nothing(gpu, tmp_path, capsys):
    result = script("--output", tmp_path / "results")
    assert result.returncode == 2
    assert "there is no GPU here that torch can use" in result.stderr
    assert not (tmp_path / "results").exists()
    assert gpu.main(["--dry-run", "--parts", "mapping"]) == 0
    output = capsys.readouterr().out
    assert output.startswith("mapping: ")
    assert "mapping.py --device cuda --json" in output


def test_the_command_runs_a_part_at_toy_size_on_a_cpu(gpu, tmp_path):
    pytest.importorskip("triton")
    result = script("--device", "cpu", "--quick", "--output", tmp_path, "--parts", "losses")
    assert result.returncode == 0, result.stderr
    text = (tmp_path / "gpu.md").read_text()
    assert "## losses: done" in text, (tmp_path / "losses.log").read_text()
    assert (tmp_path / "losses.json").is_file()
