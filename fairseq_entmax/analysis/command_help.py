"""The help of ``analyze`` and ``ablate``, and what is refused before torch and fairseq are imported."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from fairseq_entmax.analysis.arguments import (
    ABLATE,
    ANALYZE,
    add_ablate_options,
    add_analyze_options,
)

HELP_ALL = "--help-all"
# Of fairseq's options those that are needed most, with their help
OF_FAIRSEQ: dict[str, dict[str, Any]] = {
    "--gen-subset": {
        "metavar": "SUBSET",
        "help": "the data set: valid (default), test, train or another of DATA",
    },
    "--task": {
        "metavar": "TASK",
        "help": "translation (default), language_modeling, sentence_prediction, …",
    },
    "--max-tokens": {"metavar": "N", "help": "of a batch, or --batch-size in sentences"},
    "--cpu": {"action": "store_true", "help": "leave a GPU alone"},
}
OF_SEARCH = {
    "--beam": {"metavar": "N", "help": "and the like, such as --lenpen: how text is generated"}
}
OF_ABLATE: dict[str, dict[str, Any]] = {
    "--remove-bpe": {
        "metavar": "KIND",
        "nargs": "?",
        "help": "for bleu and rouge, put subwords together: sentencepiece, or '@@ '",
    },
}
COMMANDS = {"analyze": (ANALYZE, add_analyze_options), "ablate": (ABLATE, add_ablate_options)}


def early_parser(command: str) -> argparse.ArgumentParser:
    """A command's own options, and those of fairseq's that are needed most."""
    description, add_options = COMMANDS[command]
    parser = argparse.ArgumentParser(
        prog=f"fairseq-entmax {command}",
        usage=f"fairseq-entmax {command} DATA --path CHECKPOINT --output DIR [options]",
        description=description,
        allow_abbrev=False,
        add_help=False,
    )
    group = parser.add_argument_group("what is looked at")
    several = "; several with ':' between them" if command == "analyze" else ""
    group.add_argument("--path", metavar="FILE", help=f"the checkpoint{several}")
    add_options(parser)
    group = parser.add_argument_group("of fairseq's options those needed most")
    of_fairseq = OF_FAIRSEQ | OF_SEARCH | (OF_ABLATE if command == "ablate" else {})
    for name, how in of_fairseq.items():
        group.add_argument(name, **how)
    group.add_argument("--user-dir", metavar="DIR", help="a folder that registers more of its own")
    group = parser.add_argument_group("help")
    group.add_argument("-h", "--help", action="help", help="this text")
    group.add_argument(
        HELP_ALL, action="store_true", dest="help_all", help="every option of fairseq's, too"
    )
    return parser


def check_early(command: str, arguments: Sequence[str]) -> None:
    """Answer ``--help`` at once, and refuse what argparse does of the command's own options."""
    early_parser(command).parse_known_args(arguments)
