"""A pruned model gives the scores of the gated model, and is smaller by the reported amount."""

import copy
import logging
from argparse import Namespace

import pytest
import torch
from fairseq import models
from omegaconf import OmegaConf

from fairseq_entmax import checkpoints
from fairseq_entmax.attention import attention_modules
from fairseq_entmax.criterions.head_l0 import NAME as GATED_CRITERION
from fairseq_entmax.models.features.attention_heads import HEADS_OPTIONS
from fairseq_entmax.pruning import Head, prune_checkpoint, prune_state
from tests.support import (
    TINY,
    build_model,
    logits,
    sample,
    search,
    settings_of,
    spread_scores,
    tiny_task,
)

ALL = "encoder-self,decoder-self,cross"
PRENORM = {"encoder_normalize_before": True, "decoder_normalize_before": True}
HEAD_SIZE = 4


def trained(arch="entmax_transformer", seed=1, **options):
    """A model with nonzero biases and a mix of gate values, with one layer closed."""
    model = spread_scores(build_model(arch, seed=seed, **options))
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("bias"):
                parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.3)
        for number, (_, _, gate) in enumerate(gates_of(model)):
            # closed, two between, open, in a different order in each layer
            log_a = torch.tensor([-3.5, -0.7, 0.9, 4.0])
            log_a = log_a[torch.randperm(4, generator=generator)]
            gate.weight.copy_(log_a / gate.lr_factor)
            if number == 1:
                gate.weight.fill_(-5.0 / gate.lr_factor)
    return model


def gates_of(model):
    head_gates = model.head_gates() if hasattr(model, "head_gates") else {}
    return [(a, layer, gate) for a, layers in head_gates.items() for layer, gate in layers.items()]


def state_of(model, arch="entmax_transformer", **options):
    """A model's checkpoint as fairseq-train saves it."""
    average = {"ema": {"w": torch.ones(1)}, "ema_fp32_params": {}}
    return {
        "args": None,
        "cfg": {"model": settings_of(arch, **options), "criterion": {"_name": "cross_entropy"}},
        "model": model.state_dict(),
        "criterion": {"some": torch.ones(1)},
        "optimizer_history": [{"num_updates": 7}],
        "task_state": {},
        "extra_state": {"epoch": 3, **average, "metrics": {"train": []}, "best": 2.5},
        "last_optimizer_state": {"state": {0: torch.ones(3)}, "param_groups": [{"params": [0]}]},
    }


def rebuilt(state):
    """The model of a checkpoint, built from its settings alone as fairseq builds it."""
    settings = copy.deepcopy(state["cfg"]["model"] if state["cfg"] is not None else state["args"])
    if isinstance(settings, dict):
        settings = OmegaConf.create(settings)
    torch.manual_seed(99)
    model = models.build_model(settings, tiny_task())
    model.load_state_dict(state["model"])
    return model.eval()


def translations(model):
    return search(model, sample(), max_len_b=7, digits=4)


def without(model, heads):
    """The same model with some heads silenced: their output columns are zero."""
    model = copy.deepcopy(model)
    modules = {
        "encoder-self": [layer.self_attn for layer in model.encoder.layers],
        "decoder-self": [layer.self_attn for layer in model.decoder.layers],
        "cross": [layer.encoder_attn for layer in model.decoder.layers],
    }
    with torch.no_grad():
        for attention, layer, head in heads:
            columns = slice(head * HEAD_SIZE, (head + 1) * HEAD_SIZE)
            modules[attention][layer].out_proj.weight[:, columns] = 0
    return model


def open_heads(model):
    """The number of heads of each layer that are not closed."""
    found = {}
    for attention, _, module in attention_modules(model):
        gates = [1.0] * module.num_heads if module.gate is None else module.gate.at_evaluation()
        found.setdefault(attention, []).append(sum(float(gate) > 0 for gate in gates))
    return found


def shapes(weights):
    return {name: tuple(value.shape) for name, value in weights.items()}


