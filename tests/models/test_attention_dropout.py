"""Dropout of attention's weights in fairseq's trainer, where a kernel drops them."""

import pytest
import torch

from fairseq_entmax import kernels
from fairseq_entmax.kernels.native import attention as native_attention
from tests.kernels.native.support import needs_compiler
from tests.support import build_model
from tests.training import make_trainer, train

pytestmark = needs_compiler


@pytest.fixture
def dropouts(monkeypatch):
    """The dropouts that the kernel was called with."""
    seen, original = [], native_attention.attention

    def watched(*arguments, **options):
        seen.append(options.get("dropout", 0.0))
        return original(*arguments, **options)

    monkeypatch.setenv(kernels.VARIABLE, kernels.NATIVE)
    monkeypatch.setattr(native_attention, "attention", watched)
    return seen


def weights_after(updates=2, seed=1, **options):
    """All weights of a tiny model after some updates, in one row."""
    model = build_model(**{"attention_dropout": 0.1, **options})
    # Adam makes the last digits of a gradient near 0 large
    train(make_trainer(model, f"--seed={seed}", "--optimizer=sgd", "--lr=0.1"), updates)
    return torch.cat([one.detach().flatten() for one in model.parameters()])


def test_the_same_seed_gives_the_same_weights_and_another_gives_others(dropouts):
    once = weights_after()
    assert set(dropouts) == {0.1}
    assert torch.equal(weights_after(), once)
    assert not torch.allclose(weights_after(seed=2), once, atol=1e-4)
    assert not torch.allclose(weights_after(attention_dropout=0.0), once, atol=1e-4)


def test_recomputed_layers_drop_the_same_weights(dropouts):
    once, calls = weights_after(), len(dropouts)
    again = weights_after(checkpoint_activations=True)
    assert len(dropouts) == 3 * calls
    torch.testing.assert_close(again, once, atol=1e-6, rtol=1e-5)
    assert (weights_after(seed=2) - once).abs().max() > 1e-3
