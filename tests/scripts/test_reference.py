"""docs/commands.md is what scripts/reference.py writes."""

from tests.scripts import support


def test_the_page_is_what_the_commands_and_options_say_of_themselves(monkeypatch):
    reference = support.load("reference", monkeypatch)
    expected = reference.page()
    assert "--alpha-warmup-updates N" in expected
    assert "--target-heads" in expected
    # Releases of Python break lines differently
    assert reference.PAGE.read_text(encoding="utf-8").split() == expected.split()
