"""Results of an ablation: significance, ROUGE with markers, and what scores depend on."""

import os
import sys
from dataclasses import dataclass
from types import SimpleNamespace

import pytest
import sacrebleu
from fairseq.dataclass.configs import GenerationConfig
from fairseq.tasks.translation import TranslationConfig
from omegaconf import OmegaConf
from sacrebleu.metrics import BLEU
from sacrebleu.significance import PairedTest
from scipy.stats import ttest_rel

from fairseq_entmax.analysis.ablation.removal import SentenceScores
from fairseq_entmax.analysis.ablation.results import bleu_metric, bleu_test, compare, holm
from fairseq_entmax.analysis.data.generation import search_options
from fairseq_entmax.paired_tests import paired_t_test
from fairseq_entmax.summaries.rouge import Rouge

REFERENCES = [f"the {word} man went up to the house of {word} ." for word in "abcdefgh"]
GOOD = [text.replace("went", "goes") if n % 3 else text for n, text in enumerate(REFERENCES)]
BAD = [text.replace("up to the", "in") if n % 2 else text for n, text in enumerate(GOOD)]
SCORER = SimpleNamespace(references=["<unk-1> sat", "a <unk-0>", "cats sat"], target_tokens=[3] * 3)


def by_sacrebleu(systems):
    named = [(str(number), system) for number, system in enumerate(systems)]
    return PairedTest(named, {"BLEU": BLEU()}, [REFERENCES], test_type="ar", n_samples=200)()


@pytest.mark.parametrize("before", [None, "99"])
def test_the_test_of_bleu_matches_sacrebleu_and_restores_the_environment(monkeypatch, before):
    monkeypatch.delenv("SACREBLEU_SEED", raising=False)
    if before is not None:
        monkeypatch.setenv("SACREBLEU_SEED", before)
    metric = bleu_metric(None, "en")
    found, p_values, signature = bleu_test([GOOD, BAD], REFERENCES, metric, 200, 7)
    assert os.environ.get("SACREBLEU_SEED") == before
    monkeypatch.setenv("SACREBLEU_SEED", "7")
    signatures, results = by_sacrebleu([GOOD, BAD])
    assert p_values == [results["BLEU"][1].p_value]
    assert signature == str(signatures["BLEU"])
    assert "seed:7" in signature
    scores = [sacrebleu.corpus_bleu(system, [REFERENCES]).score for system in (GOOD, BAD)]
    assert found == scores


def test_identical_translations_have_p_1_unlike_in_sacrebleu():
    metric = bleu_metric(None, "en")
    assert bleu_test([GOOD, list(GOOD)], REFERENCES, metric, 200, 1)[1] == [1.0]
    _, results = by_sacrebleu([GOOD, GOOD])
    assert results["BLEU"][1].p_value == 1 / 201


@pytest.mark.parametrize(
    ("tokenize", "language", "expected"),
    [(None, "en", "13a"), (None, "zh", "zh"), ("none", "zh", "none"), ("char", "en", "char")],
)
def test_the_tokenizer_follows_the_language_unless_it_is_named(tokenize, language, expected):
    assert bleu_metric(tokenize, language).tokenizer.signature() == expected


def test_a_missing_tokenizer_gives_a_one_line_error(monkeypatch):
    monkeypatch.setitem(sys.modules, "MeCab", None)
    monkeypatch.delitem(sys.modules, "sacrebleu.tokenizers.tokenizer_ja_mecab", raising=False)
    with pytest.raises(ValueError, match="choose another with --sacrebleu-tokenize") as refusal:
        bleu_metric(None, "ja")
    assert "\n" not in str(refusal.value)


def test_holms_correction_matches_a_hand_calculation():
    """Sorted: .005 .01 .03 .04; times 4 3 2 1: .02 .03 .06 .04; made nondecreasing: .06 last."""
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02], rel=1e-12)
    assert holm([0.5, 0.9]) == [1.0, 1.0]
    assert holm([]) == []


def by_rouge(*systems):
    """Compare texts of the unchanged model, and of models without one head or another."""
    names = [(), ("cross:0.0",), ("cross:0.1",)]
    texts = zip(names, systems, strict=False)
    finished = {name: SentenceScores(None, list(own)) for name, own in texts}
    return compare(finished, SCORER, None, 10, 1, Rouge())


def test_each_marker_counts_as_one_distinct_word():
    same = by_rouge(*[("<unk-1> sat", "a <unk-0>", "cats sat")] * 2)
    assert same["unchanged"]["rouge1"] == same["unchanged"]["rouge2"] == pytest.approx(100)
    assert same["removals"][0]["rouge1"]["p"] == 1.0  # scipy gives NaN for equal scores
    other = by_rouge(*[("<unk-11> sat", "a <unk-1>", "cats sat")] * 2)["unchanged"]
    assert other["rouge1"] == pytest.approx((50 + 50 + 100) / 3)


def test_without_a_loss_the_removal_with_the_lowest_score_comes_first():
    systems = {(): GOOD, ("cross:0.0",): GOOD, ("cross:0.1",): BAD}
    finished = {name: SentenceScores(None, texts) for name, texts in systems.items()}
    scorer = SimpleNamespace(references=REFERENCES)
    for how in ((bleu_metric(None, "en"), 10, 1), (None, 10, 1, Rouge())):
        first, _ = compare(finished, scorer, *how)["removals"]
        assert first["heads"] == ["cross:0.1"]


def test_a_single_sentence_has_no_test():
    with pytest.raises(ValueError, match="needs at least 2 sentences, not 1"):
        paired_t_test([1.0], [2.0])


def test_texts_without_a_target_count_in_no_loss():
    scorer = SimpleNamespace(target_tokens=[2, 0, 4], references=None)
    losses = {(): [3.0, 0.0, 6.0], ("cross:0.0",): [5.0, 0.0, 8.0]}
    finished = {name: SentenceScores(nll, None) for name, nll in losses.items()}
    (removal,) = compare(finished, scorer, None, 10, 1, None)["removals"]
    p = ttest_rel([2.5, 2.0], [1.5, 1.5]).pvalue
    assert removal["loss"] == pytest.approx({"value": 13 / 6, "change": 4 / 6, "p": p, "p_holm": p})


@dataclass
class OtherSearch(TranslationConfig):
    length_penalty: str = "average"


@pytest.mark.parametrize(
    ("task", "options", "expected"),
    [
        (TranslationConfig(data="x", eval_bleu=True), {"lenpen": 0.9}, {"beam": 5, "lenpen": 0.9}),
        (OtherSearch(data="x", length_penalty="wu"), {}, {"beam": 5, "length_penalty": "wu"}),
    ],
)
def test_scores_depend_on_the_beam_other_options_and_the_tasks_search(task, options, expected):
    config = OmegaConf.structured(GenerationConfig(**options))
    found = search_options(config, SimpleNamespace(cfg=OmegaConf.structured(task)))
    assert found | expected == found
    assert "eval_bleu" not in found
