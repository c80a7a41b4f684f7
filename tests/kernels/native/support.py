"""Whether this machine can build the native kernels."""

import pytest

from fairseq_entmax.kernels.native import library


def can_build() -> bool:
    """Whether there is a C compiler that can build the library."""
    try:
        library.library()
    except library.CannotBuild:
        return False
    return True


needs_compiler = pytest.mark.skipif(not can_build(), reason="no C compiler makes the library here")
