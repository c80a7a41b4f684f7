"""Copied words and attention, compared with loops over sentences, heads and steps."""

from argparse import Namespace
from dataclasses import replace

import pytest
import torch

from fairseq_entmax.analysis.data.batch import Tables
from fairseq_entmax.analysis.passes.statistics import LayerStatistics
from tests.analysis.test_statistics import END, batch_of, cut, random_weights, table
from tests.analysis.test_tokens import dictionary

# Words repeat; 3 is unknown; some target words are not in the source
SOURCE = [[4, 5, 4, 6, END], [7, 8, 3, 7, 7, 9, END], [5, END]]
TARGET = [[5, 9, 4], [7, 3, 10, 8, 7], []]


def measured(attention, left=False, seed=0):
    """The results of two batches, and their rows: (head, sentence, step, weights of real keys)."""
    statistics, found = LayerStatistics(attention, 3, ["copy_agreement", "relative_position"]), []
    for part in (slice(2), slice(2, 3)):
        batch = batch_of(SOURCE[part], [[END, *row] for row in TARGET[part]], table(), left)
        previous = batch.target.tokens
        batch = replace(batch, target_in_source=previous.masked_fill(previous < 4, -1))
        weights = random_weights(batch, attention, seed=seed)
        statistics.update(weights, batch)
        found += cut(weights, batch, attention)
    rows = [
        (head, number, step, row)
        for number, heads in enumerate(found)
        for head, of_head in enumerate(heads)
        for step, row in enumerate(of_head)
    ]
    return statistics.results(), rows


@pytest.mark.parametrize("left", [False, True], ids=["right", "left"])
def test_agreement_is_over_steps_that_produce_a_word_of_the_source(left):
    results, rows = measured("cross", left)
    chances = []
    for head, given in enumerate(results["heads"]):
        cases = []
        for own, number, step, row in rows:
            word = (TARGET[number] + [END])[step]
            places = [n for n, other in enumerate(SOURCE[number]) if other == word and word > 3]
            if own == head and places:
                weight = sum(row[place] for place in places)
                cases.append((row.index(max(row)) in places, weight > 0, weight))
                chances.append(len(places) / len(row))
        means = [sum(column) / len(cases) for column in zip(*cases, strict=True)]
        expected = dict(zip(("largest", "support", "weight"), means, strict=True))
        assert given["copy_agreement"] == pytest.approx(expected, abs=1e-6)
    assert results["copy_chance"] == pytest.approx(sum(chances) / len(chances))
    assert len({head["copy_agreement"]["weight"] for head in results["heads"]}) == 3


@pytest.mark.parametrize("left", [False, True], ids=["right", "left"])
@pytest.mark.parametrize("attention", ["cross", "encoder-self"])
def test_neighbours_are_adjacent_tokens_or_in_cross_attention_adjacent_words(left, attention):
    results, rows = measured(attention, left, seed=3)
    for head, given in enumerate(results["heads"]):
        hits = []
        for own, number, step, row in rows:
            if own != head:
                continue
            place = row.index(max(row))
            step_words = [None, *TARGET[number], None, None][step : step + 3]
            around = {word for word in step_words if word is not None and word > 3}
            is_cross = attention == "cross"
            hits.append(SOURCE[number][place] in around if is_cross else abs(place - step) == 1)
        assert 0 < sum(hits) < len(hits)
        assert given["relative_position"] == pytest.approx(sum(hits) / len(hits))
        assert (given["copy_agreement"] is not None) == (attention == "cross")


def test_words_of_two_dictionaries_are_matched_by_symbol():
    source, target = dictionary("a", "b", "c"), dictionary("c", "d", "a")
    cfg = Namespace(source_lang="x", target_lang="y")
    task = Namespace(source_dictionary=source, target_dictionary=target, cfg=cfg)
    rows = torch.tensor([[4, 5, END]]), torch.tensor([[END, 6, 4, 5, 3]])
    net_input = {"src_tokens": rows[0], "prev_output_tokens": rows[1]}
    batch = Tables(task, torch.device("cpu")).batch({"net_input": net_input})
    assert batch.target_in_source.tolist() == [[-1, source.index("a"), source.index("c"), -1, -1]]
