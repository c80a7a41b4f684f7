"""What the machine and its Python have.

environment.py modules sentencepiece sacremoses      # fails where one is missing
environment.py mapping 'option --mapping' entmax     # fails where the package knows no such
environment.py device auto                           # prints cpu or gpu
environment.py gpus                                  # prints how many there are
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from importlib.util import find_spec

from messages import UsageError, one_sentence

DEVICES = ("auto", "cpu", "gpu")
ROUGE = "rouge_score"  # of an extra that only the recipes for summaries need


def require_modules(modules: Sequence[str]) -> None:
    """Do nothing where every module can be imported.

    Raises:
        ValueError: some are missing; the message says how to install them.
    """
    missing = [module for module in modules if find_spec(module) is None]
    if missing:
        extras = "fairseq,recipes,summaries" if ROUGE in missing else "fairseq,recipes"
        raise ValueError(
            f"python3 has no {' '.join(missing)}, which this recipe needs: run pip install "
            f"-c constraints.txt -e '.[{extras}]' in the project's folder"
        )


def require_mapping(what: str, mapping: str) -> None:
    """Ask the package, which alone knows the mappings, whether it knows this one.

    Whether a list fits the number of layers, fairseq-train says.

    Args:
        what: how the caller names the value, such as ``option --mapping``.

    Raises:
        UsageError: it does not, or cannot be imported.
    """
    try:
        from fairseq_entmax.mappings import parse_mappings

        parse_mappings(mapping)
    except (ValueError, ImportError) as error:
        raise UsageError(f"{what} got '{mapping}': {error}") from error


def gpus() -> int:
    """How many GPUs torch can use.

    Raises:
        ValueError: there is no torch.
    """
    try:
        import torch
    except ImportError as error:
        raise ValueError(
            "python3 cannot import torch: activate the virtual environment that has fairseq-entmax"
        ) from error
    return torch.cuda.device_count() if torch.cuda.is_available() else 0


def choose_device(wanted: str) -> str:
    """Return ``cpu`` or ``gpu`` for one of `DEVICES`; ``auto`` takes a GPU where there is one.

    Raises:
        ValueError: a GPU is wanted, and there is none.
    """
    if wanted == "cpu":
        return "cpu"
    found = "gpu" if gpus() else "cpu"
    if wanted not in ("auto", found):
        raise ValueError(
            "option --gpu was given, but torch finds no GPU (torch.cuda.is_available() is "
            "false): use --cpu, or install a torch build and a driver that fit the GPU"
        )
    return found


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    modules = commands.add_parser("modules", help="fail where one cannot be imported")
    modules.add_argument("modules", nargs="*")
    mapping = commands.add_parser("mapping", help="fail where the package does not know it")
    mapping.add_argument("what", help="how a message names it")
    mapping.add_argument("mapping")
    device = commands.add_parser("device", help="print cpu or gpu")
    device.add_argument("device", choices=DEVICES)
    commands.add_parser("gpus", help="print how many there are")
    options = parser.parse_args(arguments)
    with one_sentence():
        if options.command == "modules":
            require_modules(options.modules)
        elif options.command == "mapping":
            require_mapping(options.what, options.mapping)
        elif options.command == "device":
            print(choose_device(options.device))
        else:
            print(gpus())


if __name__ == "__main__":
    main()
