"""The command ``fairseq-entmax``."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

import fairseq_entmax


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command.

    Args:
        arguments: what stands behind the command's name; None takes them from the shell.

    Returns:
        The exit status: 0, or 1 after an error, which is printed in one sentence. Wrong
        usage exits with status 2, as argparse does.
    """
    options = _parser().parse_args(arguments)
    try:
        options.run(options)
    except (OSError, ValueError, RuntimeError, ModuleNotFoundError) as error:
        print(f"fairseq-entmax {options.command}: {error}", file=sys.stderr)
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="fairseq-entmax", description="Tools around models of fairseq-entmax."
    )
    parser.add_argument("--version", action="version", version=fairseq_entmax.__version__)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    user_dir = commands.add_parser("user-dir", help="print the path to give to --user-dir")
    user_dir.set_defaults(run=_print_user_dir)

    alpha = commands.add_parser("alpha", help="print the alpha of every head of a checkpoint")
    alpha.add_argument("checkpoint", metavar="CHECKPOINT", help="a file that fairseq-train wrote")
    alpha.add_argument("--json", action="store_true", help="print JSON instead of a table")
    alpha.set_defaults(run=_print_alpha)
    return parser


def _print_user_dir(options: argparse.Namespace) -> None:
    print(Path(fairseq_entmax.__file__).resolve().parent)


def _print_alpha(options: argparse.Namespace) -> None:
    from fairseq_entmax.analysis import alpha_table

    rows = alpha_table.checkpoint_alphas(options.checkpoint)
    if options.json:
        print(json.dumps(alpha_table.as_json(rows), indent=2))
    else:
        print(alpha_table.as_table(rows))


if __name__ == "__main__":
    sys.exit(main())
