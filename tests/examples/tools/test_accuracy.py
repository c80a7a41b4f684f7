"""Accuracy with its intervals, against scipy and by hand, and the baselines beside it."""

import csv
import json

import accuracy
import numpy
import pytest
from accuracy import NaiveBayes, bootstrap, main, wilson
from scipy.stats import binomtest


@pytest.mark.parametrize(("correct", "total"), [(0, 5), (1, 3), (37, 40), (2977, 3220), (9, 9)])
def test_wilsons_interval_is_that_of_scipy(correct, total):
    expected = binomtest(correct, total).proportion_ci(0.95, method="wilson")
    assert wilson(correct, total) == pytest.approx((expected.low, expected.high), abs=1e-12)


def test_the_bootstrap_is_near_the_normal_interval_and_wider_where_examples_fall_together():
    values = [float(number // 10 % 5 > 0) for number in range(1000)]  # ten of a group alike
    low, high = bootstrap(values, [str(number) for number in range(1000)])
    half = 1.96 * (0.8 * 0.2 / 1000) ** 0.5
    assert (low, high) == pytest.approx((0.8 - half, 0.8 + half), abs=0.004)
    together = bootstrap(values, [str(number // 10) for number in range(1000)])
    assert (together[1] - together[0]) / (high - low) == pytest.approx(10**0.5, rel=0.15)
    # Groups count by their examples: both that are drawn are the small one, or the large one
    assert bootstrap([1.0] * 90 + [0.0] * 10, ["large"] * 90 + ["small"] * 10) == (0.0, 1.0)


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
    logs = (model.weights["yes"]["Chinese"], model.unseen["yes"], model.weights["no"]["Japan"])
    assert numpy.exp(logs) == pytest.approx([3 / 7, 1 / 14, 2 / 9])
    assert numpy.exp(model.priors["no"]) == pytest.approx(1 / 4)
    assert model.predict(["Tokyo", "Japan", "Osaka"]) == "no"  # Osaka says nothing


@pytest.fixture
def folder(tmp_path):
    """Words, labels and predictions of a task that a bag of words decides."""
    files = {"train.input0": "a b,a c,d,a", "test.input0": "a,d,c,d", "train.label": "x,x,y,x"}
    files |= {"test.label": "x,y,x,y", "test.group": "1,1,2,2", "test.input1": "a,b,c,d"}
    for name, said in (("first", "xyyy"), ("second", "xxxy")):
        files[f"{name}.jsonl"] = "&".join(json.dumps({"predicted": label}) for label in said)
    for name, text in files.items():
        (tmp_path / name).write_text(text.replace(",", "\n").replace("&", "\n") + "\n")
    return tmp_path


def test_words_of_the_second_text_are_other_words(folder):
    assert len(set(accuracy.examples(folder / "test", ["input0", "input1"])[0])) == 2


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
    assert (rows["one"]["change"], rows["two"]["change"]) == ("", "+0.00")
    assert rows["two"]["95 % interval of the change"] == "-50.00 to +50.00"


def test_what_is_told_of_a_model_has_both_intervals_and_others_are_refused(folder, capsys):
    arguments = ["--labels", str(folder / "test.label"), "--groups", str(folder / "test.group")]
    main(["score", str(folder / "first.jsonl"), *arguments])
    (folder / "scores.json").write_text(capsys.readouterr().out)
    main(["tell", str(folder / "scores.json")])
    told = capsys.readouterr().out
    assert told.startswith("accuracy 75.00 % (3 of 4)\n")
    assert "50.00 to 100.00 (bootstrap over 2 groups)" in told
    low, high = (100 * bound for bound in wilson(3, 4))
    assert f"{low:.2f} to {high:.2f} (Wilson" in told
    (folder / "test.label").write_text("x\n")
    with pytest.raises(SystemExit):
        main(["score", str(folder / "first.jsonl"), *arguments])
    assert "has 4 predictions for 1 labels" in capsys.readouterr().err
