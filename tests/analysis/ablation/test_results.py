"""Results of an ablation from scores that are put together by hand."""

from types import SimpleNamespace

import pytest

from fairseq_entmax.analysis.ablation.removal import SentenceScores
from fairseq_entmax.analysis.ablation.results import compare
from fairseq_entmax.summaries.rouge import Rouge

SCORER = SimpleNamespace(references=["<unk-1> sat", "a <unk-0>", "cats sat"], target_tokens=[3] * 3)


def unigrams(*texts):
    """ROUGE-1 of the unchanged model, which made these texts."""
    scores = SentenceScores(None, list(texts))
    return compare({(): scores, ("cross:0.0",): scores}, SCORER, None, 10, 1, Rouge())["unchanged"]


def test_a_marker_is_one_word_and_another_marker_is_another_word():
    same = unigrams("<unk-1> sat", "a <unk-0>", "cats sat")
    assert same["rouge1"] == same["rouge2"] == pytest.approx(100)
    other = unigrams("<unk-11> sat", "a <unk-1>", "cats sat")
    assert other["rouge1"] == pytest.approx((50 + 50 + 100) / 3)


def test_without_rouge_its_names_are_not_there():
    losses = SentenceScores([1.0, 2.0, 3.0], None)
    found = compare({(): losses, ("cross:0.0",): losses}, SCORER, None, 10, 1)
    assert found["unchanged"] == {"loss": pytest.approx(6 / 9), "bleu": None}
    assert found["removals"][0].keys() == {"heads", "loss", "bleu"}
