"""The command ``fairseq-entmax prune``: what it prints, and that errors leave nothing behind."""

import argparse
import re

import pytest
import torch

from fairseq_entmax import checkpoints
from fairseq_entmax.cli import main
from fairseq_entmax.criterions.head_l0 import NAME as GATED_CRITERION
from fairseq_entmax.models.config import add_arguments
from fairseq_entmax.pruning import prune_state
from tests.pruning.test_surgery import logits, rebuilt, shapes, state_of, trained, without
from tests.support import build_model

GATED = {"attn_mapping": "entmax", "head_gates": "encoder-self,cross"}


@pytest.fixture
def folder(tmp_path):
    """One checkpoint with gates, one without, and a file that is not a checkpoint."""
    torch.save(state_of(trained(**GATED), **GATED), tmp_path / "gated.pt")
    torch.save(state_of(trained()), tmp_path / "plain.pt")
    (tmp_path / "notes.txt").write_text("no checkpoint\n")
    (tmp_path / "sub").mkdir()
    return tmp_path


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def prune(folder, *arguments):
    """Run the command on files of the folder and return its exit status."""
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
    sizes = [(folder / name).stat().st_size for name in ("gated.pt", "small.pt")]
    for name, *numbers in (
        ("parameters", report.parameters_before, report.parameters_after),
        ("bytes of weights", report.weight_bytes_before, report.weight_bytes_after),
        ("bytes of the file", *sizes),
    ):
        assert rows[name] == [f"{number:,}" for number in numbers]
    last = printed.splitlines()[-1]
    assert last.startswith(f"{len(report.undecided)} heads had a gate strictly between 0 and 1")
    for head, gate in report.undecided.items():
        assert f"{head} {gate:.3f}" in last


@pytest.mark.parametrize("name", ["gated.pt", "plain.pt", "small.pt"])
def test_printed_options_build_a_model_with_the_shapes_of_the_pruned_model(folder, name, capsys):
    prune(folder, "@gated.pt", "--output", "@small.pt")
    capsys.readouterr()
    assert prune(folder, f"@{name}", "--print-config") == 0
    printed = capsys.readouterr().out
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    parsed = vars(parser.parse_args(printed.split()))
    new = build_model(**{key: value for key, value in parsed.items() if value is not None})
    # for the checkpoint with gates, the options leave out closed heads
    expected = load(folder, "small.pt" if name == "gated.pt" else name)
    assert shapes(new.state_dict()) == shapes(expected["model"])
    assert printed.count("\n") == 1


def test_printed_options_describe_the_output_and_go_alone_to_stdout(folder, capsys):
    arguments = ["--output", "@small.pt", "--heads", "encoder-self:0.1;cross:1.0,1.3"]
    assert prune(folder, "@plain.pt", *arguments, "--print-config") == 0
    printed, error = capsys.readouterr()
    heads = "--encoder-self-attn-heads 3,4 --decoder-self-attn-heads 4,4 --cross-attn-heads 4,2"
    assert printed == f"{heads}\n"
    assert "parameters" in error
    assert "strictly" not in error
    heads = [("encoder-self", 0, 1), ("cross", 1, 0), ("cross", 1, 3)]
    smaller, expected = rebuilt(load(folder, "small.pt")), without(trained(), heads)
    torch.testing.assert_close(logits(smaller), logits(expected), atol=1e-5, rtol=0)


def test_an_attention_that_lost_all_its_heads_is_named(folder, capsys):
    heads = "decoder-self:0.0,0.1,0.2,0.3,1.0,1.1,1.2,1.3;cross:0.0"
    assert prune(folder, "@plain.pt", "--output", "@small.pt", "--heads", heads) == 0
    lost = "decoder-self lost all its heads; --keep decoder-self=N keeps N of them"
    assert [line for line in capsys.readouterr().out.splitlines() if "lost" in line] == [lost]


def test_overwrite_replaces_an_existing_output(folder, capsys):
    before = (folder / "gated.pt").stat().st_size
    assert prune(folder, "@gated.pt", "--output", "@gated.pt", "--overwrite") == 0
    assert not [name for name in load(folder, "gated.pt")["model"] if ".gate." in name]
    assert {path.name for path in folder.iterdir()} == {"gated.pt", "plain.pt", "notes.txt", "sub"}
    after = (folder / "gated.pt").stat().st_size
    (line,) = [x for x in capsys.readouterr().out.splitlines() if x.startswith("bytes of the file")]
    assert line.split()[-2:] == [f"{before:,}", f"{after:,}"]
    assert before != after


