"""scripts/constraints.py: the constraints hold on machines of other kinds than this one."""

import re

import pytest

from tests.scripts.support import ROOT, load

LINUX = "Linux x86_64"


@pytest.fixture
def script(monkeypatch):
    return load("constraints", monkeypatch)


def test_names_that_the_constraints_leave_open_are_found_however_they_are_spelt(script):
    resolved = "ast-serialize==1.0\nnumpy==2.4\nzope.x==3\n"
    constraints = "# numpy==1\nAst_Serialize==1.0\nzope-x==3 ; python_version < '3.12'\n"
    assert script.unpinned(resolved, constraints) == ["numpy"]


def test_a_version_that_the_indexs_own_torch_cannot_have_is_found(script, tmp_path, capsys):
    pinned = script.CONSTRAINTS.read_text(encoding="utf-8")
    assert "\ntriton==" in pinned
    wrong = tmp_path / "constraints.txt"
    wrong.write_text(re.sub(r"(?m)^triton==\S+", "triton==3.9.0", pinned), encoding="utf-8")
    failed = script.check(wrong, [LINUX], ["3.11"])
    assert failed == [f"{LINUX}, Python 3.11"]
    assert "triton" in capsys.readouterr().err


def test_the_script_the_package_and_the_documentation_name_the_same_pythons(script):
    setup = (ROOT / "setup.py").read_text(encoding="utf-8")
    classifiers = re.findall(r"Programming Language :: Python :: (3\.\d+)", setup)
    assert tuple(classifiers) == script.PYTHONS
    assert re.search(r'python_requires=">=(.+)"', setup)[1] == script.PYTHONS[0]
    readme = (ROOT / "docs" / "versions.md").read_text(encoding="utf-8")
    (row,) = re.findall(r"(?m)^\| Python \|.*$", readme)
    assert set(re.findall(r"3\.\d+", row)) == set(script.PYTHONS)
