"""examples/tools/training_logs.py: epochs read from logs, also of interrupted trainings."""

import pytest
from training_logs import read_course, read_search

STAMP = "2030-01-01 00:00:00 | INFO |"
BEGIN = f"{STAMP} fairseq.trainer | begin training epoch"
INNER = f"{STAMP} train_inner | epoch 001:     50 / 100 loss=99, num_updates=50, lr=0.1"
EARLY = f"{STAMP} fairseq_cli.train | early stop since valid performance hasn't improved for last 2 runs"


def valid(epoch, updates, loss):
    return (
        f"{STAMP} valid | epoch {epoch:03d} | valid on 'valid' subset | loss {loss} | nll_loss "
        f"{loss - 1} | ppl 9 | alpha_cross_mean 1.5 | num_updates {updates} | best_loss {loss}"
    )


def log(folder, *lines):
    path = folder / "train.log"
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


FIRST, SECOND = valid(1, 100, 6.5), valid(2, 200, 5.5)


@pytest.mark.parametrize(
    ("lines", "epochs"),
    [
        ([f"{BEGIN} 1", INNER, FIRST, SECOND], [(1, 100, 5.5), (2, 200, 4.5)]),
        # the last result counts for an epoch that was trained twice
        ([FIRST, SECOND, f"{BEGIN} 2", valid(2, 200, 5.25)], [(1, 100, 5.5), (2, 200, 4.25)]),
        # results after the point from which a training resumed are dropped
        ([FIRST, SECOND, f"{BEGIN} 1", valid(1, 100, 6.0)], [(1, 100, 5.0)]),
        # a truncated line
        ([FIRST, f"{STAMP} valid | epoch 002 | valid on 'va"], [(1, 100, 5.5)]),
    ],
)
def test_each_epoch_has_its_loss_and_updates(lines, epochs, tmp_path):
    course = read_course(log(tmp_path, *lines))
    assert course.epochs == tuple(epochs)
    assert course.updates == epochs[-1][1]


def test_an_end_by_patience_is_distinguished_from_the_full_length(tmp_path):
    assert read_course(log(tmp_path, FIRST, EARLY)).by_patience
    # It was resumed with more patience
    assert not read_course(log(tmp_path, FIRST, EARLY, f"{BEGIN} 2", SECOND)).by_patience


def inner(updates, encoder, cross):
    return (
        f"{STAMP} train_inner | epoch 001:     {updates} / 1000 loss=9.5, heads_open={encoder + cross}, "
        f"num_updates={updates}, lr=0.1, heads_expected_cross={cross}.5, heads_open_encoder_self={encoder}, "
        f"heads_open_cross={cross}, wall=23"
    )


def opened(path):
    points = read_search(path, 50)
    assert all(set(heads) == {"encoder-self", "cross"} for _, heads in points)
    return [(updates, heads["encoder-self"], heads["cross"]) for updates, heads in points]


def test_open_heads_are_read_over_the_course_of_a_search(tmp_path):
    end = f"{valid(1, 120, 6.5)} | heads_open 4 | heads_open_encoder_self 3 | heads_open_cross 1"
    path = log(tmp_path, INNER, inner(50, 24, 24), inner(100, 9, 12), end)
    assert opened(path) == [(50, 24, 24), (100, 9, 12), (120, 3, 1)]
    # It was interrupted, and logged some updates twice
    path = log(tmp_path, inner(50, 24, 24), inner(100, 9, 12), inner(50, 24, 23), inner(100, 8, 11))
    assert opened(path) == [(50, 24, 23), (100, 8, 11)]
    # A long course is thinned, but keeps its first and last point
    path = log(tmp_path, *(inner(10 * number, 24, 24) for number in range(1, 200)))
    updates = [updates for updates, _, _ in opened(path)]
    assert (len(updates), updates[0], updates[-1]) == (50, 10, 1990)
    assert updates == sorted(set(updates))
