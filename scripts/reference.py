#!/usr/bin/env python3
"""Writes docs/commands.md: the help texts of all commands and options of this project."""

import argparse
import contextlib
import functools
import io
import os
import textwrap
from dataclasses import fields
from pathlib import Path
from typing import Any
from unittest import mock

from fairseq.criterions import CRITERION_REGISTRY
from fairseq.criterions.label_smoothed_cross_entropy import LabelSmoothedCrossEntropyCriterionConfig
from fairseq.dataclass.utils import gen_parser_from_dataclass
from fairseq.tasks.translation import TranslationConfig

from fairseq_entmax import cli
from fairseq_entmax.criterions.copying import CopyCrossEntropyConfig
from fairseq_entmax.criterions.penalty_options import HeadL0Options
from fairseq_entmax.criterions.sparse_output import EntmaxLossConfig
from fairseq_entmax.models import config
from fairseq_entmax.models.copy_transformer import EntmaxCopyTransformerModel
from fairseq_entmax.tasks.summarization import SummarizationConfig

PAGE = Path(__file__).resolve().parent.parent / "docs" / "commands.md"
TOP = """\
# Every command and option

This page has the `--help` of `fairseq-entmax` and its commands, and the options that this project adds to
`fairseq-train`. `scripts/reference.py` writes it. The options of models are also in a [shorter table](options.md). The
scripts of [recipes](recipes.md) have their own `--help`.
"""
# By heading: the options, and fairseq's options that they inherit
CLASSES = {
    "`--criterion …_with_head_l0`": (HeadL0Options, None),
    "`--criterion entmax_loss`": (EntmaxLossConfig, None),
    "`--criterion copy_cross_entropy`": (
        CopyCrossEntropyConfig,
        LabelSmoothedCrossEntropyCriterionConfig,
    ),
    "`--task entmax_summarization`": (SummarizationConfig, TranslationConfig),
}


def command_help(*words: str) -> str:
    """The output of ``fairseq-entmax`` with these words and ``--help``."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.suppress(SystemExit):
        cli.main([*words, "--help"])
    return printed.getvalue()


def model_options(features: config.Features) -> str:
    parser = argparse.ArgumentParser(usage=argparse.SUPPRESS, add_help=False)
    config.add_arguments(parser, features)
    return parser.format_help()


def class_options(options: Any, stock: Any) -> str:
    """The options of a dataclass, without those it inherits from fairseq."""
    gated = [name for name in CRITERION_REGISTRY if name.endswith("_with_head_l0")]
    parser = argparse.ArgumentParser(
        usage=argparse.SUPPRESS,
        description=f"criterions: {', '.join(sorted(gated))}" if options is HeadL0Options else None,
        add_help=False,
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    gen_parser_from_dataclass(parser, options())
    left_out = {entry.name for entry in fields(stock)} if stock else set()
    for action in parser._actions:
        if action.dest in left_out:
            action.help = argparse.SUPPRESS
        if action.nargs != 0:
            action.metavar = "VALUE"
        if action.default == "":
            action.default = argparse.SUPPRESS  # no "(default: )"
    return parser.format_help()


def page() -> str:
    """The text of the page."""
    whole_names = functools.partial(textwrap.wrap, break_on_hyphens=False)
    with mock.patch.dict(os.environ, COLUMNS="100"), mock.patch("textwrap.wrap", whole_names):
        blocks = {"`fairseq-entmax`": command_help()}
        names = ["user-dir", "alpha", *cli.MODULES, "tag", "prune"]
        names += ["oov vocabulary", "oov mark", "oov restore"]
        blocks |= {f"`fairseq-entmax {name}`": command_help(*name.split()) for name in names}
        blocks["Options of every model"] = model_options(config.FEATURES)
        own = [f for f in EntmaxCopyTransformerModel.features if f not in config.FEATURES]
        blocks["`--arch entmax_copy_transformer`"] = model_options(tuple(own))
        blocks |= {heading: class_options(*classes) for heading, classes in CLASSES.items()}
    texts = (
        f"\n## {heading}\n\n```text\n{text.strip()}\n```\n" for heading, text in blocks.items()
    )
    return TOP + "".join(texts)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
