"""Adam for all parameters at once gives fairseq's numbers, bitwise on a CPU."""

import inspect
from functools import partial

import pytest
import torch
from fairseq.optim.adam import Adam

from fairseq_entmax.fairseq_patches.adam import norm_at_once, step_at_once

STOCK = inspect.unwrap(Adam.step)


def trained(step, dtype=torch.float32, **options):
    """Parameters and steps after five updates; one parameter has no gradient in two of them."""
    draw = torch.Generator().manual_seed(1)
    parameters = [torch.randn(size, generator=draw).to(dtype) for size in ((3, 4), (7,), (1, 2, 2))]
    optimizer = Adam(parameters, lr=0.01, **options)
    for update in range(5):
        for number, parameter in enumerate(parameters):
            gradient = torch.randn(parameter.shape, generator=draw).to(dtype)
            parameter.grad = None if number == 1 and update in (0, 3) else gradient
        step(optimizer)
    return parameters, [optimizer.state[one]["step"] for one in parameters]


@pytest.mark.parametrize(
    "options",
    [{}, {"weight_decay": 0.1}, {"amsgrad": True}, {"dtype": torch.float16}],
    ids=["plain", "decay", "amsgrad", "half"],
)
def test_updates_are_bitwise_fairseqs(options):
    expected, steps = trained(STOCK, **options)
    found, found_steps = trained(partial(step_at_once, STOCK), **options)
    assert found_steps == steps == [5, 3, 5]
    torch.testing.assert_close(found, expected, atol=0, rtol=0)


def test_fairseqs_step_creates_the_missing_moments():
    calls = []

    def stock(*arguments):
        calls.append(arguments)
        return STOCK(*arguments)

    trained(partial(step_at_once, stock))
    assert len(calls) == 2


def test_the_joint_norm_matches_the_norms_of_single_gradients():
    gradients = [torch.randn(3, 5), torch.randn(40), torch.zeros(2, 2)]
    each = torch.stack([torch.norm(one, p=2, dtype=torch.float32) for one in gradients])
    assert torch.equal(norm_at_once(None, gradients), torch.norm(each))
