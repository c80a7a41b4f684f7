"""In training, the weights of the last cross-attention are left out if nothing reads them."""

import pytest
import torch

from fairseq_entmax.fairseq_patches import unread_weights
from fairseq_entmax.models.entmax_transformer import EntmaxTransformerDecoder
from tests.support import batch, build_model
from tests.training import make_trainer, train

LOSS = ["--criterion=label_smoothed_cross_entropy", "--label-smoothing=0.1"]


@pytest.fixture
def returned(monkeypatch):
    """The attention weights that decoders return."""
    found = []
    original = EntmaxTransformerDecoder.forward

    def forward(self, *args, **kwargs):
        output = original(self, *args, **kwargs)
        found.extend(output[1]["attn"])
        return output

    monkeypatch.setattr(EntmaxTransformerDecoder, "forward", forward)
    return found


GATED = ["--criterion=label_smoothed_cross_entropy_with_head_l0", "--l0-weight=0.1"]


@pytest.mark.parametrize(
    "options",
    [LOSS, GATED, ["--criterion=cross_entropy"], ["--criterion=entmax_loss", "--loss-alpha=1"]],
)
def test_common_criterions_train_without_weights(returned, options):
    gates = "encoder-self" if options is GATED else None
    train(make_trainer(build_model(head_gates=gates), *options))
    assert returned == [None]


@pytest.mark.parametrize("which", ["criterion", "model", "decoder", "task"])
def test_custom_classes_that_may_read_weights_get_them(which, returned, monkeypatch):
    trainer = make_trainer(build_model(), *LOSS)
    model = trainer.get_model()
    parts = {"criterion": trainer.criterion, "model": model, "decoder": model.decoder}
    part = parts.get(which, trainer.task)
    stock = type(part)
    # A task counts as a user's if it has another training step
    own = {"train_step": lambda *given, **how: stock.train_step(*given, **how)}
    monkeypatch.setattr(part, "__class__", type("Own", (stock,), own))
    train(trainer)
    assert [tuple(weights.shape) for weights in returned] == [(3, 8, 9)]


def test_a_hook_sees_the_weights(returned):
    trainer, seen = make_trainer(build_model(), *LOSS), []
    attention = trainer.get_model().decoder.layers[-1].encoder_attn
    handle = attention.register_forward_hook(lambda _m, _i, output: seen.append(output[1].shape))
    train(trainer)
    handle.remove()
    train(trainer)
    assert len(seen) == 1
    assert returned[1] is None


def test_calls_between_updates_get_weights(returned):
    trainer = make_trainer(build_model(), *LOSS)
    train(trainer)
    trainer.get_model()(**batch([5], [4])["net_input"])
    assert returned[0] is None
    torch.testing.assert_close(returned[1].sum(-1), torch.ones(1, 4))


def test_a_failed_update_restores_the_weights():
    trainer = make_trainer(build_model(), *LOSS)

    def step(trainer):
        assert trainer.get_model().decoder.weights_are_unread
        raise RuntimeError

    with pytest.raises(RuntimeError):
        unread_weights.step_without(step, trainer)
    assert not trainer.get_model().decoder.weights_are_unread


def test_a_hook_on_the_last_attention_is_seen_despite_layerdrop():
    model = build_model(decoder_layerdrop=0.9).train()
    model.decoder.layers[-1].encoder_attn.register_forward_hook(lambda *_: None)
    state = torch.random.get_rng_state()
    assert not any(unread_weights._can_do_without(model) for _ in range(9))
    assert torch.equal(torch.random.get_rng_state(), state)


def test_gradients_are_those_with_weights(monkeypatch):
    def gradients():
        trainer = make_trainer(build_model(), *LOSS, "--clip-norm=0")
        train(trainer)
        return {name: one.grad for name, one in trainer.get_model().named_parameters()}

    without = gradients()
    monkeypatch.setattr(unread_weights, "READ_SCORES_ALONE", ())
    torch.testing.assert_close(without, gradients(), atol=2e-5, rtol=1e-4)
