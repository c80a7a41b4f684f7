"""Models that copy, without some of their heads: they copy by the same heads, or are refused."""

import shlex
from argparse import ArgumentParser, Namespace
from dataclasses import replace

import pytest
import torch
from fairseq.models import ARCH_CONFIG_REGISTRY, ARCH_MODEL_REGISTRY
from omegaconf import OmegaConf

from fairseq_entmax.cli import main
from fairseq_entmax.models.config import add_arguments
from fairseq_entmax.models.copy_config import CopyConfig
from fairseq_entmax.models.saved import model_of_state, read_model
from fairseq_entmax.pruning import Head, checkpoint_heads, parse_heads, prune_state
from fairseq_entmax.pruning.text import as_options
from tests.pruning.test_heads_apart import varied
from tests.pruning.test_surgery import (
    ALL,
    gates_of,
    logits,
    rebuilt,
    sample,
    shapes,
    state_of,
    translations,
    without,
)
from tests.support import TINY, build_model, tiny_task

ARCH = "entmax_copy_transformer"


def probabilities(model):
    return logits(model).exp()


def copied(model):
    """The distribution of the copy."""
    with torch.no_grad():
        return model(**sample()["net_input"])[1]["attn"][0]


def set_gate(model, layer, values):
    gate = model.head_gates()["cross"][layer]
    with torch.no_grad():
        gate.weight.copy_(torch.tensor(values) / gate.lr_factor)


OPTIONS = [
    {"copy_heads": "2"},
    {"copy_heads": "1,3", "copy_mapping": "entmax:tv=learned", "copy_layer": 0},
    {"attn_mapping": "entmax|softmax|entmax*2", "copy_mapping": "sparsemax", "copy_heads": "2"},
    {"copy_heads": "0,2", "attn_mapping": "entmax", "share_alpha": "attention", "copy_layer": -2},
]


def built_from_printed(report, options):
    """A model with the options that the report prints."""
    printed = as_options(report.heads_after, report.mappings_after, report.copy_after)
    parser = ArgumentParser()
    add_arguments(parser, CopyConfig)
    parsed = vars(parser.parse_args(shlex.split(printed)))
    given = {name: value for name, value in parsed.items() if value not in (None, False)}
    return build_model(ARCH, **{**options, **given})


@pytest.mark.parametrize(
    "options", OPTIONS, ids=lambda options: "-".join(map(str, options.values()))
)
def test_the_pruned_model_copies_and_generates_as_the_gated_one(options):
    gated = varied(arch=ARCH, **options, head_gates=ALL)
    pruned, report = prune_state(state_of(gated, ARCH, **options, head_gates=ALL), "some.pt")
    smaller = rebuilt(pruned)
    torch.testing.assert_close(probabilities(smaller), probabilities(gated), atol=1e-5, rtol=0)
    torch.testing.assert_close(copied(smaller), copied(gated), atol=1e-5, rtol=0)
    assert translations(smaller) == translations(gated)
    layer = gated.attention_options.copy.layer
    values = dict(gated.head_gates()["cross"])[layer].at_evaluation().tolist()
    kept = [head for head, value in enumerate(values) if value > 0]
    heads = tuple(kept.index(head) for head in gated.attention_options.copy.heads)
    new = built_from_printed(report, options)
    assert shapes(new.state_dict()) == shapes(pruned["model"])
    for found in (smaller.attention_options, new.attention_options):
        assert (found.copy.layer, found.copy.heads) == (layer, heads)
        assert found.specs == new.attention_options.specs


def test_a_head_whose_gate_stands_between_still_copies_with_its_whole_distribution():
    options = {"head_gates": "cross", "gate_copy_heads": True, "copy_heads": "2"}
    gated = varied(arch=ARCH, **options)
    set_gate(gated, 1, [-5.0, 4.0, 0.0, 4.0])
    state = state_of(gated, ARCH, **options)
    pruned, report = prune_state(state, "some.pt")
    assert report.undecided[Head("cross", 1, 2)] == pytest.approx(0.5)
    smaller = rebuilt(pruned)
    sums = copied(smaller).sum(-1)
    torch.testing.assert_close(sums, torch.ones_like(sums), atol=1e-5, rtol=0)
    torch.testing.assert_close(probabilities(smaller), probabilities(gated), atol=1e-5, rtol=0)
    # The next gates that the model gets protect its copy heads again
    assert pruned["cfg"]["model"].gate_copy_heads is False


