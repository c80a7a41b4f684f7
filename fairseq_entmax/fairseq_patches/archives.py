"""Safely extracts the archives that models come in.

Without it: ``from_pretrained("model.tar.gz")`` writes wherever names in the archive say, and a
missing folder raises a TypeError about None.
Remove when: fairseq extracts by ``tarfile``'s data filter, without links.
"""

import lzma
import os
import shutil
import tarfile
import tempfile
import zlib
from collections.abc import Callable
from typing import Any

from fairseq import file_utils


def extract_within_folder(load: Callable[..., Any], archive_file: str) -> Any:
    """``load_archive_file``, but an archive is extracted only into a folder of its own."""
    try:
        path = file_utils.cached_path(archive_file, cache_dir=None)
    except OSError as error:
        if "://" in str(archive_file):
            return load(archive_file)  # which says what is missing
        raise FileNotFoundError(
            f"there is no folder {archive_file}: from_pretrained takes the folder of the "
            f"checkpoint, the name of the checkpoint in it, and the folder of the data"
        ) from error
    if os.path.isfile(path):
        replace_by_folder(path)
    return load(archive_file)


def replace_by_folder(path: str) -> None:
    """Replace a tar archive by a folder with its content, as fairseq does.

    A folder around the whole content is left out. Nothing is written outside the new folder. After
    an error, the archive is still there, and nothing else.
    """
    parent = os.path.dirname(os.path.abspath(path))
    with tempfile.TemporaryDirectory(prefix=".extracted-", dir=parent) as folder:
        # Not the temporary folder itself, which only this user may read
        content = os.path.join(folder, "content")
        try:
            with tarfile.open(path) as archive:
                archive.extractall(content, filter=_only_plain)
        except (tarfile.TarError, EOFError, OSError, zlib.error, lzma.LZMAError) as error:
            if getattr(error, "errno", None):  # not of the content, such as a full disk
                raise
            raise ValueError(
                f"{path} is not an archive of a model, or is damaged, and nothing was kept: "
                f"from_pretrained takes an archive or the folder of a checkpoint ({' '.join(str(error).split())})"
            ) from None
        names = os.listdir(content)
        while len(names) == 1 and os.path.isdir(inner := os.path.join(content, names[0])):
            content, names = inner, os.listdir(inner)
        # Moved out of the temporary folder first, so that a kill leaves it or the archive
        whole = f"{path}.extracted"
        shutil.rmtree(whole, ignore_errors=True)
        os.rename(content, whole)
        os.remove(path)
        os.rename(whole, path)


def _only_plain(member: tarfile.TarInfo, folder: str) -> tarfile.TarInfo:
    """The data filter without links, which can lead some of its releases outside the folder."""
    if not (member.isreg() or member.isdir()):
        raise tarfile.SpecialFileError(member)
    return tarfile.data_filter(member, folder)
