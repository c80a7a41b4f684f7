"""Models with gates on their heads or with fewer heads: options, checkpoints, draws."""

import argparse
import logging

import pytest
import torch

from fairseq_entmax.attention import GATES, HardConcreteGate, attention_modules
from fairseq_entmax.models import initial_checkpoint
from fairseq_entmax.models.config import add_arguments
from fairseq_entmax.models.features.attention_heads import HEADS_OPTIONS
from tests.pruning.test_surgery import ALL, PRENORM, state_of
from tests.support import all_gates, batch, build_model, built, logits, sample, settings_of


def heads(*counts):
    """The options for encoder-self, decoder-self and cross-attention."""
    return dict(zip(HEADS_OPTIONS.values(), counts, strict=True))


UNEVEN, PRUNED = heads("1,3", "0,2", "4,0"), heads("3,0", "4,1", "2,2")
ALL_HEADS = dict.fromkeys(PRUNED, "4,4")


def gradients(model):
    """The gradient of every parameter, from a loss of the model's scores."""
    model.train()(**sample()["net_input"])[0].pow(2).mean().backward()
    return {name: parameter.grad for name, parameter in model.named_parameters()}


def head_numbers(model):
    found = {}
    for attention, _, module in attention_modules(model):
        found.setdefault(attention, []).append(module.num_heads)
    return found


THREE = {"encoder_layers": 3, "encoder_layers_to_keep": "0,2"}
THREE |= {"decoder_layers": 3, "decoder_layers_to_keep": "1,2"}


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"decoder_attention_heads": 2}, ([4, 4], [2, 2], [2, 2])),
        ({"encoder_self_attn_heads": "3,0"}, ([3, 0], [4, 4], [4, 4])),
        ({"decoder_self_attn_heads": [1, 4], "cross_attn_heads": 2}, ([4, 4], [1, 4], [2, 2])),
        ({"encoder_self_attn_heads": 0}, ([0, 0], [4, 4], [4, 4])),
        # Dropped layers take their heads along, or only those of the kept layers are given
        ({**THREE, **heads("1,2,3", "1,0,2", "3")}, ([1, 3], [0, 2], [3, 3])),
        ({**THREE, "encoder_self_attn_heads": "1,3"}, ([1, 3], [4, 4], [4, 4])),
    ],
)
def test_heads_are_given_for_each_layer_or_once_for_all(options, expected):
    model = build_model(**options)
    assert head_numbers(model) == dict(zip(ALL.split(","), expected, strict=True))
    assert model.head_gates() == {}
    assert model.pruning_state is None


def test_alignments_are_those_of_the_last_layer_with_heads():
    model = build_model(cross_attn_heads="4,0", decoder_layerdrop=0.1).eval()
    found = []
    for layer in (None, 0):
        torch.manual_seed(1)
        attn = model(**batch([5], [4])["net_input"], alignment_layer=layer)[1]["attn"][0]
        found.append((attn, torch.rand(1)))
    (default, drawn), (first, drawn_by_fairseq) = found
    assert drawn == drawn_by_fairseq
    torch.testing.assert_close(default.sum(-1), torch.ones(1, 4))
    assert torch.equal(default, first)


@pytest.mark.parametrize("norm", [{}, PRENORM], ids=["post-norm", "pre-norm"])
def test_every_parameter_gets_a_gradient_and_unused_norms_are_left_out(norm):
    model = build_model(head_gates="encoder-self,cross", **norm, **UNEVEN)
    # Distributed training waits for every gradient
    assert [name for name, gradient in gradients(model).items() if gradient is None] == []
    parts = "0.self_attn", "1.encoder_attn"
    names = {f"decoder.layers.{part}_layer_norm.weight" for part in parts}
    gone = set(build_model(**norm).state_dict()) - set(model.state_dict())
    assert {name for name in gone if "layer_norm.weight" in name} == (names if norm else set())


@pytest.mark.parametrize("heads", [0, 1, 3])  # of width 4, in blocks of 8
def test_quantisation_noise_works_with_any_number_of_heads(heads):
    noise = {"quant_noise_pq": 0.5, "quant_noise_pq_block_size": 8}
    found = gradients(build_model(**noise, encoder_self_attn_heads=heads))
    assert all(gradient.isfinite().all() for gradient in found.values() if gradient is not None)


