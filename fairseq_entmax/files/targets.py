"""Which files a command may write."""

from __future__ import annotations

import os
from collections.abc import Iterable
from collections.abc import Mapping as Dictionary
from pathlib import Path

from fairseq_entmax.files import clear_leftovers


def check_target(path: str | os.PathLike[str], option: str, overwrite: bool) -> Path:
    """Refuse a file that must not be written, before any work.

    What a killed command left of it is cleared or completed first.

    Args:
        path: the file; where it is a link, the file that it leads to is meant.
        option: what named it, for errors.
        overwrite: whether a file that is there may be replaced.

    Returns:
        The file to write.

    Raises:
        FileExistsError: it is there, and is not to be replaced.
        FileNotFoundError: there is no folder for it.
        ValueError: it is a folder or a device.
    """
    name = os.fspath(path)
    target = Path(os.path.realpath(name))
    if not name or target.is_dir():
        raise ValueError(f"{option} got '{name}': give the name of a file")
    if target.exists() and not target.is_file():
        raise ValueError(f"{option} got '{name}', which is no ordinary file: give another name")
    if not target.parent.is_dir():
        raise FileNotFoundError(f"{option} got '{name}': there is no folder {target.parent}")
    clear_leftovers([target])
    if target.exists() and not overwrite:
        raise FileExistsError(
            f"{option} got '{name}', which exists: give another name, or --overwrite"
        )
    return target


def refuse_inputs(targets: Iterable[Path], inputs: Dictionary[str, str | None]) -> None:
    """Refuse to write over what is read, whatever ``--overwrite`` says.

    Args:
        targets: the files to write.
        inputs: what a file is, to its name; None where it is not given.

    Raises:
        ValueError: names both.
    """
    read = {Path(os.path.realpath(name)): what for what, name in inputs.items() if name}
    for target in targets:
        if target in read:
            raise ValueError(
                f"{target} is {read[target]}, and would be replaced: give another name"
            )