OPTIONS = [
    {"attn_mapping": "softmax"},
    {"attn_mapping": "entmax", **PRENORM},
    {"attn_mapping": "entmax", "share_alpha": "layer"},
    {"attn_mapping": "entmax", "share_alpha": "attention"},
    {"attn_mapping": "entmax", "share_alpha": "model", **PRENORM},
    {"attn_mapping": "sparsemax,entmax", "cross_attn_mapping": "entmax:alpha=1.3,softmax"},
    {"attn_mapping": "entmax", "gate_stretch": "-0.3,1.2", "gate_lr_factor": "3"},
    {"quant_noise_pq": 0.1, "quant_noise_pq_block_size": 8},  # heads have the width 4
    {"no_cross_attention": True},
    {"share_all_embeddings": True},
]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_the_pruned_model_is_smaller_and_gives_the_scores_of_the_gated_one(options, caplog):
    attentions = "encoder-self,decoder-self" if "no_cross_attention" in options else ALL
    options = {**options, "head_gates": attentions}
    gated = trained(**options)
    state = state_of(gated, **options)
    if options.get("share_alpha") == "model" or "share_all_embeddings" in options:
        # as fairseq saves a model that is on a GPU or in half precision
        state["model"] = {name: value.clone() for name, value in state["model"].items()}
    pruned, report = prune_state(state, "some.pt")
    with caplog.at_level(logging.WARNING):
        smaller = rebuilt(pruned)
    assert caplog.text == ""  # nothing was filled in
    torch.testing.assert_close(logits(smaller), logits(gated), atol=1e-5, rtol=0)
    assert translations(smaller) == translations(gated)
    # Closed heads are physically gone; one layer has none left
    weights, counts = pruned["model"], open_heads(gated)
    assert not [name for name in weights if "gate" in name or name.startswith("pruning_state")]
    assert shapes(weights) == shapes(smaller.state_dict())
    assert counts["encoder-self"] == [3, 0]
    for layer, count in enumerate(counts["decoder-self"]):
        rows = weights.get(f"decoder.layers.{layer}.self_attn.q_proj.weight", torch.zeros(0))
        assert len(rows) == count * HEAD_SIZE
    assert report.heads_before == {name: [4, 4] for name in counts}
    assert report.heads_after == counts
    # Gates between 0 and 1
    undecided = {
        Head(attention, layer, head): value
        for attention, layer, gate in gates_of(gated)
        for head, value in enumerate(gate.at_evaluation().tolist())
        if 0 < value < 1
    }
    assert len(undecided) == (6 if "no_cross_attention" in options else 10)
    assert report.undecided == pytest.approx(undecided, abs=1e-6)
    before, after = (sum(p.numel() for p in model.parameters()) for model in (gated, smaller))
    assert (report.parameters_before, report.parameters_after) == (before, after)
    assert (report.weight_bytes_before, report.weight_bytes_after) == (4 * before, 4 * after)


def test_a_decided_model_keeps_exactly_the_heads_decided_open():
    gated = trained(head_gates=ALL)
    generator = torch.Generator().manual_seed(4)
    for _, _, gate in gates_of(gated):
        gate.decide(torch.rand(4, generator=generator) > 0.5)
    pruned, report = prune_state(state_of(gated, head_gates=ALL), "some.pt")
    assert report.heads_after == open_heads(gated)
    assert report.undecided == {}
    smaller = rebuilt(pruned)
    torch.testing.assert_close(logits(smaller), logits(gated), atol=1e-5, rtol=0)
    # Nothing is folded in, so the kept weights are bitwise equal
    for (_, _, one), (_, _, other) in zip(*map(attention_modules, (gated, smaller)), strict=True):
        remaining = one.gate.at_evaluation().repeat_interleave(HEAD_SIZE) == 1
        if remaining.any():
            assert torch.equal(other.out_proj.weight, one.out_proj.weight[:, remaining])
            assert torch.equal(other.q_proj.weight, one.q_proj.weight[remaining])


def test_a_pruned_checkpoint_can_be_pruned_again():
    gated = trained(head_gates=ALL, seed=2)
    first, report = prune_state(state_of(gated, head_gates=ALL), "some.pt")
    once = rebuilt(first)
    # heads are counted in the pruned checkpoint
    last = report.heads_after["cross"][0] - 1
    heads = {Head("cross", 0, last), *(Head("encoder-self", 0, head) for head in range(3))}
    second, again = prune_state(first, "pruned.pt", heads)
    assert again.heads_before == report.heads_after
    assert again.heads_after["cross"][0] == last
    assert again.heads_after["encoder-self"] == [0, 0]
    expected = logits(without(once, heads))
    torch.testing.assert_close(logits(rebuilt(second)), expected, atol=1e-5, rtol=0)
    with pytest.raises(ValueError, match="has no head gates, so none of its heads is closed"):
        prune_state(first, "pruned.pt")


def as_yaml(state, options):
    """Write the settings as a YAML file leaves them: a dict of the given options."""
    state["cfg"]["model"] = {"_name": "entmax_transformer", **TINY, **options}


def as_args(state, options):
    """Write the settings as fairseq before 0.10 saved them, with everything in one namespace."""
    settings = state["cfg"]["model"]
    settings.criterion = "label_smoothed_cross_entropy_with_head_l0"
    state["cfg"], state["args"] = None, settings


def as_args_without_cfg(state, options):
    as_args(state, options)
    del state["cfg"]


