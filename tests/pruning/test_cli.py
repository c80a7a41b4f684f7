"""The command ``fairseq-entmax prune``: what it prints, and that no error leaves anything behind."""

import argparse
import os
import re
from pathlib import Path

import pytest
import torch

from fairseq_entmax import checkpoints
from fairseq_entmax.cli import main
from fairseq_entmax.models.config import add_arguments
from fairseq_entmax.pruning import prune_state
from tests.pruning.test_surgery import (
    logits,
    rebuilt,
    shapes,
    state_of,
    trained,
    with_budget,
    without,
)
from tests.support import build_model

GATED = {"attn_mapping": "entmax", "head_gates": "encoder-self,cross"}


@pytest.fixture
def folder(tmp_path):
    """A checkpoint with gates and one without, and a file that is none."""
    torch.save(state_of(trained(**GATED), **GATED), tmp_path / "gated.pt")
    torch.save(state_of(trained()), tmp_path / "plain.pt")
    (tmp_path / "notes.txt").write_text("no checkpoint\n")
    (tmp_path / "sub").mkdir()
    return tmp_path


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def prune(folder, *arguments):
    """The exit status of the command, run on files of the folder."""
    return main(["prune", *(argument.replace("@", f"{folder}/") for argument in arguments)])


def load(folder, name):
    return checkpoints.load_checkpoint(str(folder / name))


def test_the_command_writes_a_smaller_checkpoint_and_prints_what_changed(folder, capsys):
    assert prune(folder, "@gated.pt", "--output", "@small.pt") == 0
    printed, error = capsys.readouterr()
    assert error == ""
    pruned, report = prune_state(load(folder, "gated.pt"), "gated.pt")
    small = load(folder, "small.pt")
    assert shapes(small["model"]) == shapes(pruned["model"])
    cells = [re.split(" {2,}", line) for line in printed.splitlines()[1:-1]]
    rows = {name: values for name, *values in cells}
    for attention, after in report.heads_after.items():
        expected = ["8", str(sum(after)), ",".join(map(str, after))]
        assert rows[f"heads {attention}"] == expected
    assert rows["parameters"] == [
        f"{report.parameters_before:,}",
        f"{report.parameters_after:,}",
    ]
    assert rows["bytes of weights"] == [
        f"{report.weight_bytes_before:,}",
        f"{report.weight_bytes_after:,}",
    ]
    sizes = [f"{(folder / name).stat().st_size:,}" for name in ("gated.pt", "small.pt")]
    assert rows["bytes of the file"] == sizes
    last = printed.splitlines()[-1]
    assert last.startswith(f"{len(report.undecided)} heads had a gate strictly between 0 and 1")
    for head, gate in report.undecided.items():
        assert f"{head} {gate:.3f}" in last


def test_where_all_gates_are_decided_no_undecided_heads_are_printed(folder, capsys):
    model = build_model(**GATED)
    torch.save(state_of(model, **GATED), folder / "decided.pt")
    assert prune(folder, "@decided.pt", "--output", "@small.pt") == 0
    assert "strictly" not in capsys.readouterr().out


def test_named_heads_are_taken_out_of_a_checkpoint_without_gates(folder):
    arguments = ["--heads", "encoder-self:0.1;cross:1.0,1.3"]
    assert prune(folder, "@plain.pt", "--output", "@small.pt", *arguments) == 0
    heads = [("encoder-self", 0, 1), ("cross", 1, 0), ("cross", 1, 3)]
    torch.testing.assert_close(
        logits(rebuilt(load(folder, "small.pt"))),
        logits(without(trained(), heads)),
        atol=1e-5,
        rtol=0,
    )


@pytest.mark.parametrize("name", ["gated.pt", "plain.pt", "small.pt"])
def test_the_printed_options_build_a_model_of_the_shapes_of_the_pruned_one(folder, name, capsys):
    prune(folder, "@gated.pt", "--output", "@small.pt")
    capsys.readouterr()
    assert prune(folder, f"@{name}", "--print-config") == 0
    printed = capsys.readouterr().out
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    parsed = vars(parser.parse_args(printed.split()))
    new = build_model(**{key: value for key, value in parsed.items() if value is not None})
    # of the checkpoint with gates: closed heads are left out
    expected = load(folder, "small.pt" if name == "gated.pt" else name)
    assert shapes(new.state_dict()) == shapes(expected["model"])
    assert printed.count("\n") == 1


