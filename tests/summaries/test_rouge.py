"""ROUGE, compared with rouge-score, and with hand calculations beyond that."""

import random

import pytest
from rouge_score import rouge_scorer

from fairseq_entmax.summaries.rouge import TYPES, Rouge, RougeOptions


def test_scores_match_py_rouge():
    # py-rouge 1.1 (it reproduces ROUGE-1.5.5) on the first 75 bytes, stemmed: precision, recall, F1
    references = [
        "cambodian government rejects opposition call for talks abroad",
        "hun sen refuses talks in beijing with his opponents while king sihanouk is ill there and needs care",
    ]
    summary = "cambodian leader rejects opponents demand for talks in beijing while the king is there for care"
    scores = Rouge(RougeOptions(stem=True, max_bytes=75)).score(summary, references)
    expected = [(37.5, 42.8571, 40.0), (13.6364, 15.7895, 14.6341), (33.3333, 38.0952, 35.5556)]
    assert [scores[kind] for kind in TYPES] == [pytest.approx(one, abs=1e-4) for one in expected]


@pytest.mark.parametrize("number", [1, 3])
@pytest.mark.parametrize("separator", [None, "</t>", "<t>"])
def test_scores_match_rouge_score_summed_over_references(separator, number):
    chance = random.Random(number)
    of_l = "rougeL" if separator is None else "rougeLsum"
    own = rouge_scorer.RougeScorer(["rouge1", "rouge2", of_l])
    rouge = Rouge(RougeOptions(stem=False, sentences=separator))
    for _ in range(40):
        texts = [
            [" ".join(chance.choices("abcdef", k=chance.randrange(2, 9))) for _ in range(2)]
            for _ in range(number + 1)
        ]
        tagged = ["".join(f"<t> {one} </t>" for one in text) for text in texts]
        plain = ["\n".join(text) for text in texts]
        scores = rouge.score(*((tagged[0], tagged[1:]) if separator else (plain[0], plain[1:])))
        for kind, name in zip(TYPES, ("rouge1", "rouge2", of_l), strict=True):
            fewer = int(kind == "rouge2")
            lengths = [len(text.split()) - fewer for text in plain[1:]]
            recalls = [own.score(reference, plain[0])[name].recall for reference in plain[1:]]
            matches = sum(a * b for a, b in zip(recalls, lengths, strict=True))
            precision = matches / number / (len(plain[0].split()) - fewer)
            recall = matches / sum(lengths)
            f1 = 2 * precision * recall / (precision + recall) if matches else 0
            expected = [100 * precision, 100 * recall, 100 * f1]
            assert tuple(scores[kind]) == pytest.approx(expected, abs=1e-9)


def test_both_texts_are_cut_after_a_number_of_bytes_even_within_words():
    # "été" is five bytes long; "word" in the reference is cut to "wo"
    rouge = Rouge(RougeOptions(stem=False, max_bytes=8))
    assert rouge.score("été wo zebra", ["abcd wo word"])["rouge1"].recall == 50.0
    assert rouge.score("abcdé wo", ["abcd"])["rouge1"].precision == 50.0
    assert rouge.score("abcd wo word", ["abcd wo word that goes on"])["rouge1"].f1 == 100.0
    # Bytes between sentences do not count
    rouge = Rouge(RougeOptions(stem=False, max_bytes=6, sentences="|"))
    assert rouge.score("abc | def | ghi", ["abc | def"])["rouge1"].precision == 100.0


@pytest.mark.parametrize("empty", ["", "  ", ". , !", "</t>"])
def test_empty_texts_score_zero(empty):
    rouge = Rouge(RougeOptions(sentences="</t>"))
    assert rouge.is_empty(empty)
    for summary, references in ((empty, ["a b"]), ("a b", [empty]), (empty, [empty, empty])):
        for score in rouge.score(summary, references).values():
            assert tuple(score) == (0.0, 0.0, 0.0)
