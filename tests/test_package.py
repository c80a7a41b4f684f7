"""Installing, importing, and the command."""

import ast
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import fairseq_entmax
from fairseq_entmax.cli import main

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "fairseq_entmax"


def run_python(code, cwd):
    return subprocess.run(
        [sys.executable, "-c", code], cwd=cwd, capture_output=True, text=True, check=False
    )


def test_user_dir_is_the_folder_of_the_package(capsys):
    assert main(["user-dir"]) == 0
    assert Path(capsys.readouterr().out.strip()) == Path(fairseq_entmax.__file__).parent


def test_the_version_is_said_in_one_place_and_in_the_changelog(capsys):
    with pytest.raises(SystemExit) as stop:
        main(["--version"])
    assert stop.value.code == 0
    assert capsys.readouterr().out.strip() == fairseq_entmax.__version__
    assert f"## {fairseq_entmax.__version__}" in (ROOT / "CHANGELOG.md").read_text()


def test_without_a_command_the_usage_is_printed(capsys):
    with pytest.raises(SystemExit) as stop:
        main([])
    assert stop.value.code == 2
    assert "COMMAND" in capsys.readouterr().err


def test_without_fairseq_the_mappings_work_and_the_rest_says_what_to_install():
    # None in sys.modules is Python's way to make a package absent
    code = """
import sys
sys.modules["fairseq"] = None
import torch
from fairseq_entmax.mappings import entmax
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
assert main(["analyze", "data"]) == main(["ablate", "data"]) == 1
"""
    result = run_python(code, ROOT)
    assert result.returncode == 0, result.stderr
    assert result.stdout.count("pip install 'fairseq-entmax[fairseq]'") == 2
    assert result.stderr.count("pip install 'fairseq-entmax[fairseq]'") == 2


def test_user_dir_imports_none_of_the_tools_and_nothing_beside_fairseq():
    code = """
import sys
import fairseq.models, fairseq.tasks, fairseq.criterions, fairseq.checkpoint_utils
before = set(sys.modules)
import fairseq_entmax
new = {name.partition(".")[0] for name in set(sys.modules) - before}
print(sorted(name for name in sys.modules if name.startswith("fairseq_entmax.")))
print(sorted(new - set(sys.stdlib_module_names) - {"fairseq", "torch", "fairseq_entmax"}))
"""
    result = run_python(code, ROOT)
    assert result.returncode == 0, result.stderr
    ours, others = (ast.literal_eval(line) for line in result.stdout.splitlines()[-2:])
    assert not [
        name for name in ours if name.startswith(("fairseq_entmax.analysis", "fairseq_entmax.cli"))
    ]
    assert others == []


def test_a_wheel_holds_every_module_and_works_from_anywhere(tmp_path):
    build = subprocess.run(
        [
            *[sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation"],
            *["--quiet", "--disable-pip-version-check", "-w", str(tmp_path), str(ROOT)],
        ],
        capture_output=True,
        text=True,
        check=False,
    )
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
import fairseq_entmax
from fairseq.models import ARCH_MODEL_REGISTRY
assert fairseq_entmax.__file__.startswith({str(site)!r}), fairseq_entmax.__file__
assert "entmax_transformer_iwslt_de_en" in ARCH_MODEL_REGISTRY
from fairseq_entmax.analysis import document
assert document.schema()["title"]
"""
    result = run_python(code, tmp_path)
    assert result.returncode == 0, result.stderr
