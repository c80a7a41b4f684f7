"""Models with gates on their heads and with fewer heads: options, checkpoints, draws."""

import argparse
import logging
from argparse import Namespace

import pytest
import torch
from fairseq.distributed import utils as distributed_utils
from fairseq.models import ARCH_CONFIG_REGISTRY

from fairseq_entmax import compat
from fairseq_entmax.models import EntmaxTransformerModel
from fairseq_entmax.models import config as model_options
from fairseq_entmax.models import saved as start_module
from fairseq_entmax.models.config import HEADS_OPTIONS
from fairseq_entmax.modules import attention_modules
from tests.support import TINY, batch, build_model, tiny_task

ALL = "encoder-self,decoder-self,cross"
UNEVEN = {
    "encoder_self_attn_heads": "1,3",
    "decoder_self_attn_heads": "0,2",
    "cross_attn_heads": "4,0",
}


@pytest.fixture
def trainer(monkeypatch):
    """Stands for fairseq's trainer and for its workers."""

    class Trainer:
        updates = 0
        rank = 0
        workers = 1

    trainer = Trainer()
    monkeypatch.setattr(compat, "trainer_num_updates", lambda: trainer.updates)
    monkeypatch.setattr(distributed_utils, "get_global_rank", lambda: trainer.rank)
    monkeypatch.setattr(distributed_utils, "get_global_world_size", lambda: trainer.workers)
    return trainer


def sample():
    return batch([9, 7, 4], [6, 8, 5], left_pad_source=True, left_pad_target=False)


def logits(model):
    with torch.no_grad():
        return model(**sample()["net_input"])[0]


def head_numbers(model):
    found = {}
    for attention, _, module in attention_modules(model):
        found.setdefault(attention, []).append(module.num_heads)
    return found


def all_gates(model):
    return [gate for layers in model.head_gates().values() for gate in layers.values()]


# Numbers of heads


def test_without_options_a_model_has_all_its_heads_and_no_gates():
    model = build_model(decoder_attention_heads=2)
    assert head_numbers(model) == {
        "encoder-self": [4, 4],
        "decoder-self": [2, 2],
        "cross": [2, 2],
    }
    assert model.head_gates() == {}
    assert model.pruning_state is None
    stock = build_model("transformer", decoder_attention_heads=2)
    added = set(model.state_dict()) - set(stock.state_dict())
    assert all(name.endswith("mapping.alpha_logit") for name in added)


@pytest.mark.parametrize(
    ("value", "expected"),
    [("3,0", [3, 0]), ("2", [2, 2]), ([1, 4], [1, 4]), (2, [2, 2]), (0, [0, 0])],
)
def test_heads_are_given_for_each_layer_or_once_for_all(value, expected):
    model = build_model(encoder_self_attn_heads=value)
    assert head_numbers(model) == {
        "encoder-self": expected,
        "decoder-self": [4, 4],
        "cross": [4, 4],
    }


@pytest.mark.parametrize("before", [True, False])
def test_every_parameter_of_a_model_of_uneven_heads_gets_a_gradient(before):
    model = build_model(
        head_gates="encoder-self,cross",
        encoder_normalize_before=before,
        decoder_normalize_before=before,
        **UNEVEN,
    ).train()
    model(**sample()["net_input"])[0].pow(2).mean().backward()
    # Distributed training waits for every gradient
    assert [name for name, p in model.named_parameters() if p.grad is None] == []


@pytest.mark.parametrize("before", [True, False])
def test_a_layer_norm_that_nothing_would_look_at_is_left_out(before):
    options = {"encoder_normalize_before": before, "decoder_normalize_before": before}
    names = {
        "encoder.layers.0.self_attn_layer_norm.weight",
        "decoder.layers.0.self_attn_layer_norm.weight",
        "decoder.layers.1.encoder_attn_layer_norm.weight",
    }
    full = set(build_model(**options).state_dict())
    fewer = set(build_model(**options, **{**UNEVEN, "encoder_self_attn_heads": "0,4"}).state_dict())
    assert names <= full
    gone = {name for name in full - fewer if "layer_norm.weight" in name}
    assert gone == (names if before else set())


@pytest.mark.parametrize("heads", [0, 1, 3])  # of width 4, in blocks of 8
def test_quantisation_noise_takes_any_number_of_heads(heads):
    noise = {"quant_noise_pq": 0.5, "quant_noise_pq_block_size": 8}
    model = build_model(**noise, encoder_self_attn_heads=heads).train()
    model(**sample()["net_input"])[0].pow(2).mean().backward()
    gradients = [p.grad for p in model.parameters() if p.grad is not None]
    assert len(gradients) > 20
    assert all(gradient.isfinite().all() for gradient in gradients)


