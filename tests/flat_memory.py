"""How much the memory of a process grows over many calls: ``python -m tests.flat_memory KIND…``.

Prints, for each kind, bytes of growth as JSON, and of the same with a leak that is planted.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import sys
from collections.abc import Callable
from itertools import cycle

import torch

CALLS, EPOCHS, UPDATES = 10_000, 3, 12
# What is planted: so many bytes for each of some calls, as much as 100 for each of all, and for each update
LEAKED, LEAKING_CALLS = {"calls": 500, "updates": 80_000}, CALLS // 5
# The smallest lengths, both sides of the lanes of a vector, and beyond room that is kept from the start
LENGTHS = (1, 5, 17, 170)


def resident() -> int:
    """Bytes in memory, without what the allocator only holds ready."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    with open("/proc/self/statm") as numbers:
        return int(numbers.read().split()[1]) * os.sysconf("SC_PAGESIZE")


def growth(call: Callable[[], object], number: int = CALLS) -> int:
    """Bytes by which so many calls grow the process, behind some that warm it up."""
    for _ in range(max(40, number // 10)):
        call()
    before = resident()
    for _ in range(number):
        call()
    return resident() - before


def mappings() -> Callable[[], object]:
    """Forward and backward passes of each mapping, in turns."""
    from fairseq_entmax.mappings import parse_mapping

    texts = ("entmax", "entmax15", "sparsemax", "fusedmax", "oscarmax:oscar=0.1", "sqpnormmax")
    cases = cycle(
        [(parse_mapping(text).build(2), torch.randn(1, 2, 1, n)) for n in LENGTHS for text in texts]
    )

    def call() -> None:
        mapping, scores = next(cases)
        scores.requires_grad_()
        mapping(scores).square().sum().backward()
        scores.grad = None

    return call


def attention() -> Callable[[], object]:
    """Forward and backward passes of attention, with dropout and masks and without."""
    from fairseq_entmax.kernels.native.attention import attention as attend

    epsilon = torch.tensor([0.3, 1.0])
    cases = []
    for keys in LENGTHS:
        inputs = [torch.randn(1, 2, length, 8) for length in (3, keys, keys)]
        padding = torch.zeros(1, keys, dtype=torch.bool)
        cases.append((inputs, {}))
        cases.append((inputs, {"dropout": 0.5, "seed": torch.tensor([7])}))
        cases.append((inputs, {"key_padding_mask": padding}))
    turns = cycle(cases)

    def call() -> None:
        inputs, options = next(turns)
        given = [tensor.detach().requires_grad_() for tensor in (*inputs, epsilon)]
        attend(*given, scale=0.5, **options).square().sum().backward()

    return call


def decoding() -> Callable[[], object]:
    """Steps of decoding."""
    from fairseq_entmax.kernels.native.decoding import Cached, step

    epsilon, cases = torch.tensor([0.3, 1.0]), []
    for keys in LENGTHS:
        key, value = torch.randn(2, 3, 2, keys, 8)
        cases.append((torch.randn(3, 16), Cached(key, value, keys, torch.arange(3).int())))
    turns = cycle(cases)

    def call() -> None:
        query, cached = next(turns)
        step(query, cached, epsilon, 0.5, wants_probs=True)

    return call


def training() -> tuple[int, int]:
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
                    leaked.append(bytearray(b"1" * LEAKED["updates"]))
            measured.append(resident())
        return measured[-1] - measured[0]

    epochs(False, 1)  # what is made once: the optimizer's state, meters
    return epochs(False), epochs(True, 2)


def of_calls(call: Callable[[], object]) -> tuple[int, int]:
    """Bytes by which the calls grow the process, and with a leak."""
    leaked: list[bytes] = []

    def leak() -> None:
        call()
        leaked.append(b"1" * LEAKED["calls"])

    return growth(call), growth(leak, LEAKING_CALLS)


def main(kinds: list[str]) -> None:
    torch.set_num_threads(1)
    print(json.dumps({kind: KINDS[kind]() for kind in kinds}))


KINDS = {
    "mappings": lambda: of_calls(mappings()),
    "attention": lambda: of_calls(attention()),
    "decoding": lambda: of_calls(decoding()),
    "training": training,
}

if __name__ == "__main__":
    main(sys.argv[1:])
