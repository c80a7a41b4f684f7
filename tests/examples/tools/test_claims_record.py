"""examples/tools/claims_record.py: what is kept of a run."""

from __future__ import annotations

import json
import lzma
from pathlib import Path

import pytest
from claims_record import curve, packed, trained_by, translation, without_places, write_run
from sacrebleu.metrics import BLEU
from training_logs import Course, Epoch

REFERENCES = ["the cat sat on the mat today", "a b c d e", "no word is right here"]
HYPOTHESES = ["the cat sat on a mat today", "a b c d e", "nothing that fits at all"]


def test_bleu_can_be_made_of_the_statistics_of_any_sample_of_sentences() -> None:
    kept = translation(HYPOTHESES, REFERENCES)
    for sample in ([0, 1, 2], [0, 0, 1], [2, 1, 1]):
        columns = [sum(row) for row in zip(*(kept["sentences"][i] for i in sample), strict=True)]
        made = BLEU.compute_bleu(columns[2:6], columns[6:], columns[0], columns[1]).score
        direct = BLEU().corpus_score(
            [HYPOTHESES[i] for i in sample], [[REFERENCES[i] for i in sample]]
        )
        assert made == pytest.approx(direct.score, abs=1e-9)


def test_scores_are_those_of_sacrebleu_with_their_signatures() -> None:
    kept = translation(HYPOTHESES, REFERENCES)
    assert kept["bleu"] == round(BLEU().corpus_score(HYPOTHESES, [REFERENCES]).score, 4)
    assert "tok:13a" in kept["bleu_signature"]
    assert "nc:6" in kept["chrf_signature"]


def test_updates_and_epochs_of_phases_count_on() -> None:
    search = Course((Epoch(1, 100, 5.0, 4.0, 6.0), Epoch(2, 150, 4.5, 3.5, None)), False)
    recovery = Course((Epoch(1, 80, 4.0, 3.0, 4.1),), False)
    points = curve([search, recovery])
    assert [(p["epoch"], p["updates"]) for p in points] == [(1, 100), (2, 150), (3, 230)]
    assert points[2]["train_loss"] == 4.1
    assert points[1]["train_loss"] is None


def test_no_path_of_the_machine_is_kept() -> None:
    made = {"models": [{"checkpoint": "/a/b/runs/x/best.pt"}], "data": {"path": "/a/b/data-bin"}}
    kept = without_places(made, Path("/a/b"))
    assert kept == {"models": [{"checkpoint": "runs/x/best.pt"}], "data": {"path": "data-bin"}}


def test_each_code_that_trained_a_run_is_listed_once(tmp_path: Path) -> None:
    (tmp_path / "search").mkdir()
    codes = [("a", False), ("a", False), ("b", True), ("a", False)]
    for number, (commit, changed) in enumerate(codes):
        folder = tmp_path / ("search" if number == 0 else "recovery")
        folder.mkdir(exist_ok=True)
        content = {"cpu_seconds": 1, "commit": commit, "changed": changed}
        (folder / f"{number}.json").write_text(json.dumps(content))
    assert trained_by([tmp_path / "search", tmp_path / "recovery"]) == [
        {"commit": "a", "changed": False},
        {"commit": "b", "changed": True},
    ]


def test_the_same_run_gives_the_same_bytes(tmp_path: Path) -> None:
    one, other = {"a": 1, "b": [2.5, "α"]}, {"b": [2.5, "α"], "a": 1}
    assert packed(one) == packed(other)
    write_run(tmp_path / "corpus" / "run.json.xz", one)
    written = (tmp_path / "corpus" / "run.json.xz").read_bytes()
    assert json.loads(lzma.decompress(written)) == one


def test_a_file_that_is_too_large_is_not_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("claims_record.MOST_BYTES", 50)
    with pytest.raises(ValueError, match="a file of the record has 50 at most"):
        write_run(tmp_path / "run.json.xz", {"numbers": list(range(1000))})
    assert list(tmp_path.iterdir()) == []
