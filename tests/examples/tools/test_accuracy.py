"""Accuracy with its interval, by hand and compared with the normal interval."""

import csv
import json

import pytest
from accuracy import bootstrap, main
from translations import score_of


def test_the_bootstrap_is_close_to_the_normal_interval_and_wider_for_groups():
    values = [float(number // 10 % 5 > 0) for number in range(1000)]  # groups of ten equal values
    low, high = bootstrap(values, [str(number) for number in range(1000)])
    half = 1.96 * (0.8 * 0.2 / 1000) ** 0.5
    assert (low, high) == pytest.approx((0.8 - half, 0.8 + half), abs=0.004)
    together = bootstrap(values, [str(number // 10) for number in range(1000)])
    assert (together[1] - together[0]) / (high - low) == pytest.approx(10**0.5, rel=0.15)
    # Groups count by their size: both drawn groups may be the small one, or the large one
    assert bootstrap([1.0] * 90 + [0.0] * 10, ["large"] * 90 + ["small"] * 10) == (0.0, 1.0)


@pytest.fixture
def folder(tmp_path):
    """Labels, groups, and the predictions of two models."""
    for name, predicted in (("first", "xyyy"), ("second", "xxxy")):
        rows = "".join(f"{json.dumps({'predicted': label})}\n" for label in predicted)
        (tmp_path / f"{name}.jsonl").write_text(rows)
    (tmp_path / "test.label").write_text("x\ny\nx\ny\n")
    (tmp_path / "test.group").write_text("1\n1\n2\n2\n")
    return tmp_path


def of(folder, *arguments):
    options = ["--labels", folder / "test.label", "--groups", folder / "test.group"]
    main(list(map(str, [*arguments, *options])))


def test_the_table_compares_models_with_the_first(folder, capsys):
    of(folder, *(folder / f"{name}.jsonl" for name in ("first", "second")), "--names", "one", "two")
    printed = capsys.readouterr().out
    one, two = csv.DictReader(printed.splitlines(), delimiter="\t")
    assert (one["accuracy"], two["accuracy"]) == ("75.00", "75.00")
    assert (one["change"], two["change"]) == ("", "+0.00")
    assert two["95 % interval of the change"] == "-50.00 to +50.00"


def test_printed_accuracy_can_be_read_back_and_other_labels_are_refused(folder, capsys, refusal):
    of(folder, folder / "first.jsonl")
    output = capsys.readouterr().out
    assert output.startswith("accuracy 75.00 % (3 of 4)\n")
    assert "50.00 to 100.00 (bootstrap over 2 groups)" in output
    (folder / "scores.txt").write_text(output)
    assert score_of("accuracy", folder / "scores.txt") == "75.00"
    (folder / "test.label").write_text("x\n")
    assert "has 4 predictions for 1 labels" in refusal(of, folder, folder / "first.jsonl")
