"""The command rouge: what it prints and writes, its intervals, and what it refuses."""

import json
import math
import random
import re
import sys

import numpy as np
import pytest

from fairseq_entmax.cli import main
from fairseq_entmax.summaries.generated import hypotheses
from fairseq_entmax.summaries.rouge import TYPES, Rouge, RougeOptions
from fairseq_entmax.summaries.rouge_command import intervals
from tests.summaries.texts import LOG, printed, written

WORDS = ["the", "cat", "sat", "on", "a", "mat", "and", "dogs", "barked"]


def sentences(seed, number=12):
    source = random.Random(seed)
    return [" ".join(source.choices(WORDS, k=source.randrange(4, 12))) for _ in range(number)]


REFERENCES, MORE, FIRST, SECOND = map(sentences, range(4))


def lines(texts):
    return "".join(f"{text}\n" for text in texts)


@pytest.fixture
def files(tmp_path):
    order = random.Random(7).sample(range(12), 12)
    generated = printed({n: ("s", "t", text, "worse") for n, text in enumerate(FIRST)}, order)
    return written(
        tmp_path,
        generated=generated,
        plain=lines(FIRST),
        other=lines(SECOND),
        reference=lines(REFERENCES),
        more=lines(MORE),
        short=lines(REFERENCES[:-1]),
    )


def document(capsys, *words):
    capsys.readouterr()
    assert main(["rouge", *map(str, words), "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_means_are_over_documents_joined_by_number_or_line(files, capsys):
    found = document(capsys, files["generated"], "--reference", files["reference"])
    scores = [Rouge().score(*pair) for pair in zip(FIRST, [[r] for r in REFERENCES], strict=True)]
    for kind in TYPES:
        for name in ("precision", "recall", "f1"):
            mean = sum(getattr(score[kind], name) for score in scores) / len(scores)
            assert found[kind][name]["value"] == pytest.approx(mean, rel=1e-12)
            assert found[kind][name]["low"] < mean < found[kind][name]["high"]
    assert (found["documents"], found["empty_summaries"], found["compared"]) == (12, 0, None)
    plain = document(capsys, files["plain"], "--text", "--reference", files["reference"])
    assert {**plain, "generated": None} == {**found, "generated": None}


def test_options_apply_to_the_scores_and_intervals(files, capsys):
    options = ["--bytes=20", "--no-stem", "--sentences=sat", "--bootstrap=50", "--seed=4"]
    references = ["--reference", files["reference"], "--reference", files["more"]]
    found = document(capsys, files["generated"], *references, *options)
    rouge = Rouge(RougeOptions(stem=False, max_bytes=20, sentences="sat"))
    pairs = zip(FIRST, zip(REFERENCES, MORE, strict=True), strict=True)
    scores = np.array([rouge.score(text, both)["rougeL"].recall for text, both in pairs])
    value, low, high, _ = intervals(scores[:, None], 50, 4)[0]
    expected = {"value": value, "low": low, "high": high}
    assert found["rougeL"]["recall"] == pytest.approx(expected, rel=1e-12)
    assert value == pytest.approx(scores.mean(), rel=1e-12)
    assert found["settings"]["statistic"] == "recall"


def test_two_systems_are_compared_document_by_document(files, tmp_path, capsys):
    words = [files["plain"], "--text", "--reference", files["reference"]]
    options = ["--compare", files["other"], "--output", tmp_path / "scores.json"]
    found = document(capsys, *words, *options)
    assert json.loads((tmp_path / "scores.json").read_text()) == found
    systems = [
        [Rouge().score(text, [one]) for text, one in zip(texts, REFERENCES, strict=True)]
        for texts in (FIRST, SECOND)
    ]
    for kind in TYPES:
        first, second = (np.array([each[kind].f1 for each in system]) for system in systems)
        entry = found["compared"][kind]
        assert entry["value"] == pytest.approx(second.mean())
        expected = intervals((second - first)[:, None], 1000, 1)[0]
        names = ("change", "low", "high", "p_bootstrap")
        assert [entry[name] for name in names] == pytest.approx(expected)
    assert main(["rouge", *words, "--compare", files["other"]]) == 0
    title, heads, row, *_, last = capsys.readouterr().out.splitlines()
    assert title == "12 documents; percent [95 %], stems"
    assert heads.split() == ["F1", "precision", "recall"]
    value, low, high = (found["rouge1"]["f1"][name] for name in ("value", "low", "high"))
    assert f"ROUGE-1  {value:.2f} [{low:.2f}, {high:.2f}]" in row
    entry = found["compared"]["rougeL"]
    assert last.split() == [
        *("ROUGE-L", f"{entry['value']:.2f}", f"{entry['change']:+.2f}"),
        *(f"[{entry['low']:+.2f},", f"{entry['high']:+.2f}]", f"{entry['p_bootstrap']:.3f}"),
    ]


def test_likely_mistakes_are_reported(files, tmp_path, capsys):
    files |= written(tmp_path, plain=lines(["", "<unk-3> sat", *FIRST[2:]]))
    assert main(["rouge", files["plain"], "--text", "--reference", files["reference"]]) == 0
    output = capsys.readouterr().err
    assert "1 of 12 summaries of" in output
    assert "have markers such as <unk-0>: restore them with fairseq-entmax oov restore" in output


def test_the_best_hypothesis_is_read_after_detokenisation(tmp_path):
    text = "S-0\ta .\nH-0\t-0.5\ta @@b .\nD-0\t-0.5\tab.\nD-0\t-0.9\tbc.\nP-0\t-0.1\nH-x\t\n"
    assert hypotheses(written(tmp_path, text=text)["text"], 1) == ["ab."]
    alone = written(tmp_path, text="H-1\t-inf\tb\nH-0\t-2e-05\t\n")["text"]
    assert hypotheses(alone, 2) == ["", "b"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (LOG + "S-0\tonly a source\n", "it is not output of fairseq-generate"),
        ("H-0\t-1\ta\nH-1\t-1\tb\nH-0\t-1\ta\n", "repeats H-0: give the output of one run"),
        ("H-0\t-1\ta\n", "has 1 sentences for 2 references, and sentence 1, .*-multiple 1"),
        ("H-2\t-1\ta\nH-1\t-1\ta\nH-0\t-1\ta\n", "and sentence 2, counted from 0, is in only"),
    ],
)
def test_output_that_does_not_match_the_references_is_refused(tmp_path, text, message):
    with pytest.raises(ValueError, match=message):
        hypotheses(written(tmp_path, text=text)["text"], 2)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["{plain}", "--text", "--reference", "{short}"], "has 11 lines and .* has 12"),
        (["{generated}", "--reference", "{reference}", "--reference", "{short}"], "has 11 lines"),
        (["{generated}", "--reference", "{none}"], "No such file"),
        (["{latin}", "--text", "--reference", "{reference}"], "is not a UTF-8 text"),
        (["{generated}", "--reference", "{reference}", "--bytes=0"], "--bytes got 0: give 1"),
        (["{generated}", "--reference", "{reference}", "--sentences="], "give .* such as '</t>'"),
        (["{generated}", "--reference", "{reference}", "--sentences= "], "give .* such as '</t>'"),
        (
            ["{plain}", "--text", "--reference", "{reference}", "--output={plain}", "--overwrite"],
            "is the generated text, and would be replaced",
        ),
        (["{empty}", "--text", "--reference", "{empty}"], "has no summary"),
    ],
)
def test_arguments_that_do_not_match_give_one_line_errors(files, tmp_path, refused, words, message):
    (tmp_path / "latin").write_bytes(b"ma\xf1ana\n")
    files |= written(tmp_path, empty="")
    names = {**files, "none": tmp_path / "none", "latin": tmp_path / "latin"}
    error = refused(main, ["rouge", *(word.format(**names) for word in words)])
    assert re.search(message, error), error


