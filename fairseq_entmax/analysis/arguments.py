"""The own options of ``analyze`` and ``ablate``, in addition to fairseq's.

This module needs neither torch nor fairseq, so help and errors in options appear at once."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from fairseq_entmax.analysis.data import GENERATED, REFERENCE
from fairseq_entmax.analysis.measures import importance_measures, optional_names
from fairseq_entmax.head_names import Head, parse_heads

ANALYZE = (
    "Looks at every head of one or more models over a data set, in one teacher-forced pass, or "
    "over the text that each of them generates, and writes analysis.json. Takes fairseq's options "
    "on data, languages, batches, devices, and with --of generated on search. For language models "
    "give --task language_modeling, for RoBERTa --task masked_lm or sentence_prediction."
)
ABLATE = (
    "Removes each head of a model in turn, and scores what is left on a data set by loss, and by "
    "BLEU or ROUGE of generated text, with tests of significance against the unchanged model. Every "
    "finished removal is kept: after a stop the same command goes on where it was. To generate "
    "the whole data set for each head takes long: --scores loss is the quick variant."
)
MAPS = 10
LOSS, BLEU, ROUGE = "loss", "bleu", "rouge"
SCORES = (LOSS, BLEU, ROUGE)
# Scores that are computed on generated text
OF_TEXT = frozenset({BLEU, ROUGE})
BOOTSTRAP = 1000
ALL = "all"


def add_analyze_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``analyze``."""
    group = parser.add_argument_group("what is written")
    group.add_argument("--output", metavar="DIR", help="where analysis.json goes")
    group.add_argument("--overwrite", action="store_true", help="replace the one that is there")
    group.add_argument("--names", metavar="NAME,…", help="what to call the models of --path")
    group = parser.add_argument_group("what is measured")
    group.add_argument(
        "--of",
        choices=(REFERENCE, GENERATED),
        default=REFERENCE,
        help="the text whose attention is measured: the data's, or the best hypothesis of each "
        "model by fairseq's options on search, such as --beam, or of --task entmax_summarization "
        "(default: %(default)s)",
    )
    group.add_argument(
        "--measures",
        metavar="NAME,…",
        help=f"which to make, with commas between them, of {', '.join(optional_names())} "
        f"(default: all)",
    )
    group.add_argument(
        "--sentences",
        metavar="N,…",
        help="sentences to keep attention maps of, counted from 0; '' keeps none (default: the "
        f"{MAPS} of typical length, of every quarter of the data, whose heads differ most)",
    )
    group.add_argument(
        "--conllu",
        metavar="FILE",
        help="parses of the source in CoNLL-U, a sentence for each line of the data set in its "
        "order: adds dependencies, parts of speech and named entities",
    )
    for measure in importance_measures():
        group.add_argument(
            f"--{measure.name}-sentences",
            type=int,
            metavar="N",
            help=f"how many sentences, spread evenly, {measure.name} is worked out for "
            f"(default: {measure.sentences}, or fewer where standard errors are small before)",
        )


