"""The command rouge: what it prints and writes, and what it refuses."""

import json
import random
import re
import sys

import pytest
import scipy.stats

from fairseq_entmax.cli import main
from fairseq_entmax.summaries.rouge import TYPES, Rouge, RougeOptions
from tests.summaries.texts import printed, refused, written

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
    generated = printed({n: ("s", "t", text) for n, text in enumerate(FIRST)}, order)
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


def test_means_are_of_the_documents_joined_by_number(files, capsys):
    found = document(capsys, files["generated"], "--reference", files["reference"])
    scores = [Rouge().score(*pair) for pair in zip(FIRST, [[r] for r in REFERENCES], strict=True)]
    for kind in TYPES:
        for name in ("precision", "recall", "f1"):
            mean = sum(getattr(score[kind], name) for score in scores) / len(scores)
            assert found[kind][name]["value"] == pytest.approx(mean, rel=1e-12)
            assert found[kind][name]["low"] < mean < found[kind][name]["high"]
    assert (found["format"], found["version"]) == ("fairseq-entmax-rouge", 1)
    assert (found["documents"], found["empty_summaries"]) == (12, 0)
    assert found["compared"] is None


def test_a_plain_text_has_the_same_scores(files, capsys):
    reference = ["--reference", files["reference"]]
    generated = document(capsys, files["generated"], *reference)
    plain = document(capsys, files["plain"], *reference, "--text")
    assert {**plain, "generated": None} == {**generated, "generated": None}


def test_the_options_are_those_of_the_scores(files, capsys):
    options = ["--bytes=20", "--no-stem", "--sentences=sat", "--bootstrap=50", "--seed=4"]
    references = ["--reference", files["reference"], "--reference", files["more"]]
    found = document(capsys, files["generated"], *references, *options)
    rouge = Rouge(RougeOptions(stem=False, max_bytes=20, sentences="sat"))
    pairs = zip(FIRST, zip(REFERENCES, MORE, strict=True), strict=True)
    mean = sum(rouge.score(text, both)["rougeL"].recall for text, both in pairs) / 12
    assert found["rougeL"]["recall"]["value"] == pytest.approx(mean, rel=1e-12)
    assert found["settings"] == {
        "stem": False,
        "bytes": 20,
        "sentences": "sat",
        "statistic": "recall",
        "bootstrap": 50,
        "seed": 4,
        "level": 0.95,
    }


def test_two_systems_are_held_against_each_other_document_by_document(files, tmp_path, capsys):
    words = [files["plain"], "--text", "--reference", files["reference"]]
    per_document = tmp_path / "documents.jsonl"
    options = ["--compare", files["other"], "--per-document", per_document]
    found = document(capsys, *words, *options)["compared"]
    rows = [json.loads(line) for line in per_document.read_text().splitlines()]
    assert [row["document"] for row in rows] == list(range(12))
    for kind in TYPES:
        first = [row[kind]["f1"] for row in rows]
        second = [row["compared"][kind]["f1"] for row in rows]
        assert first[3] == pytest.approx(Rouge().score(FIRST[3], [REFERENCES[3]])[kind].f1)
        assert found[kind]["value"] == pytest.approx(sum(second) / 12)
        assert found[kind]["change"] == pytest.approx((sum(second) - sum(first)) / 12)
        assert found[kind]["p_t_test"] == pytest.approx(scipy.stats.ttest_rel(first, second).pvalue)
        assert found[kind]["low"] < found[kind]["change"] < found[kind]["high"]
        assert 0 < found[kind]["p_bootstrap"] <= 1


