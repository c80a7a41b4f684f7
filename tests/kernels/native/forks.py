"""Compute the same in a parent and in forked children: ``python -m tests.kernels.native.forks``.

Prints the digest of the parent, which uses two threads, and then that of each child.
"""

import hashlib

import torch
from torch.utils.data import DataLoader, Dataset

from fairseq_entmax.kernels.native import attention
from fairseq_entmax.mappings import entmax


def digest() -> str:
    """SHA-256 of the results of rows and attention, forward and backward."""
    draw = torch.Generator().manual_seed(1)
    scores = torch.randn(2048, 64, generator=draw).requires_grad_()
    alpha = torch.full((2048, 1), 1.3, requires_grad=True)
    query, key, value = torch.randn(3, 2, 4, 128, 16, generator=draw).requires_grad_()
    probs = entmax(scores, alpha)
    attended = attention.attention(query, key, value, 0.5)
    tensors = [probs, *torch.autograd.grad(probs.square().sum(), (scores, alpha)), attended]
    tensors += torch.autograd.grad(attended.square().sum(), (query, key, value))
    content = hashlib.sha256()
    for tensor in tensors:
        content.update(tensor.detach().numpy().tobytes())
    return content.hexdigest()


class Digests(Dataset):
    """A dataset whose items are computed by a mapping."""

    def __len__(self) -> int:
        return 2

    def __getitem__(self, index: int) -> str:
        return digest()


if __name__ == "__main__":
    torch.set_num_threads(2)
    print(digest(), flush=True)
    for line in DataLoader(Digests(), num_workers=2, batch_size=None):
        print(line)
