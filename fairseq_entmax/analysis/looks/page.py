"""The report's page on the user's own sentences: the analysis of a data set of just these."""

from __future__ import annotations

import os
from argparse import Namespace
from collections.abc import Sequence
from typing import Any

from fairseq_entmax.analysis import analyze, document
from fairseq_entmax.analysis.data import GENERATED, REFERENCE
from fairseq_entmax.analysis.document.maps import encode_weights
from fairseq_entmax.analysis.looks.sentence import Sentence
from fairseq_entmax.analysis.looks.session import Session
from fairseq_entmax.analysis.measures import WeightMeasure, measures
from fairseq_entmax.files import check_target, write_together

# Measures that need many sentences: of rare words, and of questions against statements. Importance
# is left out as well, because a single sentence says little about a head
LEFT_OUT = frozenset({"rare_word", "final_punctuation", "question_word"})


def write(
    session: Session, looks: Sequence[Sentence], path: str | os.PathLike[str], overwrite: bool
) -> None:
    """Write the page, whole or not at all."""
    from fairseq_entmax.analysis.report.page import render_page

    target = check_target(path, "--output", overwrite)
    with session.evaluated():
        analysis = document.rounded(analysis_of(session, looks))
    write_together({target: render_page(analysis).encode("utf-8")})


def analysis_of(session: Session, looks: Sequence[Sentence]) -> dict[str, Any]:
    """Return the document: the measures of weights on these sentences, and their maps."""
    data_type = session.data_type
    dataset = session.dataset([look._item for look in looks])
    changes = {"of": REFERENCE, "gen_subset": "own", "no_progress_bar": True, "max_tokens": None}
    changes |= {"num_workers": 0}  # no worker process for a few sentences
    args = Namespace(**{**vars(session.args), **changes, "batch_size": 1, "conllu": None})
    wanted = [
        one.name
        for one in measures()
        if isinstance(one, WeightMeasure) and one.name not in LEFT_OUT | data_type.left_out
    ]
    tables = data_type.tables(session.task, next(session.loaded.model.parameters()).device)
    study = analyze.Study(
        *(args, wanted, data_type, session.task, dataset, [session.loaded], [dataset]),
        tables=tables,
        sentences=list(range(len(looks))),
    )
    analysis = analyze.written(study, analyze.record(study), [{}])
    # A language model's map shows the beginning of a text, and stays in tokens
    is_words = looks[0].is_words and data_type.name != "text"
    analysis["data"]["own"] = {"words": is_words}
    for entry, look in zip(analysis["maps"], looks, strict=True):
        if is_words:
            _join(entry, look)
    generated = [look._item.generated for look in looks if look._item.generated is not None]
    if len(generated) == len(looks):
        numbers = {name: sum(one[name] for one in generated) for name in generated[0]}
        analysis |= {"of": GENERATED, "search": session.search()}
        analysis["models"][0]["generated"] = numbers
        for entry in analysis["maps"]:
            entry["model"] = 0
    return analysis


def _join(entry: dict[str, Any], look: Sentence) -> None:
    """Replace the tokens of a map by words; drop groups of equal weights, which are of tokens."""
    entry["source"], entry["queries"] = look.tokens, look.read_tokens
    entry["targets"] = look.target_tokens
    for one in entry["models"][0]:
        weights = look.attention[one["attention"]][one["layer"]]
        one |= {"shape": list(weights.shape), "weights": encode_weights(weights)}
        one.pop("groups", None)