def test_a_missing_package_gives_a_one_line_error_with_its_extra(files, refused, monkeypatch):
    monkeypatch.setitem(sys.modules, "rouge_score", None)
    words = ["rouge", files["generated"], "--reference", files["reference"]]
    assert "pip install 'fairseq-entmax[summaries]'" in refused(main, words)


def test_intervals_approach_the_normal_ones_and_follow_the_seed():
    scores = np.random.default_rng(0).normal(40, 10, size=(400, 2))
    found = intervals(scores, 20_000, seed=1)
    for column, (value, low, high, _) in zip(scores.T, found, strict=True):
        half = 1.96 * column.std() / math.sqrt(len(column))
        assert value == pytest.approx(column.mean(), rel=1e-12)
        assert (low, high) == pytest.approx((value - half, value + half), abs=0.05 * half)
    first, again, other = (intervals(scores, 100, seed) for seed in (1, 1, 2))
    assert first == again != other


def test_a_difference_has_the_normal_p_value_and_no_difference_has_1():
    noise = np.random.default_rng(0).normal(0, 1, size=(500, 1))
    noise -= noise.mean()
    for errors in (0.5, 1.0, 2.0):
        change = errors * noise.std() / math.sqrt(len(noise))
        ((_, _, _, p),) = intervals(noise + change, 20_000, seed=1)
        assert p == pytest.approx(math.erfc(errors / math.sqrt(2)), abs=0.02)
    same, far = intervals(noise * np.array([0, 0.1]) + np.array([0, 5]), 99, seed=1)
    assert (same[3], far[3]) == (1.0, 0.01)
