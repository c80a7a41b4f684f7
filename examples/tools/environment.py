"""Find out what the installed package knows and which devices there are.

environment.py mapping 'option --mapping' entmax     # fails if the package does not know it
environment.py device auto                           # prints cpu or gpu
environment.py gpus                                  # prints the number of GPUs
"""

from __future__ import annotations

import sys

from messages import UsageError, one_sentence


def require_mapping(what: str, mapping: str) -> None:
    """Raise ``UsageError`` if the package does not know a mapping; the message calls it `what`."""
    from fairseq_entmax.mappings import parse_mappings

    try:
        parse_mappings(mapping)
    except ValueError as error:
        raise UsageError(f"{what} got '{mapping}': {error}") from error


def gpus() -> int:
    import torch

    return torch.cuda.device_count() if torch.cuda.is_available() else 0


def choose_device(wanted: str) -> str:
    found = "gpu" if gpus() else "cpu"
    if wanted not in ("auto", found):
        raise ValueError(
            "option --gpu was given, but torch finds no GPU (torch.cuda.is_available() is "
            "false): use --cpu, or install a torch build and a driver that fit the GPU"
        )
    return found


def main(arguments: list[str]) -> None:
    command, *words = arguments
    with one_sentence():
        if command == "mapping":
            require_mapping(*words)
        elif command == "device":
            print(choose_device(words[0]))
        else:
            print(gpus())


if __name__ == "__main__":
    main(sys.argv[1:])
