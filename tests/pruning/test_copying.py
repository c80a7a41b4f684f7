"""Pruned models that copy keep the same copy heads, or pruning is refused."""

import shlex
from argparse import ArgumentParser

import pytest
import torch
from omegaconf import OmegaConf

from fairseq_entmax.cli import main
from fairseq_entmax.models import EntmaxCopyTransformerModel
from fairseq_entmax.models.checkpoint_model import model_of_state
from fairseq_entmax.models.config import add_arguments, as_arguments
from fairseq_entmax.pruning import parse_heads, prune_state
from tests.pruning.test_per_head import varied
from tests.pruning.test_surgery import (
    ALL,
    gates_of,
    logits,
    rebuilt,
    sample,
    shapes,
    state_of,
    translations,
)
from tests.support import build_model, built, settings_of

ARCH = "entmax_copy_transformer"


def probabilities(model):
    return logits(model).exp()


def copied(model):
    """The copy distribution."""
    with torch.no_grad():
        return model(**sample()["net_input"])[1]["attn"][0]


OPTIONS = [
    {"copy_heads": "2"},
    {"copy_heads": "1,3", "copy_mapping": "entmax:tv=learned", "copy_layer": 0},
    {"attn_mapping": "entmax|softmax|entmax*2", "copy_mapping": "sparsemax", "copy_heads": "2"},
    {"copy_heads": "0,2", "attn_mapping": "entmax", "share_alpha": "attention", "copy_layer": -2},
]


def built_from_printed(report, options):
    """A model built with the options that the report prints."""
    printed = as_arguments(report.options_after)
    parser = ArgumentParser()
    add_arguments(parser, EntmaxCopyTransformerModel.features)
    parsed = vars(parser.parse_args(shlex.split(printed)))
    given = {name: value for name, value in parsed.items() if value not in (None, False)}
    return build_model(ARCH, **{**options, **given})


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_the_pruned_model_copies_and_generates_as_the_gated_one(options):
    gated = varied(arch=ARCH, **options, head_gates=ALL)
    pruned, report = prune_state(state_of(gated, ARCH, **options, head_gates=ALL), "some.pt")
    smaller = rebuilt(pruned)
    torch.testing.assert_close(probabilities(smaller), probabilities(gated), atol=1e-5, rtol=0)
    torch.testing.assert_close(copied(smaller), copied(gated), atol=1e-5, rtol=0)
    assert translations(smaller) == translations(gated)
    layer = gated.attention_options.copy.layer
    values = dict(gated.head_gates()["cross"])[layer].at_evaluation().tolist()
    remaining = [head for head, value in enumerate(values) if value > 0]
    heads = tuple(remaining.index(head) for head in gated.attention_options.copy.copy_heads)
    new = built_from_printed(report, options)
    assert shapes(new.state_dict()) == shapes(pruned["model"])
    for found in (smaller.attention_options, new.attention_options):
        assert (found.copy.layer, found.copy.copy_heads) == (layer, heads)
        assert found.specs == new.attention_options.specs


def test_gates_of_copy_heads_alone_stay_open_whatever_the_checkpoint_says():
    options = {"head_gates": "cross", "copy_heads": "0,3"}
    model = varied(arch=ARCH, **options)
    protected = {(a, layer): gate.protected for a, layer, gate in gates_of(model)}
    assert protected == {("cross", 0): (), ("cross", 1): (0, 3)}
    gate = model.head_gates()["cross"][1]
    with torch.no_grad():
        gate.weight.copy_(torch.tensor([-5.0, 4.0, -5.0, 4.0]) / gate.lr_factor)
    state = state_of(model, ARCH, **options)
    checkpoint = model_of_state(state, "some.pt")
    assert checkpoint.gates(checkpoint.attentions[-1]) == [1.0, 1.0, 0.0, 1.0]
    smaller = rebuilt(prune_state(state, "some.pt")[0])
    assert smaller.attention_options.copy.copy_heads == (0, 2)
    torch.testing.assert_close(probabilities(smaller), probabilities(model), atol=1e-5, rtol=0)


