"""Numbers as text: their bytes, compressed by zlib, in base64."""

from __future__ import annotations

import base64
import zlib

import numpy


def packed(numbers: numpy.ndarray) -> str:
    """The text of an array, whose type is little endian."""
    return base64.b64encode(zlib.compress(numbers.tobytes(), 9)).decode("ascii")


def unpacked(text: str, size: int) -> bytes:
    """So many bytes; no more are inflated."""
    inflated = zlib.decompressobj()
    try:
        # A byte more, so that the end of the data is reached, and what is behind it noticed
        data = inflated.decompress(base64.b64decode(text, validate=True), size + 1)
    except zlib.error as error:
        raise ValueError(str(error)) from None
    if len(data) != size or not inflated.eof or inflated.unused_data:
        raise ValueError(f"they are not the {size:,} bytes of it, and nothing else")
    return data
