"""mkdocs.yml and scripts/docs.sh: the documentation site."""

import importlib
import re
import subprocess

import yaml

from tests.scripts.support import ROOT

SETTINGS = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))


def pages(entry):
    if isinstance(entry, str):
        return [entry]
    parts = entry.values() if isinstance(entry, dict) else entry
    return [page for part in parts for page in pages(part)]


def test_the_navigation_has_its_five_parts_and_lists_every_chapter():
    kinds = " ".join(name for part in SETTINGS["nav"] for name in part)
    assert kinds == "Start Tutorial How-to Reference Background"
    named = pages(SETTINGS["nav"])
    globs = ("*.md", "docs/*.md", "examples/*/README.md")
    assert {str(p.relative_to(ROOT)) for glob in globs for p in ROOT.glob(glob)} <= set(named)
    assert all((ROOT / page).is_file() for page in named)


def test_every_name_on_the_python_page_exists():
    page = (ROOT / "docs" / "python.md").read_text(encoding="utf-8")
    for module, name in re.findall(r"(?m)^::: (.+)\.(\w+)$", page):
        assert hasattr(importlib.import_module(module), name)


def test_help_describes_the_command():
    script = ROOT / "scripts" / "docs.sh"
    subprocess.run(["bash", "-n", script], check=True)
    result = subprocess.run([script, "--help"], capture_output=True, text=True, check=True)
    assert result.stdout.startswith("Makes the site of the documentation")