@pytest.mark.parametrize(
    ("copy_heads", "heads", "named"),
    [("0", "cross:1.0", "cross:1.0"), ("0,1,3", "cross:1.1,1.2,1.3", "cross:1.1, cross:1.3")],
)
def test_removing_a_copy_head_is_refused(copy_heads, heads, named, tmp_path, capsys, refused):
    path, options = str(tmp_path / "whole.pt"), {"arch": ARCH, "copy_heads": copy_heads}
    torch.save(state_of(build_model(**options), **options), path)
    output = ["--output", str(tmp_path / "small.pt")]
    error = refused(main, ["prune", path, "--heads", heads, *output])
    assert f"copies with {named}, without which its copy distribution would change" in error
    assert "leave copy heads out of --heads" in error
    assert main(["prune", path, "--heads", "cross:1.2", *output, "--print-config"]) == 0
    options = "--cross-attn-heads 4,3 --copy-layer 1 --copy-heads "
    assert options + {"0": "0", "0,1,3": "0,1,2"}[copy_heads] in capsys.readouterr().out


@pytest.fixture(scope="module")
def pruned_file(tmp_path_factory):
    """A pruned model that copied by heads 2 and 3 of its bottom layer, now heads 1 and 2."""
    options = {"attn_mapping": "entmax", "copy_heads": "2,3", "copy_layer": 0}
    options["copy_mapping"] = "sparsemax"
    gone = parse_heads("cross:0.1,1.0;encoder-self:1.3")
    path = tmp_path_factory.mktemp("start") / "pruned.pt"
    model = varied(arch=ARCH, **options)
    torch.save(prune_state(state_of(model, ARCH, **options), "some.pt", gone)[0], path)
    return path


def started(path, tmp_path, arch=ARCH, yaml=False, **options):
    """The model of a training that starts from the checkpoint."""
    start = {"save_dir": str(tmp_path / "new"), "finetune_from_model": str(path)}
    args = settings_of(arch, **{"attn_mapping": "entmax", **options}, **start)
    if yaml:
        args = OmegaConf.create({"model": vars(args), "checkpoint": start}).model
    model = built(args)
    model.load_state_dict(torch.load(path)["model"])
    return model


@pytest.mark.parametrize("yaml", [False, True])
@pytest.mark.parametrize("options", [{}, {"copy_heads": [1, 2], "copy_layer": 0}])
def test_training_from_a_pruned_checkpoint_keeps_its_copy_heads(
    pruned_file, tmp_path, options, yaml
):
    model = started(pruned_file, tmp_path, yaml=yaml, **options)
    expected = rebuilt(torch.load(pruned_file))
    assert model.attention_options.copy == expected.attention_options.copy
    assert model.attention_options.copy.copy_heads == (1, 2)
    torch.testing.assert_close(logits(model), logits(expected), atol=0, rtol=0)


def test_options_choose_the_heads_of_another_copy_layer(pruned_file, tmp_path):
    options = {"copy_layer": 1, "cross_attn_mapping": "(entmax|sparsemax*2),entmax"}
    copy = started(pruned_file, tmp_path, copy_heads="2", **options).attention_options.copy
    assert (copy.layer, copy.copy_heads) == (1, (2,))
    with pytest.raises(ValueError, match=r"--copy-heads 3: layer 1 .* has heads 0 to 2"):
        started(pruned_file, tmp_path, copy_heads="3", **options)
    message = r"--copy-heads 2,3: \S+pruned.pt was pruned, and its copy heads are now 1,2: "
    with pytest.raises(ValueError, match=message + "leave --copy-heads out"):
        started(pruned_file, tmp_path, copy_layer=0, copy_heads="2,3")


def test_a_pruned_model_can_be_trained_to_copy(tmp_path):
    gone = parse_heads("cross:1.0,1.2;encoder-self:0.3")
    path = tmp_path / "pruned.pt"
    torch.save(prune_state(state_of(varied()), "some.pt", gone)[0], path)
    found = started(path, tmp_path, copy_heads="1").attention_options
    assert found.heads["cross"] == [4, 2]
    assert (found.copy.layer, found.copy.copy_heads) == (1, (1,))


def test_training_keeps_a_copy_mapping_beside_per_head_mappings(tmp_path):
    options, path = OPTIONS[2], tmp_path / "pruned.pt"
    state = state_of(varied(arch=ARCH, **options), ARCH, **options)
    torch.save(prune_state(state, "some.pt", parse_heads("cross:1.1,1.3"))[0], path)
    model = started(path, tmp_path, attn_mapping=options["attn_mapping"], copy_mapping="sparsemax")
    assert str(model.attention_options.specs["cross"][1]) == "entmax|sparsemax"