def add_ablate_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``ablate``."""
    group = parser.add_argument_group("what is written")
    group.add_argument(
        "--output",
        metavar="DIR",
        help="the folder for ablation.json and removals.jsonl; a folder with removals of the same "
        "settings is gone on with",
    )
    group.add_argument("--overwrite", action="store_true", help="forget what DIR holds")
    group = parser.add_argument_group("what is removed")
    group.add_argument(
        "--heads",
        metavar="HEADS",
        nargs="+",
        action="extend",
        help="the heads to remove, each alone, as layer.head from 0, such as "
        "'encoder-self:0.3,0.5;cross:2.1'; 'all' (default without --sets): every head that is "
        "there and not closed",
    )
    group.add_argument(
        "--sets",
        metavar="HEADS",
        nargs="+",
        action="extend",
        help="heads to remove together, named likewise: each text is one set, such as "
        "'encoder-self:0.1,1.3' 'encoder-self:0.1;cross:1.2'",
    )
    _add_scores(parser.add_argument_group("how what is left is scored"))


def _add_scores(group: Any) -> None:
    group.add_argument(
        "--scores",
        metavar="SCORES",
        help=f"any of {','.join(SCORES)} (default: {LOSS},{BLEU}; of models that "
        f"write no text for another {LOSS}). loss is the mean negative log likelihood of a target token, "
        f"teacher-forced, or of a class; bleu and rouge generate, once for both, as "
        f"fairseq-generate does; rouge is ROUGE-1, ROUGE-2 and ROUGE-L of each document",
    )
    group.add_argument(
        "--bootstrap",
        type=int,
        default=BOOTSTRAP,
        metavar="N",
        help="resamples of the test of significance for BLEU (default: %(default)s), seeded by "
        "--seed; p is never below 1 / (N + 1)",
    )
    group.add_argument(
        "--sacrebleu-tokenize",
        metavar="NAME",
        help="sacreBLEU's tokenizer (default: sacreBLEU's choice for the target language). Where "
        "the data was cut into words, put them together with fairseq's --tokenizer, or score the "
        "words as they are with 'none'",
    )
    group.add_argument(
        "--rouge-bytes",
        type=int,
        metavar="N",
        help="for rouge, cut summaries and references after N bytes, and take recall in place of "
        "F1: 75 for DUC 2004",
    )
    group.add_argument(
        "--rouge-sentences",
        metavar="SEP",
        help="for rouge, what stands after or between sentences, such as '</t>'",
    )


def chosen_names(option: str, text: str | None, known: Sequence[str]) -> list[str]:
    """Return the comma-separated names of an option in the order of ``known``; None means all."""
    names = known if text is None else [name.strip() for name in text.split(",")]
    for name in names:
        if name not in known:
            raise ValueError(
                f"{option} got {text!r:.80}: {name!r:.80} is none of {', '.join(known)}"
            )
    return [name for name in known if name in names]


def chosen_scores(text: str | None, has_text: bool = True) -> list[str]:
    """The names in ``--scores``, in the order of :data:`SCORES`; None: loss, and BLEU for text."""
    if text is None:
        return [LOSS, BLEU] if has_text else [LOSS]
    names = chosen_names("--scores", text, SCORES)
    if names != [LOSS] and not has_text:
        raise ValueError(
            f"--scores got {text!r}: such models write no text that translates or sums up another: "
            f"give {LOSS}"
        )
    return names


def named_heads(option: str, text: str) -> set[Head]:
    """Parse the heads in the value of an option, which errors name."""
    try:
        return parse_heads(text)
    except ValueError as error:
        raise ValueError(f"{option}: {error}") from None


def check_counts(options: argparse.Namespace) -> None:
    """Raise ValueError if a number of sentences, resamples or bytes is below 1."""
    remedy = "give 1 or more, or leave the measure out of --measures"
    remedies = {measure.option: remedy for measure in importance_measures()}
    remedies["bootstrap"] = "sacreBLEU's bootstrap takes 1 or more"
    remedies["rouge_bytes"] = "give 1 or more, or leave it out to cut nothing"
    for name, remedy in remedies.items():
        value = getattr(options, name, None)
        if value is not None and value < 1:
            raise ValueError(f"--{name.replace('_', '-')} got {value}: {remedy}")


HELP_ALL = "--help-all"
COMMANDS = {"analyze": (ANALYZE, add_analyze_options), "ablate": (ABLATE, add_ablate_options)}


def check_early(command: str, arguments: Sequence[str]) -> None:
    """Answer ``--help`` at once, and let argparse reject wrong values of the command's options."""
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
    add = parser.add_argument_group("of fairseq's options those needed most").add_argument
    add(
        "--gen-subset",
        metavar="SUBSET",
        help="the data set: valid (default), test, train or another",
    )
    tasks = "translation (default), language_modeling, masked_lm, sentence_prediction, …"
    add("--task", metavar="TASK", help=tasks)
    add("--max-tokens", metavar="N", help="of a batch, or --batch-size in sentences")
    add("--cpu", action="store_true", help="leave a GPU alone")
    add("--beam", metavar="N", help="and the like, such as --lenpen: how text is generated")
    if command == "ablate":
        together = "for bleu and rouge, put subwords together: sentencepiece, or '@@ '"
        add("--remove-bpe", metavar="KIND", nargs="?", help=together)
    add("--user-dir", metavar="DIR", help="a folder that registers more of its own")
    group = parser.add_argument_group("help")
    group.add_argument("-h", "--help", action="help", help="this text")
    group.add_argument(
        HELP_ALL, action="store_true", dest="help_all", help="every option of fairseq's, too"
    )
    parser.parse_known_args(arguments)
