"""How the processes of a training share a batch, and which pairs are then too long."""

import numpy
import pytest
from batches import HEADER, MAGIC, left_out, longest_sides, main, share, updates
from messages import UsageError

from tests import support


def write_index(path, lengths):
    """Write an index in fairseq's mmap format."""
    path.parent.mkdir(exist_ok=True)
    sizes = numpy.array(lengths, dtype="<i4")
    path.write_bytes(HEADER.pack(MAGIC, 1, 4, len(sizes)) + sizes.tobytes() + bytes(8 * len(sizes)))


@pytest.mark.parametrize("batch", [1250, 8192, 16000])
@pytest.mark.parametrize("most", [40, 625, 4096, 16000])
@pytest.mark.parametrize("world", [1, 2, 7, 21])
def test_processes_share_almost_the_whole_batch_in_as_few_turns_as_fit(batch, most, world):
    update_freq, max_tokens = share(batch, most, world)
    assert 0 < max_tokens <= most
    turns = world * update_freq
    assert batch - turns < turns * max_tokens <= batch
    assert (update_freq - 1) * world * most < batch


def test_a_batch_with_less_than_a_token_for_each_process_is_refused():
    with pytest.raises(UsageError, match="makes 9 processes: a batch of 8 tokens is too small"):
        share(8, 100, 9)


def test_up_to_one_in_a_hundred_pairs_may_be_too_long():
    lengths = numpy.full(200, 10)
    of_two = (2, 1, 50, lengths, "training pairs")
    assert left_out(*of_two) is None
    lengths[:2] = 51
    found = "2 process(es) take 50 tokens at a time, and 2 of 200 training pairs are longer"
    assert left_out(*of_two) == f"{found}: they are left out"
    lengths[2] = 51
    with pytest.raises(UsageError, match=r"3 of 200 .* longer: use fewer processes$"):
        left_out(*of_two)
    with pytest.raises(UsageError, match=r"use fewer processes or a larger --most-tokens$"):
        left_out(2, 2, *of_two[2:])
    with pytest.raises(UsageError, match=r"use larger batches$"):
        left_out(1, 1, *of_two[2:])


def test_updates_of_an_epoch_are_as_many_as_fairseq_makes_batches():
    sides = [support.random_sentences(range(2, 40), seed=seed) * 10 for seed in (1, 2)]
    sides[1].sort(key=lambda sentence: int(sentence[0]))
    pairs = support.pair_dataset(*sides)
    lengths = numpy.array([[*map(len, side)] for side in sides])
    order = pairs.ordered_indices()
    batches = pairs.batch_by_size(order, max_tokens=130)
    assert updates(130, lengths.max(axis=0)[order]) == len(batches) > 50


def test_a_pair_counts_by_its_longer_side_and_classified_pairs_by_the_sum(tmp_path):
    sides = {"es-en.es": [3, 9, 4], "es-en.en": [5, 1, 4]}
    for name, lengths in sides.items():
        write_index(tmp_path / "a" / f"train.{name}.idx", lengths)
    assert longest_sides(tmp_path / "a", "train", ["es", "en"]).tolist() == [5, 4, 9]
    for name, lengths in (("input0", [3, 9, 4]), ("input1", [5, 1, 4]), ("label", [2, 2, 2])):
        write_index(tmp_path / name / "train.idx", lengths)
    assert longest_sides(tmp_path, "train", ["input0", "label"]).tolist() == [10, 12, 10]


def test_an_index_that_is_cut_short_is_named(tmp_path, refusal):
    for side in ("es", "en"):
        (tmp_path / f"train.es-en.{side}.idx").write_bytes(MAGIC)
    command = [str(tmp_path), "es", "en", "--batch-tokens", "10", "--most-tokens", "10"]
    assert "train.es-en.es.idx" in refusal(main, command)


def test_the_longest_validation_sentence_always_fits(tmp_path, capsys):
    for side in ("es", "en"):
        write_index(tmp_path / f"train.es-en.{side}.idx", [5, 9])
        write_index(tmp_path / f"valid.es-en.{side}.idx", [70])
    main([str(tmp_path), "es", "en", "--batch-tokens", "64", "--most-tokens", "20"])
    assert capsys.readouterr().out == "1 4 16 70 1\n"


def test_pairs_that_are_left_out_make_no_updates(tmp_path, capsys):
    for side in ("es", "en"):
        write_index(tmp_path / f"train.es-en.{side}.idx", [10] * 200 + [60])
        write_index(tmp_path / f"valid.es-en.{side}.idx", [10])
    main([str(tmp_path), "es", "en", "--batch-tokens", "50", "--most-tokens", "50"])
    assert capsys.readouterr().out.splitlines()[0] == "1 1 50 50 40"


def test_one_text_is_cut_into_blocks_of_which_the_last_may_be_short(tmp_path, capsys, refusal):
    write_index(tmp_path / "train.idx", [5, 9, 8])
    write_index(tmp_path / "valid.idx", [9])
    command = [str(tmp_path), "--block-tokens", "8", "--batch-tokens", "32", "--most-tokens"]
    main([*command, "8"])
    assert capsys.readouterr().out == "1 4 8 8 1\n"
    assert "2 of 3 blocks of the training text are longer" in refusal(main, [*command, "7"])