def test_a_checkpoint_before_its_decision_is_pruned_only_with_undecided(folder, refused):
    gated = trained(**GATED)
    gated.pruning_state.set_updates(41)
    state = state_of(gated, **GATED)
    state["cfg"]["criterion"] = {"_name": GATED_CRITERION, "target_heads": "3"}
    torch.save(state, folder / "early.pt")
    output = refused(prune, folder, "@early.pt", "--output", "@small.pt")
    message = "early.pt is from update 41 of a training with --target-heads 3, which had not yet"
    assert message in output
    assert "--undecided" in output
    assert not (folder / "small.pt").exists()
    assert message in refused(prune, folder, "@early.pt", "--print-config")
    assert prune(folder, "@early.pt", "--print-config", "--undecided") == 0
    assert prune(folder, "@early.pt", "--output", "@small.pt", "--undecided") == 0
    assert not [name for name in load(folder, "small.pt")["model"] if ".gate." in name]


OUTPUT = ["--output", "@small.pt"]
KEEP = ["--keep", "4", "--by", "loss"]
SAME = ["--output", "@cut.pt", "--evidence", "@cut.pt"]


@pytest.mark.parametrize(
    ("arguments", "messages"),
    [
        (["@none.pt", *OUTPUT], ["No such file", "none.pt"]),
        (["@plain.pt", *OUTPUT], ["plain.pt has no head gates", "--heads 'encoder-self:0.3,0.5'"]),
        (["@gated.pt", "--output", "@plain.pt"], ["plain.pt', which exists", "--overwrite"]),
        (["@gated.pt", "--output", "@sub"], ["sub': give the name of a file"]),
        (["@gated.pt", "--output", "@new/small.pt"], ["there is no folder", "new"]),
        (["@cut.pt", "--print-config"], ["cut.pt", "damaged"]),
        (["@sub", *OUTPUT], ["sub is not a file"]),
        (["@gated.pt", *OUTPUT, "--heads", "cross:0.9"], ["gated.pt has no head cross:0.9"]),
        (["@gated.pt", *OUTPUT, "--heads", "cross"], ["--heads: 'cross' does not name heads"]),
        (["@gated.pt"], ["give --output FILE", "--print-config"]),
        (["@gated.pt", "--heads", "cross:0.1"], ["--heads, --keep and --overwrite need --output"]),
        (["@plain.pt", *OUTPUT, "--keep", "4"], ["or both --keep N and --by WHAT"]),
        (["@plain.pt", *OUTPUT, *KEEP, "--heads", "cross:0.1"], ["give --heads, or both --keep N"]),
        (["@plain.pt", *SAME, "--heads", "cross:0.1"], ["--evidence needs --keep N and --by WHAT"]),
        (["@plain.pt", *OUTPUT, *KEEP], ["--by loss needs --evidence FILE, which ablate writes"]),
        (["@plain.pt", *OUTPUT, *KEEP, "--evidence", "@no.json"], ["No such file", "no.json"]),
        (
            ["@plain.pt", *KEEP, "--overwrite", *SAME],
            ["cut.pt is the evidence, and would be replaced"],
        ),
        (["@plain.pt", *OUTPUT, "--keep", "x=4", "--by", "random"], ["--keep got 'x=4'"]),
        (
            ["@plain.pt", *OUTPUT, "--keep", "", "--by", "random"],
            ["--keep is empty: give a number"],
        ),
        (["@plain.pt", *OUTPUT, "--keep", "25", "--by", "random"], ["plain.pt has 24 open heads"]),
        (["@plain.pt", *OUTPUT, "--keep", "cross=9", "--by", "random"], ["8 open heads of cross"]),
        (
            ["@plain.pt", *OUTPUT, "--keep", "8", "--by", "random", "--evidence", "it.json"],
            ["--by random reads no --evidence it.json: leave it out"],
        ),
        (["@plain.pt", *OUTPUT, "--keep", "4", "--by", "gates"], ["no gate on encoder-self:0.0"]),
    ],
)
def test_an_error_is_one_line_and_changes_no_file(folder, arguments, messages, refused):
    whole = (folder / "gated.pt").read_bytes()
    (folder / "cut.pt").write_bytes(whole[: len(whole) // 2])
    before = contents(folder)
    error = refused(prune, folder, *arguments)
    assert error.startswith("fairseq-entmax prune: ")
    for message in messages:
        assert message in error
    assert contents(folder) == before
    assert list((folder / "sub").iterdir()) == []


class Killed(BaseException):
    """An exception that no handler catches by accident."""


@pytest.mark.parametrize("name", ["small.pt", "plain.pt"])
def test_an_interrupted_write_changes_no_file(folder, name, monkeypatch):
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
    # it was written under another name, and is gone
    assert len(written) == 1
    assert name not in written
    assert contents(folder) == before


def test_a_full_disk_is_reported_and_changes_no_file(folder, refused, monkeypatch):
    before = contents(folder)

    def save(state, file):
        raise RuntimeError("PytorchStreamWriter failed writing file")

    monkeypatch.setattr(torch, "save", save)
    error = refused(prune, folder, "@gated.pt", "--output", "@small.pt")
    assert "small.pt, nothing was changed: PytorchStreamWriter" in error
    assert contents(folder) == before
