"""Run by test_forks.py: a child computes what its parent did on two threads.

``python -m tests.kernels.native.forks WAY``; prints one line of what the child made for each of its
processes, after a line of what the parent made, with and without torch.
"""

import hashlib
import multiprocessing
import os
import sys

import torch
from torch.utils.data import DataLoader, Dataset

from fairseq_entmax.kernels.native import attention, library, rows
from fairseq_entmax.mappings import entmax, softmax

ROWS, KEYS = 2048, 64
ALPHA = torch.full((ROWS, 1), 1.3)


def some(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(len(shape)))


SCORES, GRAD = some(ROWS, KEYS), some(ROWS, KEYS).flip(0)
QUERY, KEY, VALUE = (tensor.contiguous() for tensor in some(3, 2, 4, 128, 16))


def digest(with_torch: bool = True) -> str:
    """SHA-256 of what rows and attention give, forward and backward.

    Args:
        with_torch: also of what torch has a part in, which hangs in a child that is given two
            threads again.
    """
    for tensor in (SCORES, ALPHA, QUERY, KEY, VALUE):
        tensor.requires_grad_()
    probs = entmax(SCORES, ALPHA)
    tensors = [probs, *torch.autograd.grad(probs, (SCORES, ALPHA), GRAD)]
    epsilon = torch.full((4,), 0.5, requires_grad=True)
    attended = attention.attention(QUERY, KEY, VALUE, epsilon)
    inputs = (QUERY, KEY, VALUE, epsilon)
    tensors += [attended, *torch.autograd.grad(attended, inputs, VALUE.detach())]
    if with_torch:
        tensors += [*shared_alpha(), softmax(SCORES), entmax(SCORES.bfloat16(), 1.5)]
        tensors.append(attention.attention(QUERY, KEY, VALUE, epsilon, causal=True))
    content = hashlib.sha256()
    for tensor in tensors:
        content.update(tensor.detach().float().numpy().tobytes())
    return f"{content.hexdigest()} {_threads()}"


def shared_alpha() -> list[torch.Tensor]:
    """One alpha a head, whose gradient torch sums."""
    scores = SCORES.detach().view(8, 4, ROWS // 32, KEYS)
    alpha = torch.full((4, 1, 1), 1.4, requires_grad=True)
    probs = entmax(scores, alpha)
    return [probs, *torch.autograd.grad(probs, alpha, scores)]


def _threads() -> int:
    """Threads that both kernels take."""
    (threads,) = {rows._threads(ROWS, KEYS), attention._threads(QUERY, KEY)}
    return threads


class Digests(Dataset):
    """Data that a mapping makes."""

    def __init__(self, with_torch: bool) -> None:
        self.with_torch = with_torch

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> str:
        return digest(self.with_torch)


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
    for prepare in (None, take_two_threads):
        is_new = method == "spawn"  # which has as many threads as it is given
        with_torch = is_new or prepare is None
        with context.Pool(2, initializer=take_two_threads if is_new else prepare) as pool:
            for line in [pool.apply_async(digest, (with_torch,)) for _ in range(2)]:
                print(line.get())


def loaded() -> None:
    """By a data loader, with the threads that torch gives its workers and with more."""
    for prepare in (None, take_two_threads):
        data = Digests(with_torch=prepare is None)
        loader = DataLoader(data, num_workers=2, worker_init_fn=prepare, batch_size=None)
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
    print(digest(), digest(with_torch=False), flush=True)
    WAYS[sys.argv[1]]()
