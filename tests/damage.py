"""Damaged files, and what a command is to make of them: one sentence that names the file."""

import warnings
from collections.abc import Callable

from fairseq_entmax import cli

# A kind of damage: its name, and what it makes of a file's bytes
Kind = tuple[str, Callable[[bytes], bytes]]


def sentence_of(arguments, capsys):
    """What a command that must fail says: the error, or how it failed to say one.

    A traceback is an exception that leaves the command; a sentence is one line.
    """
    capsys.readouterr()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            status = cli.main([str(argument) for argument in arguments])
        except SystemExit as error:
            status = error.code
        except BaseException as error:
            return f"TRACEBACK {type(error).__name__}: {error}"
    said = capsys.readouterr().err.splitlines()
    mine = [line for line in said if line.startswith(f"fairseq-entmax {arguments[0]}: ")]
    if status != 1 or len(mine) != 1 or said[-1] != mine[0]:
        return f"STATUS {status}: {' / '.join(said)}"
    return mine[0]


def cut(share: float) -> Callable[[bytes], bytes]:
    """Keeps the first part."""
    return lambda content: content[: int(len(content) * share)]
