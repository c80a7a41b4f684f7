"""The own options of ``analyze`` and ``ablate``, in addition to fairseq's.

This module needs neither torch nor fairseq, so help and errors in options appear at once."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from fairseq_entmax.analysis.data import GENERATED, REFERENCE
from fairseq_entmax.analysis.measures import importance_measures, optional_names
from fairseq_entmax.head_names import Head, parse_heads

ANALYZE = (
    "Measures every head of one or more models on a data set, in one teacher-forced pass over its "
    "texts or over those that each model generates, and writes analysis.json. Takes fairseq's "
    "options for data, languages, batches, devices and (with --of generated) search. For language "
    "models give --task language_modeling, for RoBERTa --task masked_lm or sentence_prediction."
)
ABLATE = (
    "Removes each head of a model in turn, and scores the rest of the model on a data set by loss, "
    "and by BLEU or ROUGE of generated text, with significance tests against the unchanged model. "
    "Every finished removal is saved: after an interruption, the same command resumes. Generating "
    "the whole data set for each head takes long: --scores loss is the quick variant."
)
MAPS = 10
LOSS, BLEU, ROUGE = "loss", "bleu", "rouge"
SCORES = (LOSS, BLEU, ROUGE)
# Scores that are computed on generated text
OF_TEXT = frozenset({BLEU, ROUGE})
TRIALS = 1000
ALL = "all"


def add_analyze_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument_group("output").add_argument
    add("--output", metavar="DIR", help="the folder for analysis.json")
    add("--overwrite", action="store_true", help="replace an existing file")
    add("--names", metavar="NAME,…", help="names for the models of --path")
    add = parser.add_argument_group("measures").add_argument
    add(
        "--of",
        choices=(REFERENCE, GENERATED),
        default=REFERENCE,
        help="the text whose attention is measured: the data's, or each model's best hypothesis, "
        "found with fairseq's search options, such as --beam, or those of --task "
        "entmax_summarization (default: %(default)s)",
    )
    add(
        "--measures",
        metavar="NAME,…",
        help=f"the measures to compute, separated by commas: {', '.join(optional_names())} "
        f"(default: all)",
    )
    add(
        "--sentences",
        metavar="N,…",
        help="the sentences whose attention maps are kept, counted from 0; '' keeps none (default: "
        f"{MAPS} of all lengths, those near the median first)",
    )
    add(
        "--conllu",
        metavar="FILE",
        help="CoNLL-U parses of the source, one for each sentence of the data set, in the same "
        "order: adds dependencies, parts of speech and named entities",
    )
    for measure in importance_measures():
        add(
            f"--{measure.name}-sentences",
            type=int,
            metavar="N",
            help=f"how many sentences, spread evenly over the data, to compute {measure.name} on "
            f"(default: {measure.sentences})",
        )


def add_ablate_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument_group("output").add_argument
    add(
        "--output",
        metavar="DIR",
        help="the folder for ablation.json and removals.jsonl; an existing folder with the same "
        "settings is resumed",
    )
    add("--overwrite", action="store_true", help="discard the results in DIR")
    add = parser.add_argument_group("heads to remove").add_argument
    add(
        "--heads",
        metavar="HEADS",
        nargs="+",
        action="extend",
        help="the heads to remove one at a time, as layer.head counted from 0, such as "
        "'encoder-self:0.3,0.5;cross:2.1'; 'all' (default without --sets): every head "
        "that is neither closed nor a copy head",
    )
    add(
        "--sets",
        metavar="HEADS",
        nargs="+",
        action="extend",
        help="heads to remove together, named as for --heads: each argument is one set, such as "
        "'encoder-self:0.1,1.3' 'encoder-self:0.1;cross:1.2'",
    )
    add = parser.add_argument_group("scores").add_argument
    add(
        "--scores",
        metavar="SCORES",
        help=f"any of {','.join(SCORES)} (default: {LOSS},{BLEU}; for models that "
        f"neither translate nor summarise, {LOSS}). loss is the mean negative log likelihood of a target "
        f"token, teacher-forced, or of a class; bleu and rouge generate text, once for both, as "
        f"fairseq-generate does; rouge is ROUGE-1, ROUGE-2 and ROUGE-L of each document",
    )
    add(
        "--trials",
        type=int,
        default=TRIALS,
        metavar="N",
        help="trials of BLEU's significance test (default: %(default)s), seeded by --seed; p "
        "is never below 1 / (N + 1)",
    )
    add(
        "--sacrebleu-tokenize",
        metavar="NAME",
        help="sacreBLEU's tokenizer (default: sacreBLEU's choice for the target language). If "
        "the data is tokenized, detokenize it with fairseq's --tokenizer, or score the tokens "
        "unchanged with 'none'",
    )
    add(
        "--rouge-bytes",
        type=int,
        metavar="N",
        help="for rouge, cut summaries and references after N bytes, and use recall instead of "
        "F1; 75 for DUC 2004",
    )
    add(
        "--rouge-sentences",
        metavar="SEP",
        help="for rouge, the mark after or between sentences, such as '</t>'",
    )


def chosen_names(option: str, text: str | None, known: Sequence[str]) -> list[str]:
    """Return the comma-separated names of an option in the order of ``known``; None means all."""
    names = known if text is None else [name.strip() for name in text.split(",")]
    for name in names:
        if name not in known:
            raise ValueError(
                f"{option} got {text!r:.80}: {name!r:.80} is not one of {', '.join(known)}"
            )
    return [name for name in known if name in names]


def chosen_scores(text: str | None, has_text: bool = True) -> list[str]:
    """The names in ``--scores``, in the order of :data:`SCORES`; None: loss, and BLEU for text."""
    if text is None:
        return [LOSS, BLEU] if has_text else [LOSS]
    names = chosen_names("--scores", text, SCORES)
    if names != [LOSS] and not has_text:
        raise ValueError(
            f"--scores got {text!r}, but this kind of model neither translates nor summarises: give {LOSS}"
        )
    return names


def named_heads(option: str, text: str) -> set[Head]:
    """Parse the heads in the value of an option, which errors name."""
    try:
        return parse_heads(text)
    except ValueError as error:
        raise ValueError(f"{option}: {error}") from None


def check_counts(options: argparse.Namespace) -> None:
    """Raise ValueError if a number of sentences, trials or bytes is below 1."""
    remedy = "give 1 or more, or leave the measure out of --measures"
    remedies = {measure.option: remedy for measure in importance_measures()}
    remedies["beam"] = "give 1 or more"
    remedies["trials"] = "sacreBLEU's test needs 1 or more"
    remedies["rouge_bytes"] = "give 1 or more, or leave it out to cut nothing"
    for name, remedy in remedies.items():
        value = getattr(options, name, None)
        if value is not None and value < 1:
            raise ValueError(f"--{name.replace('_', '-')} got {value}: {remedy}")


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
    add = parser.add_argument_group("models").add_argument
    several = "; separate several with ':'" if command == "analyze" else ""
    add("--path", metavar="FILE", help=f"the checkpoint{several}")
    add_options(parser)
    add = parser.add_argument_group("main options of fairseq").add_argument
    add(
        "--gen-subset",
        metavar="SUBSET",
        help="the data set: valid (default), test, train or another",
    )
    tasks = "translation (default), language_modeling, masked_lm, sentence_prediction, …"
    add("--task", metavar="TASK", help=tasks)
    add("--max-tokens", metavar="N", help="batch size in tokens; --batch-size: in sentences")
    add("--cpu", action="store_true", help="do not use a GPU")
    add("--beam", metavar="N", help="beam size; --lenpen and so on work, too")
    if command == "ablate":
        together = "for bleu and rouge, how to join subwords: sentencepiece, or '@@ '"
        add("--remove-bpe", metavar="KIND", nargs="?", help=together)
    add("--user-dir", metavar="DIR", help="a folder whose code registers further models etc.")
    add = parser.add_argument_group("help").add_argument
    more = "show this help; fairseq-generate --help shows more of fairseq's options"
    add("-h", "--help", action="help", help=more)
    parser.parse_known_args(arguments)
