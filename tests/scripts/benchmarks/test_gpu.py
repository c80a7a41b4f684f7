"""The command for a GPU: what it runs, that a part stops no other, and what it writes."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from tests.kernels.native.support import needs_compiler
from tests.scripts.benchmarks.support import FOLDER, load

SCRIPT = FOLDER / "gpu.sh"


@pytest.fixture
def gpu(monkeypatch):
    return load("gpu", monkeypatch)


@pytest.fixture
def parts(monkeypatch):
    return load("gpu_parts", monkeypatch)


@pytest.fixture
def tables(monkeypatch):
    return load("gpu_tables", monkeypatch)


@pytest.fixture
def part(parts, tables):
    """A part that runs a text of Python and has a line of the numbers it wrote."""

    def make(name, code, share=60, **options):
        command = [sys.executable, "-c", code, "{json}", "{work}"]
        lines = options.pop("lines", lambda report: [tables.Line("case", "ms", str(report["ms"]))])
        return parts.Part(name, share, command, lines, **options)

    return make


WRITES = "import sys, json; json.dump({'ms': 7}, open(sys.argv[1], 'w')); "


def script(*words):
    return subprocess.run(
        ["bash", SCRIPT, *map(str, words)],
        env={**os.environ, "PYTHON": sys.executable},
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_part_that_fails_stops_no_other(gpu, part):
    chosen = [part("one", "raise SystemExit('no kernel')"), part("two", WRITES)]
    written = []
    results = gpu.gather(chosen, 1.0, lambda so_far: written.append(len(so_far)))
    assert [result["status"] for result in results] == ["failed: no kernel", "done"]
    assert results[1]["report"] == {"ms": 7}
    assert results[1]["lines"][0]["here"] == "7"
    assert written == [1, 2]


def is_over(status):
    """Whether a process is gone, or waits for its end to be noted."""
    try:
        return status.read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="processes are read from /proc")
def test_a_part_over_its_time_is_ended_with_all_it_started(gpu, part, tmp_path):
    child = "import subprocess, sys, time; "
    child += (
        f"open({str(tmp_path / 'pid')!r}, 'w').write(str(subprocess.Popen(['sleep', '60']).pid)); "
    )
    slow = part("slow", f"{WRITES}{child}time.sleep(60)")
    (result,) = gpu.gather([slow], 3 / 60, lambda results: None)
    assert result["status"] == "stopped after 3 s"
    assert result["lines"][0]["here"] == "7"  # what it had measured by then
    status = Path("/proc", (tmp_path / "pid").read_text(), "stat")
    for _ in range(50):
        if is_over(status):
            break
        time.sleep(0.1)
    assert is_over(status)


def test_a_part_has_the_time_that_others_left(gpu, part, monkeypatch):
    given = []
    monkeypatch.setattr(gpu, "run", lambda one, number, work, seconds: given.append(seconds) or {
        "part": one.name, "status": "done", "seconds": 0.0, "lines": []
    })  # fmt: skip
    gpu.gather([part("one", "", 60), part("two", "", 30)], 2.0, lambda results: None)
    assert given == pytest.approx([120, 180], abs=1)


def test_a_part_whose_data_was_not_made_is_left_out(gpu, part):
    (result,) = gpu.gather([part("train", WRITES, needs="data-bin")], 1.0, lambda results: None)
    assert result["status"] == "left out: what it needs was not made"


def test_a_part_imports_this_clone_and_sees_one_gpu(gpu, part, monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    code = "import os, fairseq_entmax; print(fairseq_entmax.__file__, os.environ['CUDA_VISIBLE_DEVICES'])"
    (result,) = gpu.gather([part("one", code)], 1.0, lambda results: None)
    package = FOLDER.parents[1] / "fairseq_entmax" / "__init__.py"
    assert result["said"] == [f"{package} 0"]


def test_a_part_that_writes_no_numbers_has_failed(gpu, part):
    (result,) = gpu.gather([part("silent", "")], 1.0, lambda results: None)
    assert result["status"] == "failed: it wrote no numbers"


def test_the_table_has_an_outcome_and_the_lines_of_each_part(gpu, part):
    chosen = [part("one", WRITES), part("two", "raise SystemExit('a | b')")]
    results = gpu.gather(chosen, 1.0, lambda results: None)
    text = gpu.table("a GPU", results).splitlines()
    assert text[0] == "a GPU"
    columns = {line.count("|") for line in text if line.startswith("|")}
    assert columns == {8}
    assert any(line.startswith("| **two** | failed: a / b") for line in text)
    assert "| one | case | ms | 7 |  |  |  |" in text


@pytest.mark.parametrize(
    "output",
    [
        "tests/a.py::test_one PASSED [ 25%]\ntests/a.py::test_two[x y] FAILED [ 50%]\n"
        "tests/a.py::test_three SKIPPED (no GPU) [ 75%]\ntests/a.py::test_four ",
        "[gw0] [ 25%] PASSED tests/a.py::test_one\n[gw1] [ 50%] FAILED tests/a.py::test_two[x y]\n"
        "[gw1] [ 75%] SKIPPED tests/a.py::test_three\ntests/a.py::test_four \n",
    ],
)
def test_tests_are_counted_even_where_they_were_stopped(tables, output):
    (line,) = tables.tests(output)
    assert line.here == "1 passed, 1 failed, 1 skipped"
    assert line.others == "tests/a.py::test_two[x y]"


def test_times_and_rates_say_how_many_times_as_fast(tables):
    numbers = {"ours": 2.0, "flash": 3.0, "other": 400.4}
    line = tables.compared("c", "ms", numbers, "ours", ["none", "flash"])
    assert (line.here, line.against, line.faster) == ("2", "flash 3", "1.50")
    assert line.others == "other 400"
    assert tables.compared("c", "1/s", numbers, "ours", ["flash"], rates=True).faster == "0.67"


def test_a_contender_that_did_not_run_leaves_the_others(tables):
    line = tables.compared("c", "ms", {"flash": 3.0}, "ours", ["flash"])
    assert (line.here, line.others) == ("", "flash 3")


def test_every_command_is_of_a_script_or_a_test_that_is_there(parts):
    for one in parts.parts("cuda"):
        paths = [word for word in one.command if word.endswith((".py", ".sh"))]
        assert all((parts.ROOT / word).is_file() for word in paths), one.name
    assert all(path.is_absolute() and path.exists() for path in parts.TESTS)


def test_the_names_of_parts_are_words_of_their_own(parts):
    for everything in (parts.parts("cuda"), parts.quick_parts()):
        names = [one.name for one in everything]
        assert len({*names}) == len(names)
        assert not any(character in name for name in names for character in " ,")


@pytest.mark.slow
def test_the_tests_are_found_from_another_folder_without_those_that_need_no_gpu(parts, tmp_path):
    pytest.importorskip("triton")
    command = parts.tests(parts.TESTS, *parts.ON_A_GPU, "--collect-only", processes=1)
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout[-2000:]
    assert "test_loss_and_gradients_are_those_of_the_cpu" in result.stdout
    assert "test_tiles_without_support_are_found_and_skipping_them_changes_no_bit" in result.stdout
    assert "test_the_kernels_compile_and_fit" not in result.stdout


STOPPED = """
import sys
from pathlib import Path
sys.path.insert(0, {folder!r})
import gpu, gpu_parts, gpu_tables

