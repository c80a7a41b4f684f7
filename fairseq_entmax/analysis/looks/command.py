"""The command ``fairseq-entmax look``."""

from __future__ import annotations

import argparse
import importlib
import json
import sys
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path

from fairseq_entmax.analysis.looks import USAGE
from fairseq_entmax.attentions import ATTENTIONS
from fairseq_entmax.files import check_target, refuse_inputs

DESCRIPTION = (
    "Shows the attention on your own sentences: translates each, or uses the given --translation, "
    "and prints for each word the words with the largest weights; with --output also writes the "
    "report's page with every head. Takes models of this package, fairseq's transformer, and "
    "language models (text alone)."
)
EPILOG = (
    "fairseq's options come after CHECKPOINT: for subwords (--bpe sentencepiece "
    "--sentencepiece-model FILE, --bpe subword_nmt --bpe-codes FILE, --tokenizer moses), for search "
    "(--beam, --lenpen), and --cpu, --fp16, --user-dir. fairseq-generate --help shows others."
)


def look_parser() -> argparse.ArgumentParser:
    """Return the parser of the command's own options, without fairseq's."""
    parser = argparse.ArgumentParser(
        prog="fairseq-entmax look",
        usage=USAGE,
        description=DESCRIPTION,
        epilog=EPILOG,
        allow_abbrev=False,
    )
    parser.add_argument(
        "checkpoint", metavar="CHECKPOINT", nargs="?", help="a file that fairseq-train wrote"
    )
    add = parser.add_argument_group("Sentences").add_argument
    add("--text", metavar="TEXT", action="append", help="a sentence; repeat --text for several")
    add(
        "--translation",
        metavar="TEXT",
        action="append",
        help="the translation to use, one for each --text in the same order (default: the model's "
        "own, by beam search)",
    )
    add(
        "--input",
        metavar="FILE",
        help="a file with a sentence per line, or a sentence, a tab and its translation; - is "
        "standard input",
    )
    add(
        "--data",
        metavar="DATA-BIN",
        help="the folder with the dictionaries (default: the one used in training)",
    )
    add("--lower", action="store_true", help="lower-case the sentences, like the training text")
    add = parser.add_argument_group("What is printed").add_argument
    add(
        "--attention",
        choices=ATTENTIONS,
        help="which attention (default: cross, or else decoder-self, or else encoder-self)",
    )
    add("--layer", type=int, metavar="N", help="a layer, from 0 (default: the mean over all)")
    add("--head", type=int, metavar="N", help="a head, from 0 (default: the mean over all)")
    add("--top", type=int, default=3, metavar="N", help="links per word (default: %(default)s)")
    add(
        "--words",
        action="store_true",
        help="words instead of subwords: weights are summed over the subwords of an attended "
        "word, and averaged over those of an attending word",
    )
    add("--json", action="store_true", help="print all weights as JSON instead")
    add("--output", metavar="FILE.html", help="also write the report's page")
    add("--overwrite", action="store_true", help="replace the page if it exists")
    return parser


def main(arguments: Sequence[str]) -> None:
    options, fairseq_options = look_parser().parse_known_args(list(arguments))
    sentences, translations = _sentences(options)
    if options.output is not None:
        target = check_target(options.output, "--output", options.overwrite)
        refuse_inputs([target], {"the checkpoint": options.checkpoint, "the text": options.input})
    # Imported here because they need torch and fairseq; errors so far appear at once
    importlib.import_module("fairseq_entmax.compat")  # raises a clear error without fairseq
    from fairseq_entmax.analysis.data import loading
    from fairseq_entmax.analysis.looks import page, terminal
    from fairseq_entmax.analysis.looks.look import of_checkpoint

    loading.log_to_stderr()
    session = of_checkpoint(options.checkpoint, options.data, fairseq_options, options.lower)
    looks = session.look(sentences, translations)
    if options.words:
        looks = [look.words() for look in looks]
    if options.json:
        entries = [one.as_json() for one in looks]
        document = {"checkpoint": options.checkpoint, "sentences": entries}
        text = json.dumps(document, ensure_ascii=False)
    else:
        choice = options.attention, options.layer, options.head, options.top
        text = "\n\n\n".join(terminal.shown(one, *choice) for one in looks)
    # Before printing the text, because a pager may close the pipe
    if options.output is not None:
        page.write(session, looks, options.output, options.overwrite)
        print(f"page: {options.output}; open it in a browser", file=sys.stderr)
    print(text)


def _sentences(options: Namespace) -> tuple[list[str], list[str] | None]:
    """The sentences and, if given, their translations."""
    if options.checkpoint is None:
        raise ValueError(f"give CHECKPOINT first: {USAGE}")
    if (options.text is None) == (options.input is None):
        raise ValueError('give a sentence with --text "…", or sentences with --input FILE')
    texts, translations = len(options.text or []), len(options.translation or [])
    if translations and translations != texts:
        raise ValueError(
            f"--translation is given {translations} times, but --text {texts} times: give one for "
            f"each text; in --input it follows a tab"
        )
    if options.text is not None:
        return options.text, options.translation
    content = sys.stdin.buffer.read() if options.input == "-" else Path(options.input).read_bytes()
    try:
        lines = content.decode("utf-8").replace("\r\n", "\n").split("\n")
    except UnicodeDecodeError as error:
        raise ValueError(f"--input {options.input} is not UTF-8 text: {error}") from None
    rows = [line.split("\t") for line in lines if line.strip()]
    if {len(row) for row in rows} not in ({1}, {2}):
        raise ValueError(
            f"--input {options.input}: give one sentence per line, either without translations, or "
            f"each with a tab and its translation"
        )
    return [row[0] for row in rows], [row[1] for row in rows] if len(rows[0]) == 2 else None
