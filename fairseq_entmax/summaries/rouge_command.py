"""The command ``fairseq-entmax rouge``: ROUGE of summaries, with intervals and comparison."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from fairseq_entmax.files import check_target, refuse_inputs, write_together
from fairseq_entmax.paired_tests import require_scipy
from fairseq_entmax.summaries.generated import read_generated, read_lines
from fairseq_entmax.summaries.oov import MARKER
from fairseq_entmax.summaries.rouge import Rouge, RougeOptions, Score, score_documents
from fairseq_entmax.summaries.rouge_document import as_document, as_table, per_document_lines

BOOTSTRAP = 1000
_TAG = "</t>"


def main(arguments: Sequence[str]) -> None:
    """Run the command.

    Args:
        arguments: what stands behind ``fairseq-entmax rouge``.

    Raises:
        ValueError, OSError: what is wrong, in one sentence; nothing is written.
        ModuleNotFoundError: rouge-score, or scipy for ``--compare``, is not installed.
        SystemExit: of argparse.
    """
    options = _parser().parse_args(arguments)
    targets = _targets(options)
    if options.compare is not None:
        require_scipy()
    rouge = Rouge(RougeOptions(options.stem, options.bytes, options.sentences))
    references = [list(read_lines(path, "references")) for path in options.reference]
    summaries = _summaries(options, options.generated, references)
    compared = None if options.compare is None else _summaries(options, options.compare, references)
    _warn(rouge, options.generated, summaries, references)
    scores = score_documents(rouge, summaries, references)
    other: list[dict[str, Score]] | None = None
    if compared is not None:
        _warn(rouge, options.compare, compared, [])
        other = score_documents(rouge, compared, references)
    document = {
        **as_document(rouge.options, scores, other, options.bootstrap, options.seed),
        "generated": options.generated,
        "references": options.reference,
        "compared_with": options.compare,
        "empty_summaries": sum(map(rouge.is_empty, summaries)),
    }
    text = json.dumps(document, indent=1, ensure_ascii=False) + "\n"
    contents = {"output": text, "per_document": per_document_lines(scores, other)}
    write_together({targets[name]: contents[name].encode() for name in targets})
    print(text if options.json else as_table(document), end="")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="fairseq-entmax rouge",
        description="Scores summaries by ROUGE-1, ROUGE-2 and ROUGE-L, in percent, with 95 % "
        "intervals of the bootstrap over documents. Needs the extra 'summaries'.",
        allow_abbrev=False,
    )
    parser.add_argument(
        "generated",
        metavar="GENERATED",
        help="what fairseq-generate printed: its lines D-n, or H-n, are scored against line n, "
        "from 0, of each reference",
    )
    parser.add_argument(
        "--reference",
        action="append",
        required=True,
        metavar="REF",
        help="a text with a summary a line; given again, more references of the same documents, "
        "over which matches and lengths are summed (-f A of ROUGE-1.5.5)",
    )
    parser.add_argument(
        "--text", action="store_true", help="GENERATED is a text with a summary a line"
    )
    parser.add_argument(
        "--bytes",
        type=int,
        metavar="N",
        help="cut summaries and references after N bytes, and compare by recall: 75 for DUC "
        "2004 (-b of ROUGE-1.5.5)",
    )
    parser.add_argument(
        "--stem",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="Porter's stemmer for words of more than three letters (default: yes)",
    )
    parser.add_argument(
        "--sentences",
        metavar="SEP",
        help="what stands after or between sentences, such as '</t>', whose counterpart '<t>' is "
        "left out, too: ROUGE-L is then over sentences (rougeLsum), as in ROUGE-1.5.5",
    )
    parser.add_argument(
        "--compare",
        metavar="OTHER",
        help="another system's output in the same form: what it has more or less, with the "
        "paired bootstrap and the paired t-test over documents",
    )
    parser.add_argument(
        "--bootstrap",
        type=int,
        default=BOOTSTRAP,
        metavar="N",
        help="resamples of the documents (default: %(default)s)",
    )
    parser.add_argument("--seed", type=int, default=1, help="of these (default: %(default)s)")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument("--output", metavar="FILE", help="write the JSON there, too")
    parser.add_argument(
        "--per-document", metavar="FILE", help="write the scores of each document, JSON lines"
    )
    parser.add_argument("--overwrite", action="store_true", help="replace these files")
    return parser


def _targets(options: argparse.Namespace) -> dict[str, Path]:
    """The files to write; refuses what can be refused before anything is read."""
    for name, least in (("bytes", 1), ("bootstrap", 1), ("seed", 0)):
        value = getattr(options, name)
        if value is not None and value < least:
            raise ValueError(f"--{name} got {value}: give {least} or more")
    if options.sentences is not None and not options.sentences.strip():
        raise ValueError(f"--sentences got {options.sentences!r}: give a text such as '</t>'")
    inputs = {f"the reference {path}": path for path in options.reference}
    inputs |= {"the generated text": options.generated, "the text of --compare": options.compare}
    targets = {}
    for name in ("output", "per_document"):
        path = getattr(options, name)
        if path is not None:
            option = f"--{name.replace('_', '-')}"
            targets[name] = check_target(path, option, options.overwrite)
    refuse_inputs(targets.values(), inputs)
    if len(set(targets.values())) < len(targets):
        raise ValueError(f"--output and --per-document are both {options.output}: give two names")
    return targets


def _summaries(
    options: argparse.Namespace, path: str, references: Sequence[Sequence[str]]
) -> list[str]:
    """The summaries of a file, one for each line of the references."""
    if options.text:
        summaries = list(read_lines(path, "a text with a summary a line"))
        for name, texts in zip(options.reference, references, strict=True):
            if len(texts) != len(summaries):
                raise ValueError(
                    f"--reference {name} has {len(texts)} lines and {path} has {len(summaries)}: "
                    f"give texts of the same documents, one a line"
                )
    else:
        generated = read_generated(path)
        for name, texts in zip(options.reference, references, strict=True):
            summaries = generated.in_order(len(texts), "--reference", name)
    if not summaries:
        raise ValueError(f"{path} has no summary: give a text with one a line")
    return summaries


def _warn(
    rouge: Rouge, path: str, summaries: Sequence[str], references: Sequence[Sequence[str]]
) -> None:
    """Tell what is scored, but is likely not meant."""
    empty = sum(map(rouge.is_empty, summaries))
    if empty:
        _tell(f"{empty} of {len(summaries)} summaries of {path} are empty, and score 0")
    marked = sum(MARKER.search(text) is not None for text in summaries)
    if marked:
        _tell(
            f"{marked} summaries of {path} have markers such as <unk-0>, which match no word: "
            f"restore them with fairseq-entmax oov restore"
        )
    texts = [text for column in references for text in column]
    empty = sum(map(rouge.is_empty, texts))
    if empty:
        _tell(f"{empty} of {len(texts)} references are empty, and match nothing")
    separator = rouge.options.sentences
    if separator is None and sum(_TAG in text for text in texts) > len(texts) / 2:
        _tell(f"the references have sentences in {_TAG}, which is no word: give --sentences {_TAG}")
    if separator is not None and texts and not any(separator in text for text in texts):
        _tell(f"no reference has {separator!r} of --sentences: each is taken as one sentence")


def _tell(text: str) -> None:
    print(f"fairseq-entmax rouge: {text}", file=sys.stderr)