def test_layers_that_are_left_out_leave_their_heads_with_them():
    model = build_model(
        encoder_layers=3,
        encoder_layers_to_keep="0,2",
        encoder_self_attn_heads="1,2,3",
        decoder_layers=3,
        decoder_layers_to_keep="1,2",
        decoder_self_attn_heads="1,0,2",
        cross_attn_heads="3",
    )
    assert head_numbers(model) == {
        "encoder-self": [1, 3],
        "decoder-self": [0, 2],
        "cross": [3, 3],
    }
    # Or heads of the layers kept alone
    options = {"encoder_layers": 3, "encoder_layers_to_keep": "0,2"}
    own = build_model(**options, encoder_self_attn_heads="1,3")
    assert head_numbers(own)["encoder-self"] == [1, 3]


# Gates


def test_gates_stand_on_the_attentions_that_are_named_one_for_each_head():
    model = build_model(head_gates="cross,encoder-self", **UNEVEN)
    found = {
        (attention, layer): gate.num_heads
        for attention, layers in model.head_gates().items()
        for layer, gate in layers.items()
    }
    # cross attention of layer 1 has no heads
    assert found == {("encoder-self", 0): 1, ("encoder-self", 1): 3, ("cross", 0): 4}
    assert list(model.head_gates()) == ["encoder-self", "cross"]


def test_gates_are_as_the_options_say():
    model = build_model(
        head_gates=ALL,
        gate_temperature="0.5",
        gate_stretch="-0.2,1.3",
        gate_init="1.5",
        gate_lr_factor=4,
    )
    for gate in all_gates(model):
        assert (gate.temperature, gate.stretch, gate.lr_factor) == (0.5, (-0.2, 1.3), 4.0)
        torch.testing.assert_close(gate.log_a, torch.full((4,), 1.5))
        torch.testing.assert_close(gate.weight, torch.full((4,), 1.5 / 4))


def test_new_gates_leave_weights_and_scores_as_they_would_be_without_gates():
    plain, gated = build_model(seed=3), build_model(seed=3, head_gates=ALL)
    assert all(torch.equal(gated.state_dict()[n], v) for n, v in plain.state_dict().items())
    assert torch.equal(logits(gated), logits(plain))


def test_a_stock_transformer_starts_with_open_gates_and_the_log_says_so(caplog):
    stock = build_model("transformer", seed=5)
    model = build_model(attn_mapping="softmax", head_gates="encoder-self,cross", seed=6)
    with caplog.at_level(logging.WARNING):
        model.load_state_dict(stock.state_dict())
    torch.testing.assert_close(logits(model), logits(stock), atol=1e-5, rtol=0)
    (line,) = [r.getMessage() for r in caplog.records if "head gates" in r.getMessage()]
    assert "they start at --gate-init 2.5" in line
    assert "encoder.layers.0.self_attn" in line
    assert "decoder.layers.1.encoder_attn" in line
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


@pytest.mark.parametrize("gates", [None, "cross"])
def test_gates_in_a_checkpoint_that_the_model_does_not_have_are_refused(gates):
    state = build_model(head_gates="encoder-self").state_dict()
    with pytest.raises(
        ValueError, match=r"head gates in encoder\.layers\.0\.self_attn, "
    ) as refusal:
        build_model(head_gates=gates).load_state_dict(state)
    assert "give the --head-gates that it was trained with" in str(refusal.value)
    assert "fairseq-entmax prune" in str(refusal.value)


@pytest.mark.parametrize("share", [True, False])
def test_a_frozen_decoder_keeps_every_parameter_shared_embeddings_included(share):
    assert all(parameter.requires_grad for parameter in build_model().parameters())
    model = build_model(
        freeze_decoder=True, share_all_embeddings=share, head_gates="encoder-self"
    ).train()
    assert not any(parameter.requires_grad for parameter in model.decoder.parameters())
    model(**sample()["net_input"])[0].pow(2).mean().backward()
    frozen = {name for name, p in model.named_parameters() if p.grad is None}
    expected = {f"decoder.{name}" for name, _ in model.decoder.named_parameters()}
    if share:  # named where fairseq comes upon them first
        expected = expected - {"decoder.embed_tokens.weight"} | {"encoder.embed_tokens.weight"}
    assert frozen == expected
    assert all(gate.weight.grad is not None for gate in all_gates(model))


# Draws


def draws(model):
    """The gates of one training pass."""
    model.train()
    model(**batch([3], [2])["net_input"])
    return torch.cat([gate().detach() for gate in all_gates(model)])


