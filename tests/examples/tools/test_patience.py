"""examples/tools/patience.py: where a training was stopped, its patience goes on as if it was not."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

import pytest
from fairseq_cli import train
from patience import go_on_counting

LOSSES = [6.0, 5.0, 5.5, 4.9, 4.9, 5.2, 4.8, 4.9, 5.0, 5.1, 4.7]


def log(folder: Path, losses: list[float]) -> Path:
    lines = (
        f"2030-01-01 00:00:00 | INFO | valid | epoch {epoch:03d} | valid on 'valid' subset | "
        f"loss {loss} | nll_loss 3 | num_updates {100 * epoch}"
        for epoch, loss in enumerate(losses, 1)
    )
    path = folder / "train.log"
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


def stops_at(patience: int, losses: list[float]) -> int | None:
    """The index of the validation that ends a training, by fairseq itself."""
    checkpoint = Namespace(patience=patience, maximize_best_checkpoint_metric=False)
    for index, loss in enumerate(losses):
        if train.should_stop_early(Namespace(checkpoint=checkpoint), loss):
            return index
    return None


@pytest.fixture(autouse=True)
def _fresh_counter() -> None:
    vars(train.should_stop_early).clear()


@pytest.mark.parametrize("patience", [1, 2, 3])
@pytest.mark.parametrize("cut", range(1, len(LOSSES)))
def test_a_training_ends_where_it_would_have_without_a_stop(
    patience: int, cut: int, tmp_path: Path
) -> None:
    whole = stops_at(patience, LOSSES)
    if whole is not None and whole < cut:
        return  # it had ended before
    vars(train.should_stop_early).clear()
    go_on_counting(train.should_stop_early, log(tmp_path, LOSSES[:cut]), 100 * cut)
    rest = stops_at(patience, LOSSES[cut:])
    assert (None if rest is None else rest + cut) == whole


def test_a_validation_behind_the_point_that_it_goes_on_from_is_not_counted(tmp_path: Path) -> None:
    path = log(tmp_path, [5.0, 5.1, 5.2])
    for updates, since in ((300, 2), (200, 1)):
        go_on_counting(train.should_stop_early, path, updates)
        assert vars(train.should_stop_early) == {"best": 5.0, "num_runs": since}


def test_without_an_earlier_validation_the_counter_is_left_as_it_is(tmp_path: Path) -> None:
    go_on_counting(train.should_stop_early, tmp_path / "train.log", 100)
    go_on_counting(train.should_stop_early, log(tmp_path, [5.0]), 0)
    assert not vars(train.should_stop_early)
