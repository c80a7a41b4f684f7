"""Run by test_forks.py: a child computes what its parent did on two threads.

``python -m tests.kernels.native.forks WAY``; prints one line of what the child made for each of its
processes, after what the parent made.
"""

import hashlib
import multiprocessing
import os
import sys

import torch
from torch.utils.data import DataLoader, Dataset

from fairseq_entmax.kernels.native import attention, library, rows
from fairseq_entmax.mappings import entmax

ROWS, KEYS = 2048, 64
ALPHA = torch.full((ROWS, 1), 1.3)


def some(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(len(shape)))


# Made before any fork: torch's own operations on so much would need the threads of the parent
SCORES, GRAD = some(ROWS, KEYS), some(ROWS, KEYS).flip(0)
QUERY, KEY, VALUE = (tensor.contiguous() for tensor in some(3, 2, 4, 128, 16))


def digest() -> str:
    """SHA-256 of what rows and attention give, forward and backward, by the kernel alone."""
    for tensor in (SCORES, ALPHA, QUERY, KEY, VALUE):
        tensor.requires_grad_()
    probs = entmax(SCORES, ALPHA)
    tensors = [probs, *torch.autograd.grad(probs, (SCORES, ALPHA), GRAD)]
    epsilon = torch.full((4,), 0.5, requires_grad=True)
    attended = attention.attention(QUERY, KEY, VALUE, epsilon)
    inputs = (QUERY, KEY, VALUE, epsilon)
    tensors += [attended, *torch.autograd.grad(attended, inputs, VALUE.detach())]
    content = hashlib.sha256()
    for tensor in tensors:
        content.update(tensor.detach().numpy().tobytes())
    return f"{content.hexdigest()} {_threads()}"


def _threads() -> int:
    """Threads that both kernels take."""
    (threads,) = {rows._threads(ROWS, KEYS), attention._threads(QUERY, KEY)}
    return threads


class Digests(Dataset):
    """Data that a mapping makes."""

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> str:
        return digest()


def take_two_threads(*_: object) -> None:
    """As the parent has them: torch gives a worker one."""
    torch.set_num_threads(2)


def forked(generations: int = 1) -> None:
    """Print in a child, or in the child of a child."""
    child = os.fork()
    if child:
        if os.waitpid(child, 0)[1]:
            os._exit(1)
        return
    if generations > 1:
        print(digest(), flush=True)
        forked(generations - 1)
    else:
        print(digest(), flush=True)
    os._exit(0)


def pooled(method: str) -> None:
    context = multiprocessing.get_context(method)
    with context.Pool(2, initializer=take_two_threads) as pool:
        for line in [pool.apply_async(digest) for _ in range(2)]:
            print(line.get())


def loaded() -> None:
    """By a data loader, with the threads that torch gives its workers and with more."""
    for prepare in (None, take_two_threads):
        loader = DataLoader(Digests(), num_workers=2, worker_init_fn=prepare, batch_size=None)
        for line in loader:
            print(line)


WAYS = {
    "fork": forked,
    "child of a child": lambda: forked(2),
    "multiprocessing, fork": lambda: pooled("fork"),
    "multiprocessing, spawn": lambda: pooled("spawn"),
    "data loader": loaded,
}

if __name__ == "__main__":
    take_two_threads()
    library.load()
    print(digest(), flush=True)
    WAYS[sys.argv[1]]()
