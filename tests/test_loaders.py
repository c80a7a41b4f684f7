"""Processes that load batches, and what is said when one is lost."""

import os

import pytest
import torch
from torch.utils.data import DataLoader, Dataset, get_worker_info

from fairseq_entmax import compat, fairseq_changes
from fairseq_entmax.loaders import Batches, LoaderLostError
from tests.commands import as_command

SENTENCE = r"a process that loads batches \(--num-workers\) ended .* load with --num-workers 0"


class Items(Dataset):
    """So many tensors; one of them ends the process that loads it, or raises."""

    def __init__(self, end):
        self.end = end

    def __len__(self):
        return 40

    def __getitem__(self, number):
        if number == 25 and get_worker_info() is not None:
            self.end()
        return torch.full((100,), number)


def of_worker(end):
    return Batches(DataLoader(Items(end), num_workers=1))


def leave():
    os._exit(3)


def fail():
    raise IndexError("the real error")


def test_a_process_that_ended_is_named_with_the_remedy_wherever_torch_meets_its_absence():
    with pytest.raises(LoaderLostError, match=SENTENCE):
        list(of_worker(leave))


def test_what_a_process_raised_itself_comes_through():
    with pytest.raises(IndexError, match="the real error"):
        list(of_worker(fail))


def test_batches_are_those_of_the_loader_and_as_many():
    loader = DataLoader(Items(fail), batch_size=8)
    assert len(Batches(loader)) == len(loader) == 5
    assert Batches(loader).batch_size == 8
    for got, expected in zip(Batches(loader), loader, strict=True):
        assert torch.equal(got, expected)


def test_an_end_of_file_elsewhere_is_not_taken_for_a_lost_process():
    def ends():
        yield 1
        raise EOFError("of a file")

    with pytest.raises(EOFError, match="of a file"):
        list(Batches(ends()))


@pytest.mark.parametrize("error", [EOFError, ConnectionResetError])
def test_a_command_of_fairseq_ends_with_that_sentence(error, monkeypatch, capsys):
    loader = DataLoader(Items(leave), num_workers=0)

    def broken(*_):
        raise error  # as of a connection to a process that is gone

    def run(*_):
        monkeypatch.setattr(Items, "__getitem__", broken)
        list(loader)

    as_command(monkeypatch)
    with pytest.raises(SystemExit) as stop:
        fairseq_changes._end_without_traceback(run)
    assert stop.value.code == compat.STOPPED
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("fairseq-train: error: a process that loads batches (--num-workers)")