def test_a_checkpoint_in_which_the_gate_of_a_copy_head_was_closed_has_it_open_again():
    closed = varied(arch=ARCH, head_gates="cross", gate_copy_heads=True)
    set_gate(closed, 1, [-5.0, 4.0, 4.0, -5.0])
    state = state_of(closed, ARCH, head_gates="cross")
    saved = model_of_state(state, "some.pt")
    assert [saved.gates(attention) for attention in saved.attentions][-1] == [1.0, 1.0, 1.0, 0.0]
    smaller = rebuilt(prune_state(state, "some.pt")[0])
    torch.testing.assert_close(
        probabilities(smaller), probabilities(rebuilt(state)), atol=1e-5, rtol=0
    )


def test_with_the_flag_the_rest_of_several_heads_go_on_copying():
    options = {"copy_heads": "0,1,3", "copy_mapping": "sparsemax"}
    whole = varied(arch=ARCH, **options)
    gone = {Head("cross", 1, 1)}
    state = state_of(whole, ARCH, **options)
    pruned, report = prune_state(state, "some.pt", gone, copy_heads_too=True)
    smaller = rebuilt(pruned)
    assert smaller.attention_options.copy.heads == (0, 2)
    assert built_from_printed(report, options).attention_options.copy.heads == (0, 2)
    expected = without(whole, gone)
    expected.decoder.copy = replace(expected.decoder.copy, heads=(0, 3))
    torch.testing.assert_close(probabilities(smaller), probabilities(expected), atol=1e-5, rtol=0)


CLOSED = {"head_gates": "cross", "gate_copy_heads": True}


@pytest.mark.parametrize(
    ("options", "heads", "too", "message"),
    [
        (
            {},
            "cross:1.0",
            False,
            r"some.pt copies by cross:1.0 alone, without which it could not copy: leave it out of "
            r"--heads$",
        ),
        (
            {"copy_heads": "0,1,3"},
            "cross:1.1",
            False,
            r"copies by the mean of cross:1.0, cross:1.1, cross:1.3, and cross:1.1 would go: leave "
            r"it out of --heads, or have it copy by cross:1.0, cross:1.3 alone with "
            r"--copy-heads-too$",
        ),
        ({"copy_heads": "0,1"}, "cross:1.0,1.1", True, r"cross:1.0, cross:1.1 alone, without"),
        (
            CLOSED,
            "",
            True,
            r"copies by cross:1.0 alone, .* not copy: train its gates without --gate-copy-heads$",
        ),
        (
            {**CLOSED, "copy_heads": "0,1"},
            "",
            False,
            r"cross:1.0 would go: train its gates without --gate-copy-heads, or have it copy by "
            r"cross:1.1 alone",
        ),
    ],
)
def test_a_copy_head_that_would_go_is_named_with_what_to_do(options, heads, too, message):
    model = build_model(ARCH, **options)
    if options.get("head_gates"):
        set_gate(model, 1, [-5.0, 4.0, 4.0, 4.0])
    named = parse_heads(heads) if heads else ()
    with pytest.raises(ValueError, match=message):
        prune_state(state_of(model, ARCH, **options), "some.pt", named, copy_heads_too=too)


def test_the_command_takes_the_flag_and_counts_heads_without_it(tmp_path, capsys):
    options = {**CLOSED, "copy_heads": "0,2"}
    model = build_model(ARCH, **options)
    set_gate(model, 1, [-5.0, 4.0, 4.0, 4.0])
    path, small = str(tmp_path / "gated.pt"), str(tmp_path / "small.pt")
    torch.save(state_of(model, ARCH, **options), path)
    assert checkpoint_heads(path)["cross"] == [4, 3]
    for arguments in (["--output", small], ["--print-config"]):
        assert main(["prune", path, *arguments]) == 1
        error = capsys.readouterr().err
        assert "cross:1.0 would go" in error
        assert error.count("\n") == 1
    assert main(["prune", path, "--print-config", "--copy-heads-too"]) == 0
    printed = capsys.readouterr().out
    assert printed.endswith("--cross-attn-heads 4,3 --copy-layer 1 --copy-heads 1\n")
    assert main(["prune", path, "--output", small, "--copy-heads-too"]) == 0
    assert read_model(small).options.copy.heads == (1,)


