"""docs/commands.md is what scripts/reference.py writes."""

from tests.scripts import support


def test_the_page_matches_the_help_of_commands_and_options(monkeypatch):
    reference = support.load("reference", monkeypatch)
    expected = reference.page()
    assert "--alpha-warmup-updates N" in expected
    assert "--target-heads" in expected
    # Python releases break lines differently
    assert reference.PAGE.read_text(encoding="utf-8").split() == expected.split()
