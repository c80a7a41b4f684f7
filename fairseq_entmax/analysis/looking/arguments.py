"""The options of ``look`` that are its own. Light: help is told without torch and fairseq."""

from __future__ import annotations

import argparse

from fairseq_entmax.attentions import ATTENTIONS

DESCRIPTION = (
    "Shows the attention on sentences of your own: translates each, or goes by the --translation "
    "given, and prints for each word those with the most weight; with --output also the report's "
    "page with every head. Models of this package and fairseq's transformer, also those that write "
    "one text (the text alone) or classify."
)
EPILOG = (
    "Beside these, fairseq's options: on subwords (--bpe sentencepiece --sentencepiece-model FILE, "
    "--bpe subword_nmt --bpe-codes FILE, --tokenizer moses), which are found out where the data "
    "lie beside them as in the recipes here; on search (--beam, --lenpen); --cpu, --fp16, "
    "--user-dir. They stand behind CHECKPOINT; --help-all prints all."
)
HELP_ALL = "--help-all"
TOP = 3


def add_look_options(parser: argparse.ArgumentParser) -> None:
    """Add the command's own options."""
    texts = parser.add_argument_group("Sentences")
    texts.add_argument(
        "--text", metavar="TEXT", action="append", help="a sentence; several by several --text"
    )
    texts.add_argument(
        "--translation",
        metavar="TEXT",
        action="append",
        help="what the model is to have said of it, in the order of --text (default: what it says, "
        "by beam search)",
    )
    texts.add_argument(
        "--second",
        metavar="TEXT",
        action="append",
        help="the second text of a pair, of models that classify pairs",
    )
    texts.add_argument(
        "--input",
        metavar="FILE",
        help="a sentence a line, behind a tab perhaps its translation, or the second of a pair; - "
        "is standard input",
    )
    texts.add_argument(
        "--data",
        metavar="DATA-BIN",
        help="the folder with the dictionaries (default: that of the training)",
    )
    texts.add_argument(
        "--lower",
        action=argparse.BooleanOptionalAction,
        help="lower-case the sentences, as the training text was (default: where the dictionary "
        "has no capital letter)",
    )
    shown = parser.add_argument_group("What is printed")
    shown.add_argument(
        "--attention",
        choices=ATTENTIONS,
        help="which (default: cross; decoder-self or encoder-self where there is no other)",
    )
    shown.add_argument(
        "--layer", type=int, metavar="N", help="of one layer, from 0 (default: the mean)"
    )
    shown.add_argument(
        "--head", type=int, metavar="N", help="of one head, from 0 (default: the mean)"
    )
    shown.add_argument(
        "--top",
        type=int,
        default=TOP,
        metavar="N",
        help="so many links of each word (default: %(default)s)",
    )
    shown.add_argument(
        "--words",
        action="store_true",
        help="words instead of subwords: weights are summed over the pieces of a word that is "
        "looked at, and are means over those of a word that looks",
    )
    shown.add_argument("--json", action="store_true", help="print all weights as JSON instead")
    shown.add_argument("--output", metavar="FILE.html", help="write the report's page, too")
    shown.add_argument("--overwrite", action="store_true", help="replace the page if it exists")


def own_parser() -> argparse.ArgumentParser:
    """Of the command's own options; what is left over is fairseq's."""
    parser = argparse.ArgumentParser(
        prog="fairseq-entmax look",
        usage='fairseq-entmax look CHECKPOINT --text "…" [options]',
        description=DESCRIPTION,
        epilog=EPILOG,
        allow_abbrev=False,
    )
    parser.add_argument(
        "checkpoint", metavar="CHECKPOINT", nargs="?", help="a file that fairseq-train wrote"
    )
    add_look_options(parser)
    parser.add_argument(HELP_ALL, action="store_true", help="fairseq's options, too")
    return parser