# --- training that starts from a pruned checkpoint -----------------------------------


@pytest.fixture(scope="module")
def pruned_file(tmp_path_factory):
    """Of a model that copied by heads 2 and 3 of its bottom layer, now 1 and 2."""
    options = {"attn_mapping": "entmax", "copy_heads": "2,3", "copy_layer": 0}
    options["copy_mapping"] = "sparsemax"
    gone = parse_heads("cross:0.1,1.0;encoder-self:1.3")
    path = tmp_path_factory.mktemp("start") / "pruned.pt"
    model = varied(arch=ARCH, **options)
    torch.save(prune_state(state_of(model, ARCH, **options), "some.pt", gone)[0], path)
    return path


def started(path, tmp_path, arch=ARCH, yaml=False, **options):
    """The model of a training that starts there."""
    start = {"save_dir": str(tmp_path / "new"), "finetune_from_model": str(path)}
    given = {"arch": arch, "attn_mapping": "entmax", **TINY, **options}
    args = Namespace(**given, **start)
    ARCH_CONFIG_REGISTRY[arch](args)
    if yaml:
        values = {**vars(args), "_name": arch}
        args = OmegaConf.create({"model": values, "checkpoint": start}).model
    model = ARCH_MODEL_REGISTRY[arch].build_model(args, tiny_task())
    model.load_state_dict(torch.load(path)["model"])
    return model.eval()


@pytest.mark.parametrize("yaml", [False, True])
@pytest.mark.parametrize("options", [{}, {"copy_heads": "1,2", "copy_layer": 0}])
def test_training_that_starts_from_it_copies_by_its_heads(pruned_file, tmp_path, options, yaml):
    model = started(pruned_file, tmp_path, yaml=yaml, **options)
    expected = rebuilt(torch.load(pruned_file))
    assert model.attention_options.copy == expected.attention_options.copy
    assert model.attention_options.copy.heads == (1, 2)
    torch.testing.assert_close(logits(model), logits(expected), atol=0, rtol=0)


def test_another_layer_to_copy_by_has_the_heads_that_options_say(pruned_file, tmp_path):
    options = {"copy_layer": 1, "cross_attn_mapping": "(entmax|sparsemax*2),entmax"}
    model = started(pruned_file, tmp_path, copy_heads="2", **options)
    assert (model.attention_options.copy.layer, model.attention_options.copy.heads) == (1, (2,))
    with pytest.raises(ValueError, match=r"--copy-heads 3: layer 1 .* has heads 0 to 2"):
        started(pruned_file, tmp_path, copy_heads="3", **options)
    message = r"--copy-heads 2,3: \S+pruned.pt was pruned, and copies by 1,2 of the heads left: "
    with pytest.raises(ValueError, match=message + "leave --copy-heads out"):
        started(pruned_file, tmp_path, copy_layer=0, copy_heads="2,3")


def test_a_pruned_model_that_does_not_copy_becomes_one_that_does(tmp_path):
    gone = parse_heads("cross:1.0,1.2;encoder-self:0.3")
    path = tmp_path / "pruned.pt"
    torch.save(prune_state(state_of(varied()), "some.pt", gone)[0], path)
    model = started(path, tmp_path, copy_heads="1")
    assert model.attention_options.heads["cross"] == [4, 2]
    assert (model.attention_options.copy.layer, model.attention_options.copy.heads) == (1, (1,))


def test_gates_of_a_model_that_copies_are_open_at_its_copy_heads_alone():
    model = varied(arch=ARCH, head_gates=ALL, copy_heads="0,3", copy_layer=0)
    protected = {(a, layer): gate.protected for a, layer, gate in gates_of(model)}
    assert {place: heads for place, heads in protected.items() if heads} == {("cross", 0): (0, 3)}
    asked = build_model(ARCH, head_gates=ALL, gate_copy_heads=True)
    assert not any(gate.protected for _, _, gate in gates_of(asked))