def test_the_named_attentions_get_one_gate_per_head_with_the_given_options():
    options = {"gate_temperature": "0.5", "gate_stretch": "-0.2,1.3", "gate_init": "1.5"}
    model = build_model(head_gates="cross,encoder-self", gate_lr_factor=4, **options, **UNEVEN)
    assert list(model.head_gates()) == ["encoder-self", "cross"]
    found = {
        (attention, layer): gate.log_a.tolist()
        for attention, layers in model.head_gates().items()
        for layer, gate in layers.items()
    }
    # the cross-attention of layer 1 has no heads
    counts = {("encoder-self", 0): 1, ("encoder-self", 1): 3, ("cross", 0): 4}
    assert found == {place: [1.5] * count for place, count in counts.items()}
    for gate in all_gates(model):
        assert (gate.temperature, gate.stretch, gate.lr_factor) == (0.5, (-0.2, 1.3), 4.0)


def test_the_help_lists_registered_gates(monkeypatch):
    monkeypatch.setitem(GATES, "coin", HardConcreteGate)
    add_arguments(parser := argparse.ArgumentParser())
    assert "subset, coin; with subset" in " ".join(parser.format_help().split())


def test_the_command_line_and_a_yaml_file_give_the_same_model():
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    arguments = "--encoder-self-attn-heads 1,3 --head-gates encoder-self --gate-stretch=-0.2,1.2"
    parsed = vars(parser.parse_args([*arguments.split(), "--gate-init", "0.5"]))
    from_shell = build_model(**{name: value for name, value in parsed.items() if value is not None})
    lists = {"encoder_self_attn_heads": [1, 3], "head_gates": ["encoder-self"]}
    from_yaml = build_model(**lists, gate_stretch=[-0.2, 1.2], gate_init=0.5)
    for one, other in zip(all_gates(from_shell), all_gates(from_yaml), strict=True):
        assert one.stretch == other.stretch == (-0.2, 1.2)
    weights = from_yaml.state_dict()
    assert all(torch.equal(weights[n], v) for n, v in from_shell.state_dict().items())


def test_new_gates_do_not_change_weights_and_scores():
    plain, gated = build_model(seed=3), build_model(seed=3, head_gates=ALL)
    assert all(torch.equal(gated.state_dict()[n], v) for n, v in plain.state_dict().items())
    assert torch.equal(logits(gated), logits(plain))


def test_a_stock_transformer_gets_open_gates_and_a_warning(caplog):
    stock = build_model("transformer", seed=5)
    model = build_model(attn_mapping="softmax", head_gates="encoder-self,cross", seed=6)
    model.load_state_dict(stock.state_dict())
    torch.testing.assert_close(logits(model), logits(stock), atol=1e-5, rtol=0)
    (line,) = [r.getMessage() for r in caplog.records if "head gates" in r.getMessage()]
    assert "they start at --gate-init 2.5" in line
    assert "encoder.layers.0.self_attn" in line
    assert "decoder.layers.0.self_attn" not in line
    assert not model.pruning_state.is_known


def test_loading_a_checkpoint_with_gates_fills_in_nothing(caplog):
    saved, model = build_model(head_gates=ALL, seed=5), build_model(head_gates=ALL, seed=6)
    all_gates(saved)[0].decide(torch.tensor([True, False, True, True]))
    saved.pruning_state.set_updates(33)
    with caplog.at_level(logging.WARNING):
        model.load_state_dict(saved.state_dict())
    assert caplog.text == ""
    assert all(torch.equal(model.state_dict()[n], v) for n, v in saved.state_dict().items())
    assert model.pruning_state.updates == 33
    assert torch.equal(logits(model), logits(saved))