def gated(seed=1, **options):
    # wide enough apart that two draws are never the same by being clipped
    return build_model(seed=seed, head_gates=ALL, gate_init=0.0, gate_temperature=0.99, **options)


def update(model, trainer, number, batches=1):
    """The draws of one update of one worker."""
    trainer.updates = number
    return [draws(model) for _ in range(batches)]


def test_a_draw_depends_on_seed_update_and_batch_and_on_nothing_before(trainer):
    model = gated()
    first = update(model, trainer, 0, 2) + update(model, trainer, 1, 2)
    assert len({tuple(draw.tolist()) for draw in first}) == 4
    again = gated()
    torch.rand(100)
    update(again, trainer, 1, 3)
    torch.testing.assert_close(update(again, trainer, 0, 2), first[:2], atol=0, rtol=0)
    other = gated(seed=2)
    assert not torch.equal(update(other, trainer, 0)[0], first[0])


def test_validation_between_updates_draws_nothing(trainer):
    model = gated()
    expected = update(model, trainer, 0) + update(model, trainer, 1)
    model = gated()
    found = update(model, trainer, 0)
    trainer.updates = 1
    model.eval()
    first, second = logits(model), logits(model)
    assert torch.equal(first, second)
    found += update(model, trainer, 1)
    torch.testing.assert_close(found, expected, atol=0, rtol=0)


@pytest.mark.parametrize(("workers", "batches"), [(2, 2), (3, 1)])
def test_workers_draw_what_one_worker_does_that_makes_all_their_batches(trainer, workers, batches):
    alone = gated()
    expected = update(alone, trainer, 0, workers * batches)
    expected_next = update(alone, trainer, 1, workers * batches)
    trainer.workers = workers
    found, found_next = {}, {}
    for rank in range(workers):
        trainer.rank = rank
        model = gated()
        for draws_of, number in ((found, 0), (found_next, 1)):
            for place, draw in enumerate(update(model, trainer, number, batches)):
                draws_of[place * workers + rank] = draw
    for draws_of, wanted in ((found, expected), (found_next, expected_next)):
        everything = [draws_of[number] for number in range(workers * batches)]
        torch.testing.assert_close(everything, wanted, atol=0, rtol=0)
    assert len({tuple(draw.tolist()) for draw in everything}) == workers * batches


def test_one_pass_draws_once_for_all_sentences_and_differently_for_each_layer(trainer):
    model = gated().train()
    source = sample()["net_input"]["src_tokens"][:1].expand(3, -1)
    target = sample()["net_input"]["prev_output_tokens"][:1].expand(3, -1)
    output, _ = model(source, torch.full((3,), source.size(1)), target)
    torch.testing.assert_close(output[1:], output[:1].expand(2, -1, -1), atol=1e-5, rtol=0)
    values = torch.cat([gate().detach() for gate in all_gates(model)])
    inside = values[(values > 0) & (values < 1)]
    assert len(inside) > 6
    assert inside.unique().numel() == len(inside)


def test_activations_that_are_computed_again_see_the_same_gates(trainer):
    gradients = []
    for checkpoint in (False, True):
        model = gated(checkpoint_activations=checkpoint).train()
        model(**sample()["net_input"])[0].pow(2).mean().backward()
        gradients.append([gate.weight.grad for gate in all_gates(model)])
    # large where other draws would give another gradient
    assert max(gradient.abs().max() for gradient in gradients[0]) > 1e-3
    torch.testing.assert_close(gradients[1], gradients[0], atol=1e-6, rtol=0)


def test_the_command_line_and_a_yaml_file_give_the_same_model():
    parser = argparse.ArgumentParser()
    model_options.add_arguments(parser)
    arguments = "--encoder-self-attn-heads 1,3 --head-gates encoder-self --gate-stretch=-0.2,1.2"
    parsed = vars(parser.parse_args([*arguments.split(), "--gate-init", "0.5"]))
    given = {name: value for name, value in parsed.items() if value is not None}
    from_shell = build_model(**given)
    from_yaml = build_model(
        encoder_self_attn_heads=[1, 3],
        head_gates=["encoder-self"],
        gate_stretch=[-0.2, 1.2],
        gate_init=0.5,
    )
    for one, other in zip(all_gates(from_shell), all_gates(from_yaml), strict=True):
        assert one.stretch == other.stretch == (-0.2, 1.2)
    assert all(
        torch.equal(from_yaml.state_dict()[n], v) for n, v in from_shell.state_dict().items()
    )


# --- the heads of the checkpoint from which training starts --------------------

