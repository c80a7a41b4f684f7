"""A whole model on a GPU with the Triton kernels, compared with the same model on the CPU."""

from copy import deepcopy

import pytest
import torch
from fairseq import utils

from fairseq_entmax import kernels
from tests.support import build_model, sample, search, spread_scores, tiny_task

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU for torch")

# Relative errors: float32 products use parts of 19 bits, and float16 has 11 bits
TOLERANCES = {torch.float32: 1e-4, torch.float16: 3e-2}
on_both = pytest.mark.parametrize("dtype", TOLERANCES, ids=str)
every_mapping = pytest.mark.parametrize("mapping", ["entmax", "entmax15"])


def models(mapping, dtype, monkeypatch):
    """The model on the CPU in float32, and its copy on the GPU."""
    monkeypatch.setenv(kernels.VARIABLE, kernels.AUTO)
    model = spread_scores(build_model(attn_mapping=mapping))
    return model, deepcopy(model).to("cuda", dtype)


def loss_and_gradient(model, given):
    """The loss of the batch in float32, and the gradients of all parameters as one vector."""
    model.train()  # without dropout; fairseq uses other kernels for evaluation
    logits, _ = model(**given["net_input"])
    pad = tiny_task().target_dictionary.pad()
    loss = torch.nn.functional.cross_entropy(
        logits.float().flatten(0, 1), given["target"].flatten(), ignore_index=pad
    )
    grads = torch.autograd.grad(loss, [*model.parameters()])
    return loss.detach().cpu(), torch.cat([grad.flatten().double().cpu() for grad in grads])


@every_mapping
@on_both
def test_loss_and_gradients_match_the_cpu(mapping, dtype, monkeypatch):
    on_cpu, on_gpu = models(mapping, dtype, monkeypatch)
    expected_loss, expected = loss_and_gradient(on_cpu, sample())
    loss, gradient = loss_and_gradient(on_gpu, utils.move_to_cuda(sample()))
    torch.testing.assert_close(loss, expected_loss, rtol=TOLERANCES[dtype], atol=0)
    # Rounded scores add keys to the support or remove them; their gradients are small but not 0
    assert (gradient - expected).norm() <= 3 * TOLERANCES[dtype] * expected.norm()


@every_mapping
@on_both
def test_translations_match_the_cpu(mapping, dtype, monkeypatch):
    on_cpu, on_gpu = models(mapping, dtype, monkeypatch)
    runs = [(on_cpu, sample()), (on_gpu, utils.move_to_cuda(sample()))]
    expected, found = ([best for best, *_ in search(*run, max_len_b=10)] for run in runs)
    for (words, score), (true_words, true_score) in zip(found, expected, strict=True):
        # In float16 another translation with an almost equal score may be the best
        assert score == pytest.approx(true_score, rel=TOLERANCES[dtype])
        assert words == true_words or dtype == torch.float16
