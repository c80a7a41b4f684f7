"""Refuses data of ``--dataset-impl fasta``.

Without it: fairseq hands the name of a data file to a shell, so whoever made the folder can run a
command.
Remove when: ``FastaDataset`` reads its files without a shell.
"""

from collections.abc import Callable
from typing import Any, NoReturn

from fairseq_entmax import command_errors


def refuse(index: Callable[..., Any], dataset: Any, path: str) -> NoReturn:
    """``FastaDataset._build_index``, but it raises ValueError."""
    with command_errors.stopping_command():
        raise ValueError(
            f"{path}.fasta is not read, as fairseq hands the names of such files to a shell: drop "
            f"--dataset-impl fasta, and give a folder that fairseq-preprocess wrote"
        )
