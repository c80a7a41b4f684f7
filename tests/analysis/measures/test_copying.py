"""What is said and what is looked at, against loops over sentences, heads and steps."""

from argparse import Namespace

import pytest
import torch
from fairseq.data import Dictionary

from fairseq_entmax.analysis.batch import Batch, Side
from fairseq_entmax.analysis.collect import Tables
from fairseq_entmax.analysis.statistics import LayerStatistics

PAD, END = 1, 2
# Words repeat; 3 is unknown; some of the target are not in the source
SOURCE = [[4, 5, 4, 6, END], [7, 8, 3, 7, 7, 9, END], [5, END]]
TARGET = [[5, 9, 4], [7, 3, 10, 8, 7], []]
KEYS = 7


def padded(rows, left):
    width = max(map(len, rows))
    return torch.tensor(
        [[PAD] * (width - len(r)) + r if left else r + [PAD] * (width - len(r)) for r in rows]
    )


def batch_of(source=SOURCE, target=TARGET, left=False):
    previous = padded([[END, *row] for row in target], left)
    said = previous.masked_fill(previous < 4, -1)
    return Batch(
        Side.of(padded(source, True), PAD, END, None),
        Side.of(previous, PAD, END, None),
        said=said,
    )


def random_weights(batch, attention, seed=0):
    queries, keys = batch.sides(attention)
    generator = torch.Generator().manual_seed(seed)
    shape = (len(SOURCE), 3, queries.tokens.size(1), keys.tokens.size(1))
    raw = torch.rand(shape, generator=generator) * (torch.rand(shape, generator=generator) < 0.6)
    raw = (raw + 1e-3 * torch.eye(shape[2], shape[3]).flip(1)) * keys.real[:, None, None]
    # Of an empty row all on the last key, which is real
    raw[..., -1] += raw.sum(-1) == 0
    return raw / raw.sum(-1, keepdim=True)


def rows(batch, weights, attention, head):
    """(sentence, step, weights of the real keys) of every real query."""
    queries, keys = batch.sides(attention)
    for number, of_sentence in enumerate(weights[:, head].tolist()):
        real = [
            row for row, is_real in zip(of_sentence, queries.real[number], strict=True) if is_real
        ]
        for step, row in enumerate(real):
            known = zip(row, keys.real[number].tolist(), strict=True)
            yield number, step, [weight for weight, is_real in known if is_real]


def measured(batch, weights, attention):
    statistics = LayerStatistics(attention, 3, ["copy_agreement", "relative_position"])
    for number in range(len(SOURCE)):  # a sentence at a time, and the last two together
        part = slice(number, number + 1) if number == 0 else slice(1, 3)
        if number < 2:
            own = Batch(
                *(
                    Side.of(side.tokens[part], PAD, END, None)
                    for side in (batch.source, batch.target)
                ),
                said=batch.said[part],
            )
            statistics.update(weights[part], own)
    return statistics.results()


def expected_agreement(batch, weights, head):
    largest, support, weight, chance = [], [], [], []
    for number, step, row in rows(batch, weights, "cross", head):
        word = (TARGET[number] + [END])[step]
        places = [n for n, other in enumerate(SOURCE[number]) if other == word and word > 3]
        if places:
            largest.append(row.index(max(row)) in places)
            support.append(any(row[place] > 0 for place in places))
            weight.append(sum(row[place] for place in places))
            chance.append(len(places) / len(row))
    return {
        name: sum(values) / len(values)
        for name, values in zip(
            ("largest", "support", "weight", "chance"),
            (largest, support, weight, chance),
            strict=True,
        )
    }


@pytest.mark.parametrize("left", [False, True], ids=["right", "left"])
def test_agreement_is_over_the_steps_that_say_a_word_of_the_source(left):
    batch = batch_of(left=left)
    weights = random_weights(batch, "cross")
    results = measured(batch, weights, "cross")
    for head in range(3):
        expected = expected_agreement(batch, weights, head)
        assert results["copy_chance"] == pytest.approx(expected.pop("chance"))
        assert results["heads"][head]["copy_agreement"] == pytest.approx(expected)
    assert len({head["copy_agreement"]["weight"] for head in results["heads"]}) == 3


@pytest.mark.parametrize("left", [False, True], ids=["right", "left"])
def test_neighbours_in_cross_are_the_words_said_last_now_and_next(left):
    batch = batch_of(left=left)
    weights = random_weights(batch, "cross", seed=3)
    results = measured(batch, weights, "cross")
    for head in range(3):
        hits = []
        for number, step, row in rows(batch, weights, "cross", head):
            said = [None, *TARGET[number], None, None]
            around = {word for word in said[step : step + 3] if word is not None and word > 3}
            hits.append(SOURCE[number][row.index(max(row))] in around)
        assert results["heads"][head]["relative_position"] == pytest.approx(sum(hits) / len(hits))


def test_neighbours_in_the_encoder_are_the_tokens_before_and_behind():
    batch = batch_of()
    weights = random_weights(batch, "encoder-self", seed=4)
    results = measured(batch, weights, "encoder-self")
    for head in range(3):
        hits = [
            abs(row.index(max(row)) - step) == 1
            for _, step, row in rows(batch, weights, "encoder-self", head)
        ]
        assert 0 < sum(hits) < len(hits)
        assert results["heads"][head]["relative_position"] == pytest.approx(sum(hits) / len(hits))
        assert results["heads"][head]["copy_agreement"] is None


def test_two_dictionaries_have_words_in_common_by_their_symbols():
    source, target = Dictionary(), Dictionary()
    for word in ("a", "b", "c"):
        source.add_symbol(word)
    for word in ("c", "d", "a"):
        target.add_symbol(word)
    cfg = Namespace(source_lang="x", target_lang="y")
    task = Namespace(source_dictionary=source, target_dictionary=target, cfg=cfg)
    rows = torch.tensor([[4, 5, END]]), torch.tensor([[END, 6, 4, 5, 3]])
    net_input = {"src_tokens": rows[0], "prev_output_tokens": rows[1]}
    batch = Tables(task, torch.device("cpu")).batch({"net_input": net_input})
    assert batch.said.tolist() == [[-1, source.index("a"), source.index("c"), -1, -1]]
