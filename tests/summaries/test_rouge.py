"""ROUGE against rouge-score itself, and py-rouge's numbers."""

import random

import pytest
from rouge_score import rouge_scorer

from fairseq_entmax.summaries.rouge import TYPES, Rouge, RougeOptions

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


@pytest.mark.parametrize(("stem", "limit", "number"), PY_ROUGE)
def test_scores_are_those_of_py_rouge(stem, limit, number):
    rouge = Rouge(RougeOptions(stem, limit))
    for place, expected in enumerate(PY_ROUGE[stem, limit, number]):
        scores = rouge.score(SUMMARIES[place], REFERENCES[place][:number])
        assert [scores[kind] for kind in TYPES] == [pytest.approx(e, abs=1e-4) for e in expected]


@pytest.mark.parametrize("number", [1, 3])
@pytest.mark.parametrize("separator", [None, "</t>", "<t>"])
def test_matches_and_lengths_are_those_of_rouge_score_summed_over_references(separator, number):
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


def test_the_cut_is_after_bytes_of_both_and_goes_through_words():
    # "été" are five bytes; of the reference, "word" is cut to "wo"
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
