"""Installation, imports, and the command."""

import ast
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import fairseq_entmax
from fairseq_entmax.cli import main

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "fairseq_entmax"


def run_python(code, cwd=ROOT):
    result = subprocess.run([sys.executable, "-c", code], cwd=cwd, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    return result


def test_version_and_user_dir_are_printed_and_the_changelog_has_the_version(capsys):
    with pytest.raises(SystemExit) as stop:
        main(["--version"])
    assert stop.value.code == 0
    assert capsys.readouterr().out.strip() == fairseq_entmax.__version__
    assert f"## {fairseq_entmax.__version__}" in (ROOT / "CHANGELOG.md").read_text()
    assert main(["user-dir"]) == 0
    assert Path(capsys.readouterr().out.strip()) == Path(fairseq_entmax.__file__).parent


def test_without_fairseq_mappings_work_and_the_rest_says_what_to_install():
    # With None in sys.modules, Python treats a package as missing
    code = """
import sys
sys.modules["fairseq"] = None
import logging, torch
before = set(sys.modules)
from fairseq_entmax.mappings import entmax
new = {name.partition(".")[0] for name in set(sys.modules) - before}
assert new - set(sys.stdlib_module_names) == {"fairseq_entmax"}, new
assert not logging.getLogger().handlers
probs = entmax(torch.tensor([1.0, 2.0, -5.0]), 1.5)
assert probs[2] == 0 and abs(probs.sum() - 1) < 1e-6
from fairseq_entmax.cli import main
for need in (
    lambda: __import__("fairseq_entmax.models"),
    lambda: __import__("fairseq_entmax.analysis").analysis.AttentionRecorder,
):
    try:
        need()
    except ModuleNotFoundError as error:
        print(error)
options = ["data", "--path", "x", "--output", "y"]
assert main(["analyze", *options]) == main(["ablate", *options]) == 1
"""
    result = run_python(code)
    assert result.stdout.count("pip install 'fairseq-entmax[fairseq]'") == 2
    assert result.stderr.count("pip install 'fairseq-entmax[fairseq]'") == 2


def run_and_read(code):
    """The value of the last line that the code prints."""
    return ast.literal_eval(run_python(code).stdout.splitlines()[-1])


def test_user_dir_registers_models_without_importing_tools_or_other_packages():
    code = f"""
import sys
import fairseq.models, fairseq.tasks, fairseq.criterions, fairseq.checkpoint_utils
import fairseq_entmax.mappings
from argparse import Namespace
from fairseq import utils
assert not any("entmax" in name for name in fairseq.models.ARCH_MODEL_REGISTRY)
before = set(sys.modules)
utils.import_user_module(Namespace(user_dir={str(PACKAGE)!r}))
assert "entmax_transformer_iwslt_de_en" in fairseq.models.ARCH_MODEL_REGISTRY
assert "label_smoothed_cross_entropy_with_head_l0" in fairseq.criterions.CRITERION_REGISTRY
assert "entmax_summarization" in fairseq.tasks.TASK_REGISTRY
new = {{name.partition(".")[0] for name in set(sys.modules) - before}}
ours = sorted(name for name in sys.modules if name.startswith("fairseq_entmax."))
others = sorted(new - set(sys.stdlib_module_names) - {{"fairseq", "torch", "fairseq_entmax"}})
print((ours, others))
"""
    ours, others = run_and_read(code)
    tools = ("fairseq_entmax.analysis", "fairseq_entmax.pruning", "fairseq_entmax.cli")
    assert not [name for name in ours if name.startswith(tools)]
    assert others == []


CALLS = [
    (["user-dir"], 0, "fairseq_entmax"),
    (["--help"], 0, "user-dir"),
    (["analyze", "--help"], 0, "--measures"),
    (["nonsense"], 2, "nonsense"),
    (["prune", "absent.pt", "--output", "x", "--heads", "up"], 1, "'up' does not name heads"),
    (["ablate", "data", "--trials", "many"], 2, "invalid int value: 'many'"),
]


def test_help_and_wrong_options_need_neither_torch_nor_fairseq():
    code = f"""
import contextlib, io, sys
from fairseq_entmax.cli import main
results = []
for arguments in {[arguments for arguments, _, _ in CALLS]!r}:
    output = io.StringIO()
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
        try:
            status = main(arguments)
        except SystemExit as stop:
            status = stop.code
    heavy = sorted({{"torch", "fairseq", "numpy"}} & set(sys.modules))
    results.append((status, output.getvalue(), heavy))
print(results)
"""
    for (status, output, heavy), call in zip(run_and_read(code), CALLS, strict=True):
        assert (status, heavy) == (call[1], []), call
        assert call[2] in output, call


@pytest.mark.parametrize("is_pipe", [True, False])
def test_a_closed_output_pipe_is_no_error_and_a_full_disk_is_one(is_pipe):
    if is_pipe:
        reading, writing = os.pipe()
        os.close(reading)
    else:
        writing = os.open("/dev/full", os.O_WRONLY)
    code = "import sys; from fairseq_entmax.cli import main; sys.exit(main(sys.argv[1:]))"
    command = [sys.executable, "-c", code, "user-dir"]
    buffered = {name: one for name, one in os.environ.items() if name != "PYTHONUNBUFFERED"}
    pipes = {"stdout": writing, "stderr": subprocess.PIPE}
    done = subprocess.run(command, cwd=ROOT, env=buffered, text=True, **pipes)
    os.close(writing)
    full = "fairseq-entmax: the output cannot be written: No space left on device\n"
    assert done.stderr == ("" if is_pipe else full)
    assert done.returncode in ((0, 141) if is_pipe else (1,))


def test_ctrl_c_ends_a_command_in_one_line(monkeypatch, capsys):
    def interrupt(_):
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "resolve", interrupt)
    assert main(["user-dir"]) == 130
    assert capsys.readouterr().err == "fairseq-entmax: interrupted\n"


def test_a_wheel_contains_every_module_and_works_in_any_folder(tmp_path):
    source = tmp_path / "source"  # without leftovers of earlier builds
    leave_out = shutil.ignore_patterns("__pycache__")
    shutil.copytree(PACKAGE, source / PACKAGE.name, ignore=leave_out)
    for name in ("setup.py", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    command = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "--quiet"]
    command += ["--disable-pip-version-check", "-w", tmp_path, source]
    build = subprocess.run(command, capture_output=True, text=True)
    assert build.returncode == 0, build.stderr
    (wheel,) = tmp_path.glob("fairseq_entmax-*.whl")
    site = tmp_path / "site"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    expected = {
        p.relative_to(ROOT)
        for kind in ("py", "c", "h", "json", "html", "css", "js")
        for p in PACKAGE.rglob(f"*.{kind}")
    }
    expected.add(Path("fairseq_entmax/py.typed"))
    assert {
        p.relative_to(site) for p in (site / "fairseq_entmax").rglob("*") if p.is_file()
    } == expected
    code = f"""
import sys
sys.path.insert(0, {str(site)!r})
import fairseq_entmax.models
from fairseq.models import ARCH_MODEL_REGISTRY
assert fairseq_entmax.__file__.startswith({str(site)!r}), fairseq_entmax.__file__
assert "entmax_transformer_iwslt_de_en" in ARCH_MODEL_REGISTRY
from fairseq_entmax.analysis import document
assert document.schema()["title"]
"""
    run_python(code, tmp_path)