@pytest.mark.parametrize("share", [True, False])
def test_a_frozen_decoder_freezes_all_its_parameters_and_shared_embeddings(share):
    model = build_model(freeze_decoder=True, share_all_embeddings=share, head_gates="encoder-self")
    frozen = {name for name, gradient in gradients(model).items() if gradient is None}
    expected = {f"decoder.{name}" for name, _ in model.decoder.named_parameters()}
    if share:  # under the name that fairseq finds first
        expected = expected - {"decoder.embed_tokens.weight"} | {"encoder.embed_tokens.weight"}
    assert frozen == expected
    assert all(gate.weight.grad is not None for gate in all_gates(model))


def gated(seed=1, **options):
    # With these values draws are rarely clipped, so that no two are equal
    return build_model(seed=seed, head_gates=ALL, gate_init=0.0, gate_temperature=0.99, **options)


def update(model, trainer, number, batches=1):
    """The gates of each training pass in one update of one worker."""
    trainer.updates, draws = number, []
    for _ in range(batches):
        model.train()(**batch([3], [2])["net_input"])
        draws.append(torch.cat([gate().detach() for gate in all_gates(model)]))
    return draws


def test_a_draw_depends_only_on_seed_update_and_batch(trainer):
    model = gated()
    first = update(model, trainer, 0, 2) + update(model, trainer, 1, 2)
    assert len({tuple(draw.tolist()) for draw in first}) == 4
    again = gated()
    torch.rand(100)
    update(again, trainer, 1, 3)
    torch.testing.assert_close(update(again, trainer, 0, 2), first[:2], atol=0, rtol=0)
    # Validation between updates does not use up draws
    trainer.updates = 1
    again.eval()
    assert torch.equal(logits(again), logits(again))
    torch.testing.assert_close(update(again, trainer, 1, 2), first[2:], atol=0, rtol=0)
    other = gated(seed=2)
    assert not torch.equal(update(other, trainer, 0)[0], first[0])
    # Each layer draws independently
    inside = first[0][(first[0] > 0) & (first[0] < 1)]
    assert inside.unique().numel() == len(inside) > 6


@pytest.mark.parametrize(("workers", "batches"), [(2, 2), (3, 1)])
def test_workers_draw_what_a_single_worker_draws_for_all_their_batches(trainer, workers, batches):
    alone = gated()
    expected = [update(alone, trainer, number, workers * batches) for number in (0, 1)]
    trainer.workers = workers
    found = [[None] * (workers * batches) for _ in range(2)]
    for rank in range(workers):
        trainer.rank = rank
        model = gated()
        for number in (0, 1):
            found[number][rank::workers] = update(model, trainer, number, batches)
    torch.testing.assert_close(found, expected, atol=0, rtol=0)
    assert len({tuple(draw.tolist()) for draw in found[1]}) == workers * batches


def test_recomputed_activations_use_the_same_gates(trainer):
    found = []
    for checkpoint in (False, True):
        model = gated(checkpoint_activations=checkpoint)
        gradients(model)
        found.append([gate.weight.grad for gate in all_gates(model)])
    # large where other draws would give another gradient
    assert max(gradient.abs().max() for gradient in found[0]) > 1e-3
    torch.testing.assert_close(found[1], found[0], atol=1e-6, rtol=0)


# The heads of a pruned checkpoint from which training starts


def save_model(path, **options):
    """Save a checkpoint of a tiny model and return its path."""
    torch.save(state_of(build_model(**options), **options), path)
    return str(path)


def heads_of_training(save_dir, **options):
    """The head options that a training saves after it has built its model."""
    args = settings_of(save_dir=str(save_dir), **options)
    found = head_numbers(built(args)).items()
    heads = {option: getattr(args, option) for option in PRUNED}
    assert heads == {HEADS_OPTIONS[name]: ",".join(map(str, layers)) for name, layers in found}
    return heads


def test_training_from_a_pruned_checkpoint_takes_its_heads(tmp_path, caplog):
    pruned = save_model(tmp_path / "pruned.pt", **PRUNED)
    with caplog.at_level(logging.INFO):
        assert heads_of_training(tmp_path, finetune_from_model=pruned) == PRUNED
    assert f"are those of {pruned}: --encoder-self-attn-heads 3,0 " in caplog.text
    for option in ("restore_file", "continue_once"):
        assert heads_of_training(tmp_path, **{option: pruned}) == PRUNED
    given = {"cross_attn_heads": "1,1"}  # an option that is given is kept
    assert heads_of_training(tmp_path, restore_file=pruned, **given) == {**ALL_HEADS, **given}