def test_with_an_output_the_options_are_those_of_the_output_and_stand_alone(folder, capsys):
    arguments = ["--output", "@small.pt", "--heads", "cross:1.0", "--print-config"]
    assert prune(folder, "@plain.pt", *arguments) == 0
    printed, error = capsys.readouterr()
    assert printed == (
        "--encoder-self-attn-heads 4,4 --decoder-self-attn-heads 4,4 --cross-attn-heads 4,3\n"
    )
    assert "parameters" in error


def test_printing_the_options_alone_writes_nothing(folder, capsys):
    before = contents(folder)
    assert prune(folder, "@gated.pt", "--print-config") == 0
    assert contents(folder) == before
    assert capsys.readouterr().out.startswith("--encoder-self-attn-heads ")


def test_an_existing_output_is_replaced_when_asked_for(folder):
    assert prune(folder, "@gated.pt", "--output", "@notes.txt", "--overwrite") == 0
    assert "model" in load(folder, "notes.txt")
    assert prune(folder, "@gated.pt", "--output", "@gated.pt", "--overwrite") == 0
    assert not [name for name in load(folder, "gated.pt")["model"] if ".gate." in name]
    assert {path.name for path in folder.iterdir()} == {"gated.pt", "plain.pt", "notes.txt", "sub"}


def test_a_checkpoint_that_is_replaced_by_its_own_pruning_is_counted_before(folder, capsys):
    before = (folder / "gated.pt").stat().st_size
    assert prune(folder, "@gated.pt", "--output", "@gated.pt", "--overwrite") == 0
    after = (folder / "gated.pt").stat().st_size
    (line,) = [x for x in capsys.readouterr().out.splitlines() if x.startswith("bytes of the file")]
    assert line.split()[-2:] == [f"{before:,}", f"{after:,}"]
    assert before != after


def test_a_training_that_ended_before_its_decision_is_pruned_when_asked_for(folder, capsys):
    state = with_budget(trained(**GATED), **GATED)
    torch.save(state, folder / "early.pt")
    assert prune(folder, "@early.pt", "--output", "@small.pt") == 1
    assert "--undecided" in capsys.readouterr().err
    assert not (folder / "small.pt").exists()
    assert prune(folder, "@early.pt", "--output", "@small.pt", "--undecided") == 0
    assert (folder / "small.pt").exists()


