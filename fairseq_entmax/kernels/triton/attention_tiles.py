"""What a program of the attention kernels holds at a time, and on which GPUs it fits."""

from __future__ import annotations

import functools
from typing import NamedTuple

import torch
import triton

LARGEST_HEAD_DIM = 256
# A program holds all keys of a sentence if there are at most so many keys, and bytes of them
MOST_KEYS_IN_REGISTERS = 256
MOST_BYTES_OF_KEYS = 65536
LONG_BLOCK = 64
# The shared memory that a program takes, in KiB, by the bytes of a row of a head: the most that
# compiling for compute capability 8.0 showed, for any length
KIB_OF_ROWS = {256: 80, 512: 96, 1024: 192}


@functools.cache
def has_room(device: torch.device, row_bytes: int) -> bool:
    """Whether the programs for such rows fit a GPU, which must be Nvidia's, from 2020 or later."""
    properties = torch.cuda.get_device_properties(device)
    needed = next(kib for most, kib in KIB_OF_ROWS.items() if row_bytes <= most)
    room = getattr(properties, "shared_memory_per_block_optin", 0)
    return torch.version.hip is None and properties.major >= 8 and room >= needed * 1024


class Tile(NamedTuple):
    """Queries and keys of a program's block, its warps, and the depth of its pipeline."""

    queries: int
    keys: int
    warps: int
    stages: int
    whole: bool


def forward_tile(queries: int, keys: int, head_dim: int, item_bytes: int) -> Tile:
    """The tile of the forward kernel; with ``whole`` it has all keys.

    Sizes are the largest with which the compiler for an H100 keeps a tile in registers, or nearly
    so. They were chosen by its report of register spills, not by timing.
    """
    width, block, is_full_precision = block_of(head_dim), block_of(keys), item_bytes > 2
    most = MOST_KEYS_IN_REGISTERS // 2 if is_full_precision else MOST_KEYS_IN_REGISTERS
    whole = block <= most and block * width * item_bytes <= MOST_BYTES_OF_KEYS
    if not whole:
        block = LONG_BLOCK if width * item_bytes <= 512 else LONG_BLOCK // 2
    rows = 64
    if is_full_precision and whole and block * width * item_bytes == MOST_BYTES_OF_KEYS:
        rows = 16
    elif block > (64 if is_full_precision else 128) or width * item_bytes >= 512:
        rows = 32
    rows = min(rows, block_of(queries))
    warps = 8 if block > 64 or width * item_bytes >= 512 else _warps(rows, max(block, width))
    # Two blocks of keys and values at a time only if they leave room for other programs
    return Tile(rows, block, warps, 2 if width * item_bytes <= 256 else 1, whole)


def backward_tile(queries: int, keys: int, head_dim: int, item_bytes: int) -> Tile:
    """The tile of both backward kernels."""
    width = block_of(head_dim)
    most = LONG_BLOCK if width * item_bytes <= 128 else block_of(LONG_BLOCK // 2)
    rows, block = min(block_of(queries), most), min(block_of(keys), most)
    warps = 8 if width * item_bytes >= 512 or rows * block > 2048 else 4
    return Tile(rows, block, warps, 1, False)


def block_of(length: int) -> int:
    """The next power of two, and at least the 16 that tensor cores multiply."""
    return max(16, int(triton.next_power_of_2(length)))


def _warps(rows: int, columns: int) -> int:
    return 2 if rows * columns <= 2048 else 4