def test_resumed_training_takes_the_heads_of_its_last_checkpoint(tmp_path, monkeypatch):
    other = save_model(tmp_path / "other.pt", encoder_self_attn_heads="1,1")
    save_model(tmp_path / "checkpoint_last.pt", **PRUNED)
    assert heads_of_training(tmp_path, finetune_from_model=other) == PRUNED
    # The saved options of a training give its heads, so no initial checkpoint is read
    monkeypatch.setattr(initial_checkpoint, "read_model", lambda path: pytest.fail(f"read {path}"))
    assert heads_of_training(tmp_path, **ALL_HEADS) == ALL_HEADS


def test_a_resumed_training_keeps_its_mappings(tmp_path):
    softmax = save_model(tmp_path / "checkpoint_last.pt", attn_mapping="softmax")
    assert heads_of_training(tmp_path, attn_mapping="softmax*2") == ALL_HEADS
    assert heads_of_training(tmp_path / "new", finetune_from_model=softmax) == ALL_HEADS
    assert heads_of_training(tmp_path, checkpoint_suffix="-b", attn_mapping="entmax15") == ALL_HEADS
    with pytest.raises(ValueError, match=r"mapping softmax.*, not entmax15.*: give another"):
        heads_of_training(tmp_path, attn_mapping="entmax15")
    save_model(tmp_path / "checkpoint_last.pt", attn_mapping="entmax:warmup=5")
    assert heads_of_training(tmp_path, attn_mapping="entmax|entmax:init=1.5*3") == ALL_HEADS
    assert heads_of_training(tmp_path, attn_mapping="entmax", encoder_layers_to_keep="1")


def test_a_checkpoint_that_fairseq_does_not_load_changes_no_heads(tmp_path, monkeypatch):
    save_model(tmp_path / "checkpoint_last.pt", **PRUNED)
    save_model(tmp_path / "best.pt", **PRUNED)
    monkeypatch.chdir(tmp_path)
    new = tmp_path / "new"
    assert heads_of_training(new, restore_file="checkpoint_last.pt") == ALL_HEADS
    monkeypatch.chdir("/")
    assert heads_of_training(tmp_path, restore_file="best.pt") == ALL_HEADS


def test_an_unreadable_or_unpruned_initial_checkpoint_changes_no_heads(tmp_path):
    (tmp_path / "damaged.pt").write_bytes(b"no checkpoint")
    whole = save_model(tmp_path / "whole.pt")
    for path in (tmp_path / "damaged.pt", whole, tmp_path / "none.pt"):
        assert heads_of_training(tmp_path, finetune_from_model=str(path)) == ALL_HEADS


ONE_GATE = {"head_gates": "encoder-self"}
NO_GATE = r"head gates in encoder\.layers\.0\.self_attn, .*give the --head-"


@pytest.mark.parametrize(
    ("theirs", "own", "message"),
    [
        (PRUNED, {}, "prune CHECKPOINT --print-config"),
        ({}, {"attn_mapping": "sqpnormmax:p=learned|softmax*3"}, r"alpha_logit.* of other mapping"),
        (
            {"encoder_layers": 3},
            {"attn_mapping": "softmax"},
            "do not fit the model: .*Unexpected key",
        ),
        (
            {"attn_mapping": "entmax:oscar=learned"},
            {"attn_mapping": "entmax:tv=learned"},
            r"parameters .*mapping.raw_oscar.*: give the mapping options",
        ),
        (ONE_GATE, {"head_gates": None}, NO_GATE),
        (ONE_GATE, {"head_gates": "cross"}, NO_GATE),
    ],
)
def test_a_checkpoint_of_other_heads_gates_or_mappings_is_refused(theirs, own, message):
    state = build_model(**theirs).state_dict()
    with pytest.raises(ValueError, match=message):
        build_model(**own).load_state_dict(state)