@pytest.mark.parametrize("share", range(1, 10))
def test_a_checkpoint_that_is_cut_short_is_named_as_damaged(folder, share, capsys):
    whole = (folder / "gated.pt").read_bytes()
    (folder / "cut.pt").write_bytes(whole[: len(whole) * share // 10])
    assert prune(folder, "@cut.pt", "--print-config") == 1
    error = capsys.readouterr().err
    assert f"{folder}/cut.pt" in error
    assert "damaged" in error


def test_the_output_can_be_named_without_a_folder(folder, monkeypatch):
    monkeypatch.chdir(folder)
    assert main(["prune", "gated.pt", "--output", "small.pt"]) == 0
    assert (folder / "small.pt").exists()


OUTPUT = ["--output", "@small.pt"]


@pytest.mark.parametrize(
    ("arguments", "messages"),
    [
        (["@none.pt", *OUTPUT], ["there is no checkpoint", "none.pt"]),
        (["@none.pt", "--print-config"], ["there is no checkpoint", "none.pt"]),
        (["@plain.pt", *OUTPUT], ["plain.pt has no head gates", "--heads 'encoder-self:0.3,0.5;"]),
        (["@gated.pt", "--output", "@plain.pt"], ["plain.pt', which exists", "--overwrite"]),
        (["@gated.pt", "--output", "@gated.pt"], ["gated.pt', which exists", "--overwrite"]),
        (["@gated.pt", "--output", "@sub"], ["sub': give the name of a file"]),
        (["@gated.pt", "--output", "@sub", "--overwrite"], ["sub': give the name of a file"]),
        (["@gated.pt", "--output", "@new/small.pt"], ["there is no folder", "new"]),
        (["@notes.txt", *OUTPUT], ["notes.txt", "damaged"]),
        (["@notes.txt", "--print-config"], ["notes.txt", "damaged"]),
        (["@sub", *OUTPUT], ["sub is not a checkpoint"]),
        (["@gated.pt", "--output", ""], ["--output got ''"]),
        (["@gated.pt", *OUTPUT, "--heads", "cross:0.9"], ["gated.pt has no head cross:0.9"]),
        (["@gated.pt", *OUTPUT, "--heads", "cross:7.0"], ["gated.pt has no head cross:7.0"]),
        (["@gated.pt", *OUTPUT, "--heads", "cross"], ["--heads: 'cross' names no heads"]),
        (["@gated.pt", *OUTPUT, "--heads", ""], ["--heads: '' names no heads"]),
        (["@gated.pt"], ["give --output FILE", "--print-config"]),
        (["@gated.pt", "--heads", "cross:0.1"], ["--heads and --overwrite need --output FILE"]),
        (["@gated.pt", "--overwrite"], ["--heads and --overwrite need --output FILE"]),
        (
            ["@gated.pt", "--print-config", "--heads", "cross:0.1"],
            ["--heads and --overwrite need --output FILE"],
        ),
    ],
)
def test_an_error_is_one_sentence_and_leaves_everything_as_it_was(
    folder, arguments, messages, capsys
):
    before = contents(folder)
    assert prune(folder, *arguments) == 1
    printed, error = capsys.readouterr()
    assert printed == ""
    assert error.startswith("fairseq-entmax prune: ")
    assert error.count("\n") == 1
    for message in messages:
        assert message in error
    assert contents(folder) == before
    assert list((folder / "sub").iterdir()) == []


def test_what_is_no_ordinary_file_is_not_replaced(folder, tmp_path, capsys):
    # A pipe, which is refused as a device is, and of which no other process knows
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    assert prune(folder, "@gated.pt", "--output", str(pipe), "--overwrite") == 1
    assert "pipe', which is no ordinary file" in capsys.readouterr().err
    assert pipe.is_fifo()
    assert list(tmp_path.glob("pipe*")) == [pipe]


class Killed(BaseException):
    """Nothing catches it by mistake."""


@pytest.mark.parametrize("name", ["small.pt", "plain.pt"])
def test_an_end_in_the_middle_of_writing_leaves_everything_as_it_was(folder, name, monkeypatch):
    before = contents(folder)
    written = []

    def save(state, file):
        file.write(b"the first half")
        file.flush()
        written.extend(set(contents(folder)) - set(before))
        raise Killed

    monkeypatch.setattr(torch, "save", save)
    with pytest.raises(Killed):
        prune(folder, "@gated.pt", "--output", f"@{name}", "--overwrite")
    # under another name, which is gone
    assert len(written) == 1
    assert name not in written
    assert contents(folder) == before


def test_a_full_disk_is_said_and_leaves_everything_as_it_was(folder, monkeypatch, capsys):
    before = contents(folder)

    def fsync(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fsync)
    assert prune(folder, "@gated.pt", *OUTPUT) == 1
    assert "No space left on device" in capsys.readouterr().err
    assert contents(folder) == before


def test_an_output_that_cannot_be_put_in_place_leaves_nothing(folder, monkeypatch, capsys):
    before = contents(folder)

    def replace(source, target):
        assert Path(source).stat().st_size > 10_000  # whole before it gets its name
        raise PermissionError("not allowed")

    monkeypatch.setattr(os, "replace", replace)
    assert prune(folder, "@gated.pt", *OUTPUT) == 1
    assert "not allowed" in capsys.readouterr().err
    assert contents(folder) == before


def test_a_wrong_usage_exits_as_argparse_does(capsys):
    with pytest.raises(SystemExit) as stop:
        main(["prune"])
    assert stop.value.code == 2
    assert "CHECKPOINT" in capsys.readouterr().err
