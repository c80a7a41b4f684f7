"""What the tests of the loss's kernels share: scores that are hard, and the loss in float64."""

import torch

from fairseq_entmax.kernels import torch_losses


def some_rows(rows, keys, spread, masked=0.1, offset=0.0):
    """Scores in float32 with masked keys, and targets: the best key, any, and a masked one."""
    generator = torch.Generator().manual_seed(rows * 1000 + keys)
    scores = torch.randn(rows, keys, generator=generator) * spread + offset
    scores[torch.rand(rows, keys, generator=generator) < masked] = -torch.inf
    target = torch.randint(keys, (rows,), generator=generator)
    target[::2] = scores[::2].argmax(-1)
    return scores, target


def check(losses, gradients, scores, target, epsilon, smoothing, device="cpu"):
    """A kernel's parts and gradients against those of torch's operations in float64."""
    on = scores.to(device), target.to(device), epsilon, smoothing
    grad = torch.randn(target.shape, generator=torch.Generator().manual_seed(1))
    parts, saved = losses(*on)
    found = gradients(*on, saved, grad.to(device))
    wide = scores.double(), target, epsilon, smoothing
    expected, wide_saved = torch_losses.losses(*wide)
    truth = torch_losses.gradients(*wide, wide_saved, grad.double())
    for part, same in zip(parts, expected, strict=True):
        part = part.cpu().double()
        torch.testing.assert_close(part, same.double(), atol=2e-6, rtol=2e-6, equal_nan=True)
    torch.testing.assert_close(found.cpu().double(), truth, atol=4e-6, rtol=0, equal_nan=True)
