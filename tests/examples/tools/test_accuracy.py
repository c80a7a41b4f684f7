"""Accuracy with its intervals, against scipy and by hand, and the baselines beside it."""

import csv
import json

import accuracy
import numpy
import pytest
from accuracy import NaiveBayes, baselines, bootstrap, main, measured, wilson
from scipy.stats import binomtest


@pytest.mark.parametrize(("correct", "total"), [(0, 5), (1, 3), (37, 40), (2977, 3220), (9, 9)])
def test_wilsons_interval_is_that_of_scipy(correct, total):
    expected = binomtest(correct, total).proportion_ci(0.95, method="wilson")
    assert wilson(correct, total) == pytest.approx((expected.low, expected.high), abs=1e-12)


def test_the_bootstrap_of_single_examples_is_near_the_normal_interval():
    values = [1.0] * 800 + [0.0] * 200
    low, high = bootstrap(values, [str(number) for number in range(1000)])
    half = 1.96 * (0.8 * 0.2 / 1000) ** 0.5
    assert low == pytest.approx(0.8 - half, abs=0.004)
    assert high == pytest.approx(0.8 + half, abs=0.004)


def test_examples_that_fall_together_widen_the_interval():
    values = [float(number // 10 % 5 > 0) for number in range(1000)]  # ten of a group alike
    alone = bootstrap(values, [str(number) for number in range(1000)])
    together = bootstrap(values, [str(number // 10) for number in range(1000)])
    ratio = (together[1] - together[0]) / (alone[1] - alone[0])
    assert ratio == pytest.approx(10**0.5, rel=0.15)


def test_groups_of_different_sizes_count_by_their_examples():
    low, high = bootstrap([1.0] * 90 + [0.0] * 10, ["large"] * 90 + ["small"] * 10)
    assert (low, high) == (0.0, 1.0)  # both groups drawn are the small one, or the large one
    assert measured([True] * 90 + [False] * 10, ["large"] * 90 + ["small"] * 10)["accuracy"] == 90


def test_naive_bayes_follows_the_example_of_its_textbook():
    """Manning, Raghavan, Schütze 2008, example 13.1."""
    examples = [
        ("Chinese Beijing Chinese", "yes"),
        ("Chinese Chinese Shanghai", "yes"),
        ("Chinese Macao", "yes"),
        ("Tokyo Japan Chinese", "no"),
    ]
    model = NaiveBayes((text.split(), label) for text, label in examples)
    assert model.predict(["Chinese", "Chinese", "Chinese", "Tokyo", "Japan"]) == "yes"
    assert numpy.exp(model.weights["yes"]["Chinese"]) == pytest.approx(3 / 7)
    assert numpy.exp(model.unseen["yes"]) == pytest.approx(1 / 14)
    assert numpy.exp(model.weights["no"]["Japan"]) == pytest.approx(2 / 9)
    assert numpy.exp(model.priors["no"]) == pytest.approx(1 / 4)
    assert model.predict(["Tokyo", "Japan", "Osaka"]) == "no"  # Osaka says nothing


@pytest.fixture
def folder(tmp_path):
    """Words, labels and predictions of a task that a bag of words decides."""
    words = {"train": ["a b", "a c", "d", "a"], "test": ["a", "d", "c", "d"]}
    for split, texts in words.items():
        (tmp_path / f"{split}.input0").write_text("".join(f"{text}\n" for text in texts))
    (tmp_path / "train.label").write_text("x\nx\ny\nx\n")
    (tmp_path / "test.label").write_text("x\ny\nx\ny\n")
    (tmp_path / "test.group").write_text("1\n1\n2\n2\n")
    for name, said in (("first", "xyyy"), ("second", "xxxy")):
        rows = "".join(json.dumps({"predicted": label}) + "\n" for label in said)
        (tmp_path / f"{name}.jsonl").write_text(rows)
    return tmp_path


def test_baselines_are_of_the_training_examples(folder):
    right = baselines(folder, ["input0"], ["x", "x", "y", "x"], ["x", "y", "x", "y"])
    assert right["commonest label"] == [True, False, True, False]
    assert right["naive Bayes"] == [True, True, True, True]


def test_words_of_the_second_text_are_other_words(folder):
    (folder / "test.input1").write_text("a\nb\nc\nd\n")
    first = accuracy.examples(folder / "test", ["input0", "input1"])[0]
    assert len(set(first)) == 2


def test_the_table_compares_models_with_the_first(folder, capsys):
    files = [str(folder / f"{name}.jsonl") for name in ("first", "second")]
    options = ["--names", "one", "two", "--words", str(folder), "--inputs", "input0"]
    options += ["--train-labels", str(folder / "train.label")]
    options += ["--labels", str(folder / "test.label"), "--groups", str(folder / "test.group")]
    main(["write", *files, *options])
    printed = capsys.readouterr().out
    rows = {row["model"]: row for row in csv.DictReader(printed.splitlines(), delimiter="\t")}
    assert list(rows) == ["commonest label", "naive Bayes", "one", "two"]
    assert [row["accuracy"] for row in rows.values()] == ["50.00", "100.00", "75.00", "75.00"]
    assert rows["one"]["change"] == ""
    assert rows["two"]["change"] == "+0.00"
    assert rows["two"]["95 % interval of the change"] == "-50.00 to +50.00"


def test_predictions_of_other_examples_are_refused(folder, capsys):
    (folder / "test.label").write_text("x\n")
    with pytest.raises(SystemExit):
        main(["score", str(folder / "first.jsonl"), "--labels", str(folder / "test.label")])
    assert "has 4 predictions for 1 labels" in capsys.readouterr().err


def test_what_is_told_of_a_model_has_both_intervals(folder, capsys):
    arguments = ["--labels", str(folder / "test.label"), "--groups", str(folder / "test.group")]
    main(["score", str(folder / "first.jsonl"), *arguments])
    (folder / "scores.json").write_text(capsys.readouterr().out)
    main(["tell", str(folder / "scores.json")])
    told = capsys.readouterr().out
    assert told.startswith("accuracy 75.00 % (3 of 4)\n")
    assert "50.00 to 100.00 (bootstrap over 2 groups)" in told
    low, high = (100 * bound for bound in wilson(3, 4))
    assert f"{low:.2f} to {high:.2f} (Wilson" in told
