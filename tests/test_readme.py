"""What the README says of options and code is so."""

import argparse
import re
from pathlib import Path

import torch

from fairseq_entmax.mappings import parse_mappings
from fairseq_entmax.models.options import DEFAULTS, add_arguments, option_name

README = (Path(__file__).resolve().parent.parent / "README.md").read_text(encoding="utf-8")


def table_rows(first_header):
    """The cells of the table whose header starts so, without header and rule."""
    lines = README[README.index(f"| {first_header} |") :].split("\n\n")[0].splitlines()
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def test_the_table_of_options_has_every_option_with_its_default():
    parser = argparse.ArgumentParser(add_help=False)
    add_arguments(parser)
    expected = {option_name(name): str(value or "") for name, value in DEFAULTS.items()}
    assert {action.option_strings[0] for action in parser._actions} == set(expected)
    found = {row[0].strip("`").split()[0]: row[2].strip("`") for row in table_rows("option")}
    assert found == expected


def test_every_mapping_of_the_table_can_be_parsed():
    specs = [row[0].strip("`") for row in table_rows("SPEC")]
    assert len(specs) == 6
    for spec in specs:
        assert parse_mappings(spec)


def test_the_example_of_the_mappings_runs_and_gives_exact_zeros():
    blocks = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    (example,) = [block for block in blocks if "fairseq_entmax.mappings" in block]
    torch.manual_seed(0)
    names = {}
    exec(example, names)
    weights = names["weights"]
    torch.testing.assert_close(weights.sum(-1), torch.ones(2, 8, 5))
    assert (weights == 0).any()