def test_the_table_has_each_score_with_its_interval(files, capsys):
    words = ["rouge", files["plain"], "--text", "--reference", files["reference"]]
    assert main([*words, "--compare", files["other"]]) == 0
    title, heads, *rows = capsys.readouterr().out.splitlines()
    assert title == "12 documents; percent [95 %], stems"
    assert heads.split() == ["F1", "precision", "recall"]
    found = document(capsys, *words[1:], "--compare", files["other"])
    first = found["rouge1"]["f1"]
    cells = re.findall(r"[-+\d.]+", rows[0].replace("ROUGE-1", ""))
    assert cells[:3] == [f"{first[name]:.2f}" for name in ("value", "low", "high")]
    assert rows[3].startswith("compared with")
    assert rows[7].split()[1] == f"{found['compared']['rougeL']['value']:.2f}"


def test_what_is_written_is_what_is_printed_and_is_not_replaced_unasked(files, tmp_path, capsys):
    output = tmp_path / "scores.json"
    words = [files["plain"], "--text", "--reference", files["reference"], "--output", output]
    found = document(capsys, *words)
    assert json.loads(output.read_text()) == found
    assert "which exists: give another name, or --overwrite" in refused(capsys, "rouge", *words)
    assert document(capsys, *words, "--overwrite") == found


def test_what_is_likely_not_meant_is_told(files, tmp_path, capsys):
    texts = ["", "<unk-3> sat", *FIRST[2:]]
    tagged = [f"<t> {text} </t>" for text in REFERENCES]
    files |= written(tmp_path, plain=lines(texts), reference=lines([*tagged[:-1], ""]))
    words = [files["plain"], "--text", "--reference", files["reference"]]
    assert main(["rouge", *words]) == 0
    told = capsys.readouterr().err
    assert "1 of 12 summaries of" in told
    assert "1 summaries of" in told
    assert "restore them with fairseq-entmax oov restore" in told
    assert "1 of 12 references are empty" in told
    assert "give --sentences </t>" in told
    assert main(["rouge", *words, "--sentences", "<q>"]) == 0
    assert "no reference has '<q>' of --sentences" in capsys.readouterr().err
    assert document(capsys, *words)["empty_summaries"] == 1


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["{generated}", "--reference", "{short}"], "--reference .* has 11 lines, and .* 11, coun"),
        (["{plain}", "--reference", "{reference}"], "no output of fairseq-generate"),
        (["{plain}", "--text", "--reference", "{short}"], "has 11 lines and .* has 12"),
        (["{generated}", "--reference", "{none}"], "there is no file"),
        (["{generated}", "--reference", "{reference}", "--bytes=0"], "--bytes got 0: give 1"),
        (["{generated}", "--reference", "{reference}", "--bootstrap=0"], "--bootstrap got 0"),
        (["{generated}", "--reference", "{reference}", "--sentences= "], "--sentences got ' '"),
        (
            ["{plain}", "--text", "--reference", "{reference}", "--compare", "{short}"],
            "has 12 lines and .* has 11",
        ),
        (
            ["{generated}", "--reference", "{reference}", "--output={reference}", "--overwrite"],
            "is the reference .*, and would be replaced",
        ),
        (
            ["{generated}", "--reference", "{reference}", "--output={o}", "--per-document={o}"],
            "are both .*: give two names",
        ),
        (["{empty}", "--text", "--reference", "{empty}"], "has no summary"),
    ],
)
def test_what_does_not_belong_together_is_one_sentence(files, tmp_path, capsys, words, message):
    files |= written(tmp_path, empty="")
    names = {**files, "none": tmp_path / "none", "o": tmp_path / "o"}
    error = refused(capsys, "rouge", *(word.format(**names) for word in words))
    assert re.search(message, error), error
    assert not (tmp_path / "o").exists()


@pytest.mark.parametrize(
    ("module", "options", "extra"),
    [("rouge_score", [], "summaries"), ("scipy.stats", ["--compare=x"], "analysis")],
)
def test_a_missing_package_is_one_sentence_that_names_its_extra(
    files, capsys, monkeypatch, module, options, extra
):
    monkeypatch.setitem(sys.modules, module, None)
    words = ["rouge", files["generated"], "--reference", files["reference"], *options]
    assert f"pip install 'fairseq-entmax[{extra}]'" in refused(capsys, *words)