words = [sys.executable, "-c", {code!r}, "{{json}}", "{{work}}"]
line = lambda report: [gpu_tables.Line("case", "ms", str(report["ms"]))]
gpu_parts.quick_parts = lambda: [gpu_parts.Part(name, 60, words, line) for name in ("one", "two")]
sys.exit(gpu.main(["--device", "cpu", "--quick", "--output", {output!r}]))
"""


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="processes are read from /proc")
@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_signal_ends_the_part_and_leaves_what_there_is(number, status, tmp_path):
    begun, rest = tmp_path / "begun", tmp_path / "temporary"
    rest.mkdir()
    code = f"{WRITES}import os, time; "
    code += f"open({str(begun) + '.new'!r}, 'w').write(str(os.getpid())); "
    code += f"os.rename({str(begun) + '.new'!r}, {str(begun)!r}); time.sleep(60)"
    process = subprocess.Popen(
        [
            sys.executable,
            "-c",
            STOPPED.format(folder=str(FOLDER), code=code, output=str(tmp_path / "results")),
        ],
        env={**os.environ, "TMPDIR": str(rest)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # Tests in the background of a shell ignore Ctrl-C, and so would this
        preexec_fn=lambda: signal.signal(number, signal.SIG_DFL),
    )
    for _ in range(600):
        if begun.exists() or process.poll() is not None:
            break
        time.sleep(0.1)
    process.send_signal(number)
    said, errors = process.communicate(timeout=60)
    assert process.returncode == status, errors
    assert errors.splitlines() == [
        f"gpu.sh: stopped by {number.name}; {tmp_path / 'results' / 'gpu.md'} has what there is"
    ]
    assert not [*rest.glob("*/*.log")]
    assert is_over(Path("/proc", begun.read_text(), "stat"))
    table = (tmp_path / "results" / "gpu.md").read_text(encoding="utf-8")
    assert f"| **one** | stopped by {number.name}, " in table
    assert "| one | case | ms | 7 |" in table
    assert "two" not in table
    assert "==> two" not in said


def test_the_quick_parts_are_those_for_a_gpu(parts):
    scripts = {
        word for one in parts.parts("cuda") for word in one.command if str(parts.BENCHMARKS) in word
    }
    quick = {word for one in parts.quick_parts() for word in one.command}
    assert scripts <= quick


def test_a_dry_run_says_what_would_run_and_for_how_long():
    result = script("--dry-run", "--minutes", 10, "--parts", "mapping", "losses")
    assert result.returncode == 0, result.stderr
    first, command, *_ = result.stdout.splitlines()
    assert first == "mapping: at most 300 s"
    assert "mapping.py --device cuda" in command


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_it_says_so_in_a_sentence(tmp_path):
    result = script("--output", tmp_path / "results")
    assert result.returncode == 2
    assert result.stderr.startswith("gpu.sh: error: there is no GPU here that torch can use")
    assert len(result.stderr.splitlines()) == 1
    assert not (tmp_path / "results").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--minutes", "0"], "--minutes must be a number above 0, not 0"),
        (["--minutes", "nan"], "--minutes must be a number above 0, not nan"),
        (["--output", __file__], "test_gpu.py is a file, not a folder"),
        (["--output", f"{__file__}/results"], "test_gpu.py is a file, not a folder"),
        (["--quick"], "--device cpu and --quick belong together"),
        (
            ["--parts", "cooking"],
            "--parts got 'cooking': choose from tests attention attention-causal",
        ),
    ],
)
def test_a_wrong_option_is_named(gpu, capsys, monkeypatch, words, message):
    with pytest.raises(SystemExit):
        gpu.main(words)
    assert message in capsys.readouterr().err


def test_help_says_what_is_to_be_installed():
    result = script("--help")
    assert result.returncode == 0
    assert "pip install -e '.[fairseq,test]'" in result.stdout


def test_a_python_that_is_not_there_is_named():
    environment = {**os.environ, "PYTHON": "no-python"}
    result = subprocess.run(
        ["bash", SCRIPT], env=environment, capture_output=True, text=True, check=False
    )
    assert result.returncode == 2
    assert "PYTHON is no-python, and there is no such command" in result.stderr


def test_results_are_written_as_one_json_and_one_table(gpu, part, tmp_path, monkeypatch, capsys):
    import gpu_parts

    chosen = [replace(part("one", WRITES), environment={"A": "b"})]
    monkeypatch.setattr(gpu_parts, "quick_parts", lambda: chosen)
    assert gpu.main(["--device", "cpu", "--quick", "--output", str(tmp_path)]) == 0
    assert {path.name for path in tmp_path.iterdir()} == {"gpu.json", "gpu.md"}
    report = json.loads((tmp_path / "gpu.json").read_text(encoding="utf-8"))
    assert report["settings"]["torch"] == torch.__version__
    assert report["parts"][0]["report"] == {"ms": 7}
    assert "| one | case | ms | 7 |" in (tmp_path / "gpu.md").read_text(encoding="utf-8")
    assert "| one | case | ms | 7 |" in capsys.readouterr().out


@needs_compiler
@pytest.mark.slow
def test_all_parts_run_at_toy_size_on_a_cpu(tmp_path):
    pytest.importorskip("triton")
    result = script("--device", "cpu", "--quick", "--output", tmp_path)
    assert result.returncode == 0, result.stderr
    report = json.loads((tmp_path / "gpu.json").read_text(encoding="utf-8"))
    for one in report["parts"]:
        assert one["status"] == "done", one["said"]
        assert one["lines"], one["part"]
        for line in one["lines"]:
            assert line["here"], line