@pytest.mark.parametrize(
    "write", [lambda state, options: None, as_yaml, as_args, as_args_without_cfg]
)
def test_settings_are_read_and_written_in_every_form_that_fairseq_saves(write):
    options = {"attn_mapping": "entmax15,entmax", "head_gates": ALL, **PRENORM}
    gated = trained(**options)
    state = state_of(gated, **options)
    write(state, options)
    pruned, report = prune_state(state, "some.pt")
    settings = pruned["cfg"]["model"] if pruned["cfg"] is not None else pruned["args"]
    found = settings if isinstance(settings, dict) else vars(settings)
    assert isinstance(settings, dict) == (write is as_yaml)
    for attention, option in HEADS_OPTIONS.items():
        assert found[option] == ",".join(map(str, report.heads_after[attention]))
    assert not found["head_gates"]
    assert found.get("criterion", "label_smoothed_cross_entropy") == "label_smoothed_cross_entropy"
    torch.testing.assert_close(logits(rebuilt(pruned)), logits(gated), atol=1e-5, rtol=0)


def test_pruning_does_not_change_the_given_state_and_drops_training_state():
    gated = trained(head_gates=ALL)
    state = state_of(gated, head_gates=ALL)
    state["cfg"]["criterion"] = {"_name": GATED_CRITERION, "label_smoothing": 0.1, "l0_weight": 0.1}
    before = copy.deepcopy(state)
    pruned, _ = prune_state(state, "some.pt", {Head("cross", 0, 0)})
    weights, old_weights = state.pop("model"), before.pop("model")
    assert list(weights) == list(old_weights)
    assert all(torch.equal(weights[name], value) for name, value in old_weights.items())
    assert str(state) == str(before)
    # the cut weight is no view of the old one, which would be saved whole
    weight = pruned["model"]["encoder.layers.0.self_attn.q_proj.weight"]
    assert weight.untyped_storage().nbytes() == weight.numel() * 4
    assert pruned["last_optimizer_state"] is None
    assert pruned["criterion"] is None
    assert pruned["extra_state"] == {"epoch": 3}
    assert pruned["optimizer_history"] == [{"num_updates": 7}]
    expected = {"_name": "label_smoothed_cross_entropy", "label_smoothing": 0.1}
    assert pruned["cfg"]["criterion"] == expected


def test_pruning_unfreezes_a_frozen_decoder():
    options = {"head_gates": "encoder-self", "freeze_decoder": True}
    pruned, _ = prune_state(state_of(trained(**options), **options), "some.pt")
    assert all(parameter.requires_grad for parameter in rebuilt(pruned).parameters())


def test_gates_of_a_half_precision_checkpoint_are_folded_in_float32():
    options = {"attn_mapping": "entmax", "head_gates": ALL}
    state = state_of(trained(**options), **options)
    state["model"] = {
        name: value.half() if value.dtype == torch.float32 else value
        for name, value in state["model"].items()
    }
    gated = build_model(**options)
    gated.load_state_dict(state["model"])
    pruned, report = prune_state(state, "half.pt")
    assert report.undecided
    torch.testing.assert_close(logits(rebuilt(pruned)), logits(gated), atol=1e-5, rtol=0)
    # weights without a folded gate stay in half precision
    types = {name: value.dtype for name, value in pruned["model"].items()}
    assert types["encoder.layers.0.self_attn.out_proj.weight"] == torch.float32
    assert types["encoder.layers.0.self_attn.q_proj.weight"] == torch.float16
    assert types["encoder.layers.0.self_attn.mapping.alpha_logit"] == torch.float16
    assert types["encoder.layers.0.fc1.weight"] == torch.float16


NO_HEAD = r"some.pt has no head {}: the layers of its {} attention have 4, 4 "


@pytest.mark.parametrize(
    ("change", "heads", "message"),
    [
        (lambda state: state["cfg"].update(model=Namespace(arch="lstm")), (), r"the model lstm: "),
        (lambda state: state.update(cfg=None), (), r"neither 'cfg' nor 'args'"),
        (
            lambda state: state["model"].pop("encoder.layers.0.self_attn.q_proj.weight"),
            (),
            r"has no encoder\.layers\.0\.self_attn\.q_proj\.weight: .*cannot be pruned",
        ),
        *(
            (lambda state: None, {head, Head("cross", 0, 0)}, NO_HEAD.format(head, head.attention))
            for head in (Head("cross", 1, 4), Head("encoder-self", 2, 0))
        ),
    ],
)
def test_what_cannot_be_pruned_gives_a_one_line_error(change, heads, message):
    state = state_of(trained(head_gates="cross"), head_gates="cross")
    change(state)
    with pytest.raises(ValueError, match=message):
        prune_state(state, "some.pt", heads)


def test_tensors_that_were_shared_are_saved_once(tmp_path):
    options = {"head_gates": "cross", "share_all_embeddings": True}
    path, output = str(tmp_path / "gated.pt"), str(tmp_path / "pruned.pt")
    torch.save(state_of(trained(**options), **options), path)
    prune_checkpoint(path, output)
    weights = checkpoints.load_checkpoint(output)["model"]
    places = {weights[f"{side}.embed_tokens.weight"].data_ptr() for side in ("encoder", "decoder")}
    assert len(places) == 1
