"""The command ``fairseq-entmax look``."""

from __future__ import annotations

import importlib
import json
import sys
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path

from fairseq_entmax.analysis.looking.arguments import own_parser
from fairseq_entmax.files import check_target, refuse_inputs


def main(arguments: Sequence[str]) -> None:
    """Run the command.

    Args:
        arguments: what stands behind ``fairseq-entmax look``.

    Raises:
        OSError, ValueError, RuntimeError, ModuleNotFoundError: in one sentence, for the command
            to print.
        SystemExit: of argparse.
    """
    own, others = own_parser().parse_known_args(list(arguments))
    if own.help_all:
        _print_all_help()
        return
    sentences, behind_tabs = _checked(own)
    if own.output is not None:
        target = check_target(own.output, "--output", own.overwrite)
        refuse_inputs([target], {"the checkpoint": own.checkpoint, "the text": own.input})
    # Here, as they need torch and fairseq, and what is wrong so far is told at once
    importlib.import_module("fairseq_entmax.compat")  # for its message without fairseq
    from fairseq_entmax.analysis import loading
    from fairseq_entmax.analysis.looking import opening, page, terminal

    loading.log_to_stderr()
    try:
        session = opening.of_checkpoint(own.checkpoint, own.data, others, own.lower)
    except (ValueError, FileNotFoundError) as error:
        # As analyze says it, where the checkpoint is an option
        raise type(error)(str(error).removeprefix("--path: ")) from error
    if behind_tabs is not None:
        name = "second" if session.kind.name == "labelled" else "translation"
        setattr(own, name, behind_tabs)
    looks = session.look(sentences, own.translation, own.second)
    if own.words:
        looks = [look.words() for look in looks]
    if own.json:
        everything = {"checkpoint": own.checkpoint, "sentences": [one.as_json() for one in looks]}
        text = json.dumps(everything, ensure_ascii=False)
    else:
        parts = [terminal.shown(one, own.attention, own.layer, own.head, own.top) for one in looks]
        text = "\n\n\n".join(parts)
    # Before what a pager may close
    if own.output is not None:
        page.write(session, looks, own.output, own.overwrite)
        print(f"page: {own.output}; open it in a browser", file=sys.stderr)
    print(text)


def _print_all_help() -> None:
    from fairseq_entmax.analysis.looking import opening

    print(own_parser().format_help())
    opening.fairseq_parser().print_help()


def _checked(own: Namespace) -> tuple[list[str], list[str] | None]:
    """The sentences, and what stands behind a tab in each, where it does.

    Raises:
        FileNotFoundError, ValueError: an option is wrong; names it.
    """
    if own.checkpoint is None:
        raise ValueError('give CHECKPOINT first: fairseq-entmax look CHECKPOINT --text "…"')
    if own.top < 1:
        raise ValueError(f"--top got {own.top}: give 1 or more")
    for name in ("layer", "head"):
        value = getattr(own, name)
        if value is not None and value < 0:
            raise ValueError(f"--{name} got {value}: give 0 or more")
    if not Path(own.checkpoint).exists() and ":" not in own.checkpoint:
        raise FileNotFoundError(
            f"there is no checkpoint {own.checkpoint}: CHECKPOINT stands in front of all options"
        )
    if own.translation is not None and own.second is not None:
        raise ValueError(
            "--translation is for models that write, --second for those that classify pairs: give "
            "one of them"
        )
    option = "--translation" if own.translation is not None else "--second"
    seconds: list[str] | None = own.translation if own.translation is not None else own.second
    if (own.text is None) == (own.input is None):
        raise ValueError('give the sentence by --text "…", or sentences by --input FILE')
    if own.text is not None:
        if seconds is not None and len(seconds) != len(own.text):
            raise ValueError(
                f"{option} is there {len(seconds)} times, and --text {len(own.text)} times: give "
                f"one for each"
            )
        return list(own.text), None
    if seconds is not None:
        raise ValueError(f"{option} goes with --text: in --input it stands behind a tab")
    return _lines(own.input)


def _lines(name: str) -> tuple[list[str], list[str] | None]:
    """The sentences of a file, and what stands behind a tab in each, where it does.

    Raises:
        FileNotFoundError, ValueError: there is no such file, it is no text in UTF-8, it is empty,
            or only some lines have a tab.
    """
    if name != "-" and not Path(name).is_file():
        raise FileNotFoundError(f"--input got {name!r}: there is no such file")
    try:
        text = sys.stdin.buffer.read() if name == "-" else Path(name).read_bytes()
        lines = [line.removesuffix("\r") for line in text.decode("utf-8").split("\n")]
    except UnicodeDecodeError as error:
        raise ValueError(f"--input {name} is no text in UTF-8: {error}") from None
    rows = [line.split("\t") for line in lines if line.strip()]
    if not rows:
        raise ValueError(f"--input {name} has no sentence")
    if {len(row) for row in rows} not in ({1}, {2}):
        raise ValueError(
            f"--input {name}: give one sentence a line, or in every line a tab and its translation "
            f"or second text behind it"
        )
    return [row[0] for row in rows], [row[1] for row in rows] if len(rows[0]) == 2 else None
