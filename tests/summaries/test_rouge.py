"""ROUGE against a brute force of its definitions, rouge-score itself, and py-rouge's numbers."""

import random
import sys

import pytest
from rouge_score import rouge_scorer

from fairseq_entmax.summaries.rouge import TYPES, Rouge, RougeOptions
from tests.summaries import rouge_reference

# Of py-rouge 1.1, which reproduces ROUGE-1.5.5: Rouge(metrics=["rouge-n", "rouge-l"], max_n=2,
# limit_length=…, length_limit=75, apply_avg=True, alpha=0.5, stemming=…), with words apart at
# spaces: precision, recall and F1
SUMMARIES = [
    "police killed the gunman in the town hall . he had fired at the crowd",
    "cambodian leader rejects opponents demand for talks in beijing while the king is there for "
    "care",
    "two planes collided over the airport ; nobody was hurt in the town hall",
]
REFERENCES = [
    [
        "the gunman was shot by police in the hall . the crowd had fled before he fired",
        "police shoot gunman at town hall",
    ],
    [
        "cambodian government rejects opposition call for talks abroad",
        "hun sen refuses talks in beijing with his opponents while king sihanouk is ill there and "
        "needs care",
    ],
    ["two planes crash near the airport , nobody hurt", "planes collide over airport"],
]
PY_ROUGE = {
    # stem, bytes, references: of each document, rouge1, rouge2, rougeL
    (False, None, 1): [
        [(78.5714, 68.75, 73.3333), (23.0769, 20.0, 21.4286), (50.0, 43.75, 46.6667)],
        [(25.0, 50.0, 33.3333), (6.6667, 14.2857, 9.0909), (25.0, 50.0, 33.3333)],
        [(46.1538, 75.0, 57.1429), (25.0, 42.8571, 31.5789), (46.1538, 75.0, 57.1429)],
    ],
    (False, 75, 1): [
        [(71.4286, 62.5, 66.6667), (23.0769, 20.0, 21.4286), (50.0, 43.75, 46.6667)],
        [(33.3333, 50.0, 40.0), (9.0909, 14.2857, 11.1111), (33.3333, 50.0, 40.0)],
        [(46.1538, 75.0, 57.1429), (25.0, 42.8571, 31.5789), (46.1538, 75.0, 57.1429)],
    ],
    (True, 75, 2): [
        [(53.5714, 68.1818, 60.0), (15.3846, 20.0, 17.3913), (39.2857, 50.0, 44.0)],
        [(37.5, 42.8571, 40.0), (13.6364, 15.7895, 14.6341), (33.3333, 38.0952, 35.5556)],
        [(38.4615, 83.3333, 52.6316), (20.8333, 50.0, 29.4118), (38.4615, 83.3333, 52.6316)],
    ],
}


def text_of(sentences, separator):
    return f" {separator} ".join(" ".join(words) for words in sentences)


def random_sentences(source, letters="abcde"):
    return [
        [source.choice(letters) for _ in range(source.randrange(1, 8))]
        for _ in range(source.randrange(1, 4))
    ]


@pytest.mark.parametrize(("stem", "limit", "number"), PY_ROUGE)
def test_scores_are_those_of_py_rouge(stem, limit, number):
    rouge = Rouge(RougeOptions(stem, limit))
    for place, expected in enumerate(PY_ROUGE[stem, limit, number]):
        scores = rouge.score(SUMMARIES[place], REFERENCES[place][:number])
        assert [scores[kind] for kind in TYPES] == [pytest.approx(e, abs=1e-4) for e in expected]


@pytest.mark.parametrize("references", [1, 3])
@pytest.mark.parametrize("separator", [None, "</t>"])
def test_scores_are_those_of_the_definition(references, separator):
    source = random.Random(references)
    rouge = Rouge(RougeOptions(stem=False, sentences=separator))
    for _ in range(60):
        summary, *others = (random_sentences(source) for _ in range(references + 1))
        texts = [text_of(sentences, separator or "") for sentences in (summary, *others)]
        if separator is None:
            summary, *others = (
                [rouge_reference.joined(sentences)] for sentences in (summary, *others)
            )
        expected = rouge_reference.rouge(summary, others)
        scores = rouge.score(texts[0], texts[1:])
        for kind in TYPES:
            assert tuple(scores[kind]) == pytest.approx(expected[kind], abs=1e-9)


def test_with_one_reference_scores_are_rouge_scores_own():
    own = rouge_scorer.RougeScorer(["rouge1", "rouge2", "rougeL"], use_stemmer=True)
    rouge = Rouge()
    for summary, references in zip(SUMMARIES, REFERENCES, strict=True):
        expected, scores = own.score(references[0], summary), rouge.score(summary, references[:1])
        for kind in TYPES:
            assert tuple(scores[kind]) == pytest.approx(
                [100 * x for x in expected[kind]], rel=1e-12
            )


def test_with_sentences_rouge_l_is_rouge_scores_of_the_summary():
    own = rouge_scorer.RougeScorer(["rougeLsum"], use_stemmer=True)
    summary, reference = (text.replace(" . ", "\n") for text in (SUMMARIES[0], REFERENCES[0][0]))
    expected = own.score(reference, summary)["rougeLsum"]
    texts = [text.replace("\n", " </t> <t> ") for text in (summary, reference)]
    tagged = [f"<t> {text} </t>" for text in texts]
    for separator in ("</t>", "<t>"):
        scores = Rouge(RougeOptions(sentences=separator)).score(tagged[0], tagged[1:])
        assert tuple(scores["rougeL"]) == pytest.approx([100 * x for x in expected], rel=1e-12)


def test_the_cut_is_after_bytes_of_both_and_goes_through_words():
    # "été" are five bytes; of the reference, "word" is cut to "wo"
    rouge = Rouge(RougeOptions(stem=False, max_bytes=8))
    assert rouge.score("été wo zebra", ["abcd wo word"])["rouge1"].recall == 50.0
    assert rouge.score("abcdé wo", ["abcd"])["rouge1"].precision == 50.0
    assert rouge.score("abcd wo word", ["abcd wo word that goes on"])["rouge1"].f1 == 100.0


def test_bytes_between_sentences_do_not_count():
    rouge = Rouge(RougeOptions(stem=False, max_bytes=6, sentences="|"))
    assert rouge.score("abc | def | ghi", ["abc | def"])["rouge1"].precision == 100.0


def test_several_references_count_by_their_lengths_and_not_the_best_alone():
    scores = Rouge(RougeOptions(stem=False)).score("a b", ["a b", "c d e f g h"])
    # 2 of 2 + 6 words, where a mean over references would be 50 and the best 100
    assert scores["rouge1"].recall == 25.0
    assert scores["rouge1"].precision == 50.0


@pytest.mark.parametrize("empty", ["", "  ", ". , !", "</t>"])
def test_empty_texts_score_zero(empty):
    rouge = Rouge(RougeOptions(sentences="</t>"))
    assert rouge.is_empty(empty)
    for summary, references in ((empty, ["a b"]), ("a b", [empty]), (empty, [empty, empty])):
        for score in rouge.score(summary, references).values():
            assert tuple(score) == (0.0, 0.0, 0.0)


def test_without_rouge_score_one_sentence_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "rouge_score", None)
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'fairseq-entmax\[summaries\]'"):
        Rouge()
