"""scripts/constraints.py: the constraints also hold on other kinds of machines."""

import re

import pytest

from tests.scripts.support import ROOT, load

LINUX = "Linux x86_64"


@pytest.fixture
def script(monkeypatch):
    return load("constraints", monkeypatch)


def test_unpinned_packages_are_found_under_any_spelling(script):
    resolved = "ast-serialize==1.0\nnumpy==2.4\nzope.x==3\n"
    constraints = "# numpy==1\nAst_Serialize==1.0\nzope-x==3 ; python_version < '3.12'\n"
    assert script.unpinned(resolved, constraints) == ["numpy"]


def test_a_version_that_torch_from_the_index_cannot_use_is_found(script, tmp_path, capsys):
    pinned = script.CONSTRAINTS.read_text(encoding="utf-8")
    assert "\ntriton==" in pinned
    wrong = tmp_path / "constraints.txt"
    wrong.write_text(re.sub(r"(?m)^triton==\S+", "triton==3.9.0", pinned), encoding="utf-8")
    oldest = script.PYTHONS[0]
    failed = script.check(wrong, [LINUX], [oldest])
    assert failed == [f"{LINUX}, Python {oldest}"]
    assert "triton" in capsys.readouterr().err


def test_documentation_and_tools_name_the_supported_pythons(script):
    pythons = script.PYTHONS
    (row,) = re.findall(r"(?m)^\| Python \|.*$", (ROOT / "docs" / "versions.md").read_text("utf-8"))
    assert re.findall(r"3\.\d+", row) == pythons
    assert f"Python {pythons[0]} to {pythons[-1]}" in (ROOT / "README.md").read_text("utf-8")
    target = pythons[0].replace(".", "")
    assert f'target-version = "py{target}"' in (ROOT / "pyproject.toml").read_text("utf-8")
