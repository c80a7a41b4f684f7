"""How much the memory of a process grows over many calls: ``python -m tests.flat_memory``.

Prints, for calls and for the epochs of a training, bytes of growth as JSON, and of the same with a leak
that is planted.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
from collections.abc import Callable
from functools import partial
from itertools import cycle
from typing import Any

import torch

CALLS, EPOCHS, UPDATES = 20_000, 3, 12
# Bytes that are planted, for each of some calls and for each update
LEAKED, LEAKED_IN_UPDATE, LEAKING_CALLS = 500, 80_000, CALLS // 5
# The smallest lengths, both sides of the lanes of a vector, and beyond room that is kept from the start
LENGTHS = (1, 5, 17, 170)
MAPPINGS = ("entmax", "entmax15", "sparsemax", "fusedmax", "oscarmax:oscar=0.1", "sqpnormmax")


def resident() -> int:
    """Bytes in memory, without what the allocator only holds ready."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    with open("/proc/self/statm") as numbers:
        return int(numbers.read().split()[1]) * os.sysconf("SC_PAGESIZE")


def growth(call: Callable[[], object], number: int) -> int:
    """Bytes by which so many calls grow the process, behind some that warm it up."""
    for _ in range(number // 10):
        call()
    before = resident()
    for _ in range(number):
        call()
    return resident() - before


def backward(function: Callable[..., torch.Tensor], *tensors: torch.Tensor, **options: Any) -> None:
    """A forward and a backward pass."""
    given = [tensor.detach().requires_grad_() for tensor in tensors]
    function(*given, **options).square().sum().backward()


def cases() -> list[Callable[[], object]]:
    """Mappings; attention, with dropout and masks and without; a step of decoding."""
    from fairseq_entmax.kernels.native.attention import attention
    from fairseq_entmax.kernels.native.decoding import Cached, step
    from fairseq_entmax.mappings import parse_mapping

    epsilon, found = torch.tensor([0.3, 1.0]), []
    for keys in LENGTHS:
        for text in MAPPINGS:
            mapping = parse_mapping(text).build(2)
            found.append(partial(backward, mapping, torch.randn(1, 2, 1, keys)))
        inputs = [*(torch.randn(1, 2, length, 8) for length in (3, keys, keys)), epsilon]
        for options in (
            {},
            {"dropout": 0.5, "seed": torch.tensor([7])},
            {"key_padding_mask": torch.zeros(1, keys, dtype=torch.bool)},
        ):
            found.append(partial(backward, attention, *inputs, scale=0.5, **options))
        key, value = torch.randn(2, 3, 2, keys, 8)
        cached = Cached(key, value, keys, torch.arange(3).int())
        found.append(partial(step, torch.randn(3, 16), cached, epsilon, 0.5, wants_probs=True))
    return found


def of_calls() -> tuple[int, int]:
    """Bytes by which calls, in turns, grow the process, and with a leak."""
    turns, leaked = cycle(cases()), []

    def leak() -> None:
        next(turns)()
        leaked.append(b"1" * (LEAKED + len(leaked) % 7))

    return growth(lambda: next(turns)(), CALLS), growth(leak, LEAKING_CALLS)


def of_training() -> tuple[int, int]:
    """Bytes by which the epochs behind the first grow a training of a tiny model, and with a leak."""
    from tests.support import build_model
    from tests.training import make_trainer, train

    trainer = make_trainer(build_model(attn_mapping="entmax,fusedmax"), "--lr=0.001")
    leaked: list[bytearray] = []

    def epochs(leaks: bool, number: int = EPOCHS) -> int:
        measured = []
        for epoch in range(1, number + 1):
            trainer.begin_epoch(epoch)
            for _ in range(UPDATES):
                train(trainer)
                if leaks:
                    leaked.append(bytearray(b"1" * LEAKED_IN_UPDATE))
            measured.append(resident())
        return measured[-1] - measured[0]

    epochs(False, 1)  # what is made once: the optimizer's state, meters
    return epochs(False), epochs(True, 2)


if __name__ == "__main__":
    torch.set_num_threads(1)
    print(json.dumps({"calls": of_calls(), "training": of_training()}))
