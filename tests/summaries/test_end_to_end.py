"""From texts to scores, through fairseq's own commands."""

import json
import random

import pytest

from fairseq_entmax.cli import main
from fairseq_entmax.summaries.rouge import Rouge
from tests import commands

KNOWN = ["the", "a", "cat", "dog", "saw", "met", "in", "at", "park", "house"]
SIZES = {"train": 60, "test": 21}
LONGEST = 10


def document(source):
    """Known words with up to four names, of which the summary has the first and the last."""
    words = [source.choice(KNOWN) for _ in range(source.randrange(3, 10))]
    for _ in range(source.randrange(1, 5)):
        words.insert(source.randrange(len(words) + 1), f"name{source.randrange(10_000)}")
    names = [word for word in words if word.startswith("name")]
    return words, ["the", names[0], "met", names[-1]]


@pytest.mark.slow
def test_marked_texts_are_binarised_generated_restored_and_scored(tmp_path, capsys):
    source = random.Random(3)
    texts = {split: [document(source) for _ in range(size)] for split, size in SIZES.items()}
    for split, pairs in texts.items():
        for side, name in enumerate(("doc", "sum")):
            lines = "".join(f"{' '.join(pair[side])}\n" for pair in pairs)
            (tmp_path / f"{split}.{name}").write_text(lines)
    train = [str(tmp_path / f"train.{name}") for name in ("doc", "sum")]
    dictionary = str(tmp_path / "dict.txt")
    words = ["oov", "vocabulary", "--text", *train, "--words=11", "--markers=3"]
    assert main([*words, "--output", dictionary]) == 0
    for split in SIZES:
        names = [tmp_path / f"{split}.{name}" for name in ("doc", "sum")]
        outputs = [tmp_path / f"{split}.marked.{name}" for name in ("doc", "sum")]
        words = ["oov", "mark", "--source", names[0], "--target", names[1], "--vocab", dictionary]
        words += ["--output-source", outputs[0], "--output-target", outputs[1]]
        assert main([*map(str, words), f"--cut-source={LONGEST}"]) == 0
    commands.run(
        *("fairseq-preprocess", "--source-lang=doc", "--target-lang=sum", "--joined-dictionary"),
        *(f"--srcdict={dictionary}", f"--trainpref={tmp_path}/train.marked"),
        *(f"--testpref={tmp_path}/test.marked", f"--destdir={tmp_path}/bin"),
    )
    assert (tmp_path / "bin" / "dict.doc.txt").read_text() == (tmp_path / "dict.txt").read_text()
    commands.train(
        tmp_path, tmp_path / "model", "--max-update=3", "--disable-validation", arch="transformer"
    )
    printed = commands.generate(
        tmp_path, tmp_path / "model" / "checkpoint_last.pt", "--batch-size=4", "--nbest=2"
    ).stdout
    (tmp_path / "printed").write_text(printed)
    order = [line.partition("\t")[0] for line in printed.splitlines() if line.startswith("S-")]
    assert order != [f"S-{number}" for number in range(SIZES["test"])]

    words = ["oov", "restore", "printed", "--source", "test.doc", "--vocab", "dict.txt"]
    words = [str(tmp_path / word) if (tmp_path / word).is_file() else word for word in words]
    words.append(f"--cut-source={LONGEST}")
    assert main([*words, "--output", str(tmp_path / "restored")]) == 0
    restored = {}
    for line in (tmp_path / "restored").read_text().splitlines():
        name, _, text = line.partition("\t")
        restored.setdefault(name, text)  # the best of two hypotheses
    for number, (words, summary) in enumerate(texts["test"]):
        kept = words[:LONGEST]
        seen = [word for word in dict.fromkeys(kept) if word.startswith("name")]
        expected = [word if word in (*KNOWN, *seen[:3]) else "<unk>" for word in kept]
        assert restored[f"S-{number}"] == " ".join(expected)
        copied = {*KNOWN, "met", *seen[:3]}
        expected = [word if word in copied else "<<unk>>" for word in summary]
        assert restored[f"T-{number}"] == " ".join(expected)

    capsys.readouterr()
    reference = ["--reference", str(tmp_path / "test.sum"), "--json"]
    assert main(["rouge", str(tmp_path / "restored"), *reference]) == 0
    found = json.loads(capsys.readouterr().out)["rouge1"]["f1"]["value"]
    scores = [
        Rouge().score(restored[f"H-{number}"].split("\t")[1], [" ".join(summary)])["rouge1"].f1
        for number, (_, summary) in enumerate(texts["test"])
    ]
    assert found == pytest.approx(sum(scores) / len(scores), rel=1e-12)
