"""Data of ``--dataset-impl fasta``, which are refused.

Without it: the name of a data file, and so whoever made the folder, runs a command, as fairseq hands
the name to a shell.
Remove when: ``FastaDataset`` reads its files without a shell.
"""

from collections.abc import Callable
from typing import Any, NoReturn

from fairseq_entmax import compat


def refuse(index: Callable[..., Any], dataset: Any, path: str) -> NoReturn:
    """``FastaDataset._build_index`` that refuses."""
    with compat.stopping_command():
        raise ValueError(
            f"{path}.fasta is not read, as fairseq hands the names of such files to a shell: drop "
            f"--dataset-impl fasta, and give a folder that fairseq-preprocess wrote"
        )