PRUNED = {
    "encoder_self_attn_heads": "3,0",
    "decoder_self_attn_heads": "4,1",
    "cross_attn_heads": "2,2",
}


def saved(path, **options):
    """A checkpoint of a tiny model."""
    model = build_model(**options)
    args = Namespace(arch="entmax_transformer", **{**TINY, **options})
    torch.save({"cfg": {"model": args}, "args": None, "model": model.state_dict()}, path)
    return path


def heads_of_training(save_dir, **options):
    """The options of heads that a training saves, when it has built its model."""
    args = Namespace(arch="entmax_transformer", save_dir=str(save_dir), **{**TINY, **options})
    ARCH_CONFIG_REGISTRY["entmax_transformer"](args)
    model = EntmaxTransformerModel.build_model(args, tiny_task())
    built = {option: [] for option in PRUNED}
    for attention, _, module in attention_modules(model):
        built[HEADS_OPTIONS[attention]].append(str(module.num_heads))
    heads = {option: getattr(args, option) for option in PRUNED}
    assert heads == {option: ",".join(layers) for option, layers in built.items()}
    return heads


ALL_HEADS = dict.fromkeys(PRUNED, "4,4")


def test_training_that_starts_from_a_pruned_checkpoint_has_its_heads(tmp_path, caplog):
    pruned = saved(tmp_path / "pruned.pt", **PRUNED)
    with caplog.at_level(logging.INFO):
        assert heads_of_training(tmp_path, finetune_from_model=str(pruned)) == PRUNED
    assert f"are those of {pruned}: --encoder-self-attn-heads 3,0 " in caplog.text
    assert heads_of_training(tmp_path, restore_file=str(pruned)) == PRUNED
    given = {"cross_attn_heads": "1,1"}  # which stays
    own = heads_of_training(tmp_path, finetune_from_model=str(pruned), **given)
    assert own == {**ALL_HEADS, **given}


def test_training_that_goes_on_has_the_heads_of_its_own_last_checkpoint(tmp_path):
    other = saved(tmp_path / "other.pt", encoder_self_attn_heads="1,1")
    saved(tmp_path / "checkpoint_last.pt", **PRUNED)
    assert heads_of_training(tmp_path, finetune_from_model=str(other)) == PRUNED


@pytest.mark.parametrize("content", [b"", b"no checkpoint", None])
def test_a_start_that_cannot_be_read_or_was_not_pruned_changes_nothing(tmp_path, content):
    start = tmp_path / "start.pt"
    if content is None:
        saved(start)
    else:
        start.write_bytes(content)
    assert heads_of_training(tmp_path, finetune_from_model=str(start)) == ALL_HEADS
    assert heads_of_training(tmp_path, finetune_from_model=str(tmp_path / "none.pt")) == ALL_HEADS


def test_what_training_saved_says_its_heads_and_no_start_is_looked_for(tmp_path, monkeypatch):
    heads = heads_of_training(tmp_path)
    monkeypatch.setattr(start_module, "read_model", lambda path: pytest.fail(f"looked at {path}"))
    saved(tmp_path / "checkpoint_last.pt", **PRUNED)
    assert heads_of_training(tmp_path, **heads) == ALL_HEADS


@pytest.mark.parametrize(
    ("theirs", "own", "message"),
    [
        (PRUNED, {}, "prune CHECKPOINT --print-config"),
        (
            {"attn_mapping": "entmax"},
            {"attn_mapping": "sqpnormmax:p=learned|softmax*3"},
            r"learned .*mapping.alpha_logit.* of other mappings than",
        ),
        (
            {"attn_mapping": "entmax:oscar=learned"},
            {"attn_mapping": "entmax:tv=learned"},
            r"learned .*mapping.raw_oscar.*: give the --attn-mapping",
        ),
    ],
)
def test_a_checkpoint_of_other_heads_or_mappings_is_refused(theirs, own, message):
    state = build_model(**theirs).state_dict()
    with pytest.raises(ValueError, match=message):
        build_model(**own).load_state_dict(state)


def test_heads_apart_start_from_what_all_heads_have_learned():
    start = build_model(attn_mapping="entmax")
    model = build_model(attn_mapping="entmax:tv=learned|softmax|entmax*2")
    model.load_state_dict(start.state_dict())
    (learned, found) = (one.encoder.layers[0].self_attn.mapping for one in (start, model))
    expected = learned.head_values()["alpha"].clone()
    expected[1] = 1.0
    assert torch.equal(found.head_values()["alpha"], expected)
    assert found.head_values()["tv"][0].item() == pytest.approx(0.1, abs=1e-6)
