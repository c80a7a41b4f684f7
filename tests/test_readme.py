"""What the README and the chapters in docs/ say about options, code and files is true."""

import argparse
import re
from pathlib import Path

import pytest
import torch

from fairseq_entmax.mappings import parse_mappings
from fairseq_entmax.models.config import FEATURES, add_arguments, defaults_of, option_name

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
OPTIONS = (ROOT / "docs" / "options.md").read_text(encoding="utf-8")
INDEX = ROOT / "docs" / "README.md"
CHAPTERS = sorted({*(ROOT / "docs").glob("*.md")} - {INDEX})
PAGES = [*sorted(ROOT.glob("*.md")), INDEX, *CHAPTERS, *sorted((ROOT / "examples").rglob("*.md"))]


def table_rows(first_header, page=OPTIONS):
    """The cells of the table with this first header, without its header and rule."""
    lines = page[page.index(f"| {first_header} |") :].split("\n\n")[0].splitlines()
    # A bar in a cell has a backslash before it
    rows = (re.split(r"(?<!\\)\|", line.strip("|")) for line in lines[2:])
    return [[cell.strip().replace("\\|", "|") for cell in row] for row in rows]


def test_the_table_of_options_has_every_option_with_its_default():
    parser = argparse.ArgumentParser(add_help=False)
    add_arguments(parser)
    expected = {
        option_name(name): str(value or "") for name, value in defaults_of(FEATURES).items()
    }
    assert {action.option_strings[0] for action in parser._actions} == set(expected)
    found = {row[0].strip("`").split()[0]: row[2].strip("`") for row in table_rows("option")}
    assert found == expected


@pytest.mark.parametrize(("page", "number"), [("docs/options.md", 12), ("docs/structured.md", 12)])
def test_every_mapping_in_the_tables_can_be_parsed(page, number):
    text = (ROOT / page).read_text(encoding="utf-8")
    specs = [spec for row in table_rows("SPEC", text) for spec in re.findall("`(.+?)`", row[0])]
    assert len(specs) == number
    for spec in specs:
        assert parse_mappings(spec)


def test_the_readme_is_short_and_its_python_gives_exact_zeros():
    assert len(README.split()) <= 600
    assert "```python" in "\n".join(README.splitlines()[:45])
    (block,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    torch.manual_seed(0)
    names = {}
    exec(block, names)
    assert (names["weights"] == 0).any()
    assert (names["mapping"].alpha_logit.grad != 0).all()
    probs = names["entmax15"](torch.tensor([3.0, 2.0, 0.5, -1.0]))
    assert [f"{float(p):.4f}" for p in probs] == ["0.8307", "0.1693", "0.0000", "0.0000"]


def run_example(chapter, part):
    """The names that an example of a chapter defines."""
    text = (ROOT / "docs" / f"{chapter}.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    torch.manual_seed(0)
    names = {}
    exec(next(block for block in blocks if part in block), names)
    torch.testing.assert_close(names["weights"].sum(-1), torch.ones(2, 8, 5))
    return names


@pytest.mark.parametrize("chapter", ["attention", "structured"])
def test_the_example_of_the_mappings_runs_and_gives_exact_zeros(chapter):
    assert (run_example(chapter, "fairseq_entmax.mappings")["weights"] == 0).any()


def test_the_example_of_the_module_learns_an_alpha_for_each_head():
    module = run_example("attention", "Entmax(num_alphas=heads)")["attention"]
    assert ((module.alpha > 1) & (module.alpha < 2)).tolist() == [True] * 8
    assert (module.alpha_logit.grad != 0).tolist() == [True] * 8


def anchors(page):
    """The anchors of a page: its headings, as code hosts write them."""
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    headings = re.findall(r"(?m)^#+ (.+)$", text)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_has_a_target(page):
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8")):
        if target.startswith(("http:", "https:")):
            continue
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        assert file.exists(), target
        assert ROOT in file.parents
        if anchor:
            assert anchor in anchors(file), target


@pytest.mark.parametrize(
    "page", [*sorted(ROOT.glob("*.md")), *CHAPTERS], ids=lambda page: page.name
)
def test_every_script_that_is_named_exists(page):
    text = page.read_text(encoding="utf-8")
    for name in re.findall(r"(?<![\w/.-])((?:scripts|examples|tests)/[\w/.-]+\.(?:sh|py))\b", text):
        # RECIPE stands for any of them
        assert (ROOT / name.replace("RECIPE", "bible_es_en")).is_file(), name


def test_the_index_names_every_chapter():
    assert CHAPTERS
    for chapter in CHAPTERS:
        assert f"]({chapter.name})" in INDEX.read_text(encoding="utf-8")
