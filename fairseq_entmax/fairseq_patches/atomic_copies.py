"""Copies checkpoints under another name until the copy is complete.

Without it: a training that is killed while it copies its checkpoint to ``checkpoint_last.pt`` leaves
half a file there, and cannot resume from it.
Remove when: ``PathManager.copy`` replaces a file only by a complete one.
"""

import os
from collections.abc import Callable
from typing import Any


def copy_whole(
    copy: Callable[..., Any], src_path: str, dst_path: str, overwrite: bool = False
) -> Any:
    """``PathManager.copy``, but a copy that replaces a file is first made under another name."""
    if not overwrite or "://" in dst_path:
        return copy(src_path, dst_path, overwrite)
    dst_path = os.path.realpath(dst_path)  # a link stays one
    temporary = f"{dst_path}.tmp"
    is_done = copy(src_path, temporary, overwrite)
    if is_done:
        os.replace(temporary, dst_path)
    return is_done
