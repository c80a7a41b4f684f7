import json

import pytest
import torch
from scipy.stats import spearmanr

from fairseq_entmax.analysis.head_order import as_text, of_checkpoint, rank_correlation, spearman

INITIAL = {"encoder-self": {"0": [1.1, 1.2, 1.3], "1": [1.4, 1.5, 1.6]}, "cross": {"0": [1.7, 1.8]}}
END = {"encoder-self": {"0": [1.3, 1.2, 1.1], "1": [1.4, 1.5, 1.6]}, "cross": {"0": [1.0, 1.8]}}


def lines(*values):
    return [{"update": 10 * number, "values": value} for number, value in enumerate(values)]


def write_record(folder, record):
    written = ({"update": line["update"], "tv": line["values"]} for line in record)
    (folder / "tv.jsonl").write_text("".join(json.dumps(line) + "\n" for line in written))


def moved(values, by=0.01):
    return {
        attention: {layer: [value + by for value in heads] for layer, heads in layers.items()}
        for attention, layers in values.items()
    }


@pytest.mark.parametrize("seed", range(20))
def test_correlation_matches_scipy_including_ties(seed):
    generator = torch.Generator().manual_seed(seed)
    first = torch.randint(5, (9,), generator=generator).tolist()
    second = torch.rand(9, generator=generator).tolist()
    assert spearman(first, second) == pytest.approx(spearmanr(first, second).statistic, abs=1e-12)
    assert spearman(second, first) == spearman(first, second)


def test_first_and_last_line_are_compared_for_the_model_and_each_attention():
    between = moved(INITIAL, 0.3)
    result = rank_correlation(lines(INITIAL, between, moved(END)))
    heads = [1.1, 1.2, 1.3, 1.4, 1.5, 1.6, 1.7, 1.8], [1.3, 1.2, 1.1, 1.4, 1.5, 1.6, 1.0, 1.8]
    assert (result.first_update, result.last_update, result.heads) == (0, 20, 8)
    assert result.of_model == pytest.approx(spearmanr(*heads).statistic)
    of_encoder = spearmanr(heads[0][:6], heads[1][:6]).statistic
    assert result.of_attentions == {"encoder-self": pytest.approx(of_encoder), "cross": None}


def test_heads_that_do_not_learn_are_left_out():
    start = {"encoder-self": {"0": [1.1, 1.5, None, 1.3, 1.2]}}
    end = {"encoder-self": {"0": [1.4, 1.5, None, 1.3, 1.6]}}
    back = {"encoder-self": {"0": [1.4, 1.5, None, 1.9, 1.6]}}
    result = rank_correlation(lines(start, back, end))
    assert result.start == {"encoder-self": [1.1, 1.3, 1.2]}
    assert result.of_model == pytest.approx(-0.5)


def test_rising_heads_count_from_the_update_after_softmax():
    courses = [1.0] * 4 + [None], [1.0004, 1.0001, 1.0003, 1.0002, None], [1.4, 1.1, 1.3, 1.2, None]
    record = lines(*({"cross": {"0": own}} for own in courses))
    result = rank_correlation(record)
    assert (result.first_update, result.of_model) == (10, pytest.approx(1.0))
    assert as_text(result).endswith("; the heads largely keep their initial order")
    assert "keep" not in as_text(result._replace(end={"cross": [1.1, 1.4, 1.2, 1.3]}))  # reversed


def test_a_value_that_layers_share_counts_once():
    start = {"encoder-self": {"0": [1.1], "1": [1.1]}, "cross": {"0": [1.2], "1": [1.2]}}
    end = {"encoder-self": {"0": [1.3], "1": [1.3]}, "cross": {"0": [1.0], "1": [1.0]}}
    result = rank_correlation(lines(start, end))
    assert result.start == {"encoder-self": [1.1], "cross": [1.2]}
    assert "at least 3 heads must learn it (here: 2)" in as_text(result)


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ([[1.5, 1.5, 1.5], [1.4, 1.6, 1.3]], "all 3 have the same initial or final value"),
        ([[1.1, 1.2, 1.3], [2.0, 2.0, 2.0]], "all 3 have the same initial or final value"),
        ([[1.1, 1.2, 1.3]], "one line, of update 0"),
        ([[1.1, 1.2, 1.3]] * 2, "heads must learn it (here: 0)"),
    ],
)
def test_the_text_explains_a_missing_correlation(values, reason):
    own = lines(*({"cross": {"0": own}} for own in values))
    assert reason in as_text(rank_correlation(own))


def test_a_checkpoint_is_compared_at_its_own_update_and_only_with_its_own_record(tmp_path):
    record = lines(INITIAL, END, moved(END))
    write_record(tmp_path, record)
    result = of_checkpoint(str(tmp_path / "checkpoint.pt"), "tv", 10, END)
    assert (result.name, result.last_update) == ("tv", 10)
    assert result == rank_correlation(record[:2], "tv")
    # Between two lines, its own values come last
    between = dict(reversed(moved(END).items()))
    result = of_checkpoint(str(tmp_path / "checkpoint.pt"), "tv", 15, between)
    last = {"update": 15, "values": moved(END)}
    assert result == rank_correlation([*record[:2], last], "tv")
    for present, message in (
        (moved(END), "other values at update 10: it is from another training"),
        ({"cross": {"0": [1.0]}}, "has other heads: perhaps it is from before pruning"),
    ):
        with pytest.raises(ValueError, match=message):
            of_checkpoint(str(tmp_path / "checkpoint.pt"), "tv", 10, present)


def test_layers_and_heads_whose_value_is_fixed_but_rose_are_left_out(tmp_path):
    start, end = (
        {**one, "decoder-self": {"0": [fixed] * 4}} for one, fixed in ((INITIAL, 1.0), (END, 1.5))
    )
    record = lines(start, end)
    write_record(tmp_path, record)
    result = of_checkpoint(str(tmp_path / "checkpoint.pt"), "tv", 10, END)
    assert result == rank_correlation(lines(INITIAL, END), "tv")
    learned = {**END, "cross": {"0": [None, 1.8]}}
    result = of_checkpoint(str(tmp_path / "checkpoint.pt"), "tv", 10, learned)
    assert result.start == {"encoder-self": [1.1, 1.3]}


def test_negligible_differences_are_ties():
    start = {"cross": {"0": [1.1, 1.2, 1.3, 1.4, 1.5, 1.6]}}
    # Around 1.0005, where rounding would separate them
    end = {"cross": {"0": [1.00055, 1.00054, 1.00053, 1.00046, 1.00045, 1.4]}}
    result = rank_correlation(lines(start, end))
    ties = [1, 1, 1, 1, 1, 1.4]
    expected = spearmanr(start["cross"]["0"], ties).statistic
    assert result.of_model == pytest.approx(expected)
    assert result.together() == (5, 1.00045)
    assert as_text(result).endswith("; 5 of 6 heads end at the same value, 1")
