"""mkdocs.yml and scripts/docs.sh: the site of the documentation."""

import subprocess

import yaml

from tests.scripts.support import ROOT

SETTINGS = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))


def pages(entry):
    """The files that a part of the navigation names."""
    if isinstance(entry, str):
        return [entry]
    parts = entry.values() if isinstance(entry, dict) else entry
    return [page for part in parts for page in pages(part)]


def test_the_navigation_has_four_kinds_and_names_every_chapter_once():
    kinds = [name for part in SETTINGS["nav"] for name in part]
    assert kinds == ["Start", "Tutorial", "How-to", "Reference", "Background"]
    named = pages(SETTINGS["nav"])
    assert len(named) == len(set(named))
    globs = ("*.md", "docs/*.md", "examples/*/README.md")
    assert {str(p.relative_to(ROOT)) for glob in globs for p in ROOT.glob(glob)} <= set(named)
    assert all((ROOT / page).is_file() for page in named)


def test_the_command_says_what_it_does():
    script = ROOT / "scripts" / "docs.sh"
    subprocess.run(["bash", "-n", script], check=True)
    result = subprocess.run([script, "--help"], capture_output=True, text=True, check=True)
    assert result.stdout.startswith("Makes the site of the documentation")
