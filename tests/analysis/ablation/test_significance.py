"""Tests of significance against closed forms, and against sacreBLEU called directly."""

import os
import sys

import pytest
import sacrebleu
from sacrebleu.metrics import BLEU
from sacrebleu.significance import PairedTest

from fairseq_entmax.analysis.ablation.significance import (
    bleu_metric,
    holm,
    paired_bootstrap,
)

REFERENCES = [f"the {word} man went up to the house of {word} ." for word in "abcdefgh"]
GOOD = [text.replace("went", "goes") if n % 3 else text for n, text in enumerate(REFERENCES)]
BAD = [text.replace("up to the", "in") if n % 2 else text for n, text in enumerate(GOOD)]


def test_the_bootstrap_is_that_of_sacrebleu(monkeypatch):
    compared = paired_bootstrap([GOOD, BAD], REFERENCES, bleu_metric(None, "en"), 200, 7)
    monkeypatch.setenv("SACREBLEU_SEED", "7")
    named = [("good", GOOD), ("bad", BAD)]
    signatures, results = PairedTest(
        named, {"BLEU": BLEU()}, [REFERENCES], test_type="bs", n_samples=200
    )()
    assert compared.p_values == [results["BLEU"][1].p_value]
    assert compared.signature == str(signatures["BLEU"])
    assert "seed:7" in compared.signature
    assert compared.scores == [
        sacrebleu.corpus_bleu(system, [REFERENCES]).score for system in (GOOD, BAD)
    ]


@pytest.mark.parametrize("before", [None, "99"])
def test_the_bootstrap_leaves_the_environment_as_it_was(monkeypatch, before):
    monkeypatch.delenv("SACREBLEU_SEED", raising=False)
    if before is not None:
        monkeypatch.setenv("SACREBLEU_SEED", before)
    paired_bootstrap([GOOD, BAD], REFERENCES, bleu_metric(None, "en"), 10, 7)
    assert os.environ.get("SACREBLEU_SEED") == before


def test_identical_translations_have_a_p_of_one_where_sacrebleu_says_the_opposite():
    metric = bleu_metric(None, "en")
    assert paired_bootstrap([GOOD, list(GOOD)], REFERENCES, metric, 200, 1).p_values == [1.0]
    _, results = PairedTest(
        [("a", GOOD), ("b", GOOD)], {"BLEU": BLEU()}, [REFERENCES], test_type="bs", n_samples=200
    )()
    assert results["BLEU"][1].p_value == 1 / 201


def test_the_tokenizer_follows_the_language_unless_it_is_named():
    cases = [
        (None, "en", "13a"),
        (None, "zh", "zh"),
        ("none", "zh", "none"),
        ("char", "en", "char"),
    ]
    for tokenize, language, expected in cases:
        assert bleu_metric(tokenize, language).tokenizer.signature() == expected


def test_a_tokenizer_that_is_not_installed_is_one_sentence(monkeypatch):
    monkeypatch.setitem(sys.modules, "MeCab", None)
    monkeypatch.delitem(sys.modules, "sacrebleu.tokenizers.tokenizer_ja_mecab", raising=False)
    with pytest.raises(ValueError, match="choose another with --sacrebleu-tokenize") as refusal:
        bleu_metric(None, "ja")
    assert "\n" not in str(refusal.value)


def test_holms_correction_of_an_example_worked_by_hand():
    """Sorted .005 .01 .03 .04, times 4 3 2 1: .02 .03 .06 .04, and never falling: .06 last."""
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02], rel=1e-12)
