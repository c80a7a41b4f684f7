"""The report's page on sentences of one's own: the analysis of a data set that has these alone."""

from __future__ import annotations

import os
from argparse import Namespace
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from fairseq_entmax.analysis import analyze, document
from fairseq_entmax.analysis.arguments import GENERATED, REFERENCE
from fairseq_entmax.analysis.kinds.text import MAP_TOKENS
from fairseq_entmax.analysis.looking.sentence import Look
from fairseq_entmax.analysis.maps import LARGEST, encode_weights, map_bytes
from fairseq_entmax.analysis.measures import WeightMeasure, measures
from fairseq_entmax.files import check_target, write_together

if TYPE_CHECKING:
    from fairseq_entmax.analysis.looking.session import Session

# About many sentences: how often the rarest word is looked at, questions against statements. What
# heads matter is left out, too: of one sentence it says little of a head
LEFT_OUT = frozenset({"rare_word", "final_punctuation"})
SUBSET = "own"


def write(
    session: Session, looks: Sequence[Look], path: str | os.PathLike[str], overwrite: bool
) -> None:
    """Write the page, whole or not at all.

    Raises:
        FileExistsError, FileNotFoundError, ValueError: the file cannot be written, or the maps
            are more than a page shows.
        ModuleNotFoundError: the extra ``report`` is not installed.
    """
    target = check_target(path, "--output", overwrite)
    analysis = document.rounded(analysis_of(session, looks))
    document.validate(analysis, "the analysis of these sentences")
    from fairseq_entmax.analysis.report.page import render_page

    page = render_page(analysis)
    write_together({target: page.encode("utf-8")})


def analysis_of(session: Session, looks: Sequence[Look]) -> dict[str, Any]:
    """The document: of each measure what these sentences have, and their maps.

    Raises:
        ValueError: the maps are more than a page shows.
    """
    total = sum(
        map_bytes(one.shape)
        for look in looks
        for layers in look.attention.values()
        for one in layers
    )
    if total > LARGEST:
        raise ValueError(
            f"--output: the maps of these sentences are {total:,} bytes, and a page shows "
            f"{LARGEST:,} at most: give fewer or shorter ones"
        )
    kind = session.kind
    dataset = session.dataset([look.item for look in looks])
    own = {"of": REFERENCE, "gen_subset": SUBSET, "no_progress_bar": True, "max_tokens": None}
    own |= {"num_workers": 0}  # not a process for a sentence
    args = Namespace(**{**vars(session.args), **own, "batch_size": 1, "conllu": None})
    wanted = [
        one.name
        for one in measures()
        if isinstance(one, WeightMeasure) and one.name not in LEFT_OUT | kind.left_out
    ]
    study = analyze.Study(
        args=args,
        wanted=wanted,
        kind=kind,
        task=session.task,
        dataset=dataset,
        models=[session.loaded],
        datasets=[dataset],
        costly=[[]],
        tables=session.tables(),
        sentences=list(range(len(looks))),
    )
    analysis = analyze.written(study, analyze.record(study), [{}])
    analysis["data"]["own"] = {"words": looks[0].is_words}
    for entry, look in zip(analysis["maps"], looks, strict=True):
        if look.is_words:
            _join(entry, look, kind.name)
    generated = [look.item.generated for look in looks if look.item.generated is not None]
    if len(generated) == len(looks):
        numbers = {name: sum(one[name] for one in generated) for name in generated[0]}
        analysis |= {"of": GENERATED, "search": session.search()}
        analysis["models"][0]["generated"] = numbers
        for entry in analysis["maps"]:
            entry["model"] = 0
    if looks[0].classified is not None:
        _forget_labels(analysis)
    return analysis


def _join(entry: dict[str, Any], look: Look, kind: str) -> None:
    """Put words in place of the tokens of a map; groups of equal weights are of tokens."""
    if kind == "text":  # whose map is of its beginning
        look = look.of_tokens.beginning(MAP_TOKENS).words()
    entry["source"] = [] if kind == "text" else look.tokens
    entry["queries"], entry["targets"] = look.read_tokens, look.target_tokens
    if len(look.target_tokens) != len(look.read_tokens):
        # Of a beginning, whose last token may begin a word that only the target has
        entry["targets"] = [*look.read_tokens[1:], look.target_tokens[-1]]
    for one in entry["models"][0]:
        weights = look.attention[one["attention"]][one["layer"]]
        one |= {"shape": list(weights.shape), "weights": encode_weights(weights)}
        one.pop("groups", None)
    for one in entry.get("classified") or []:
        assert look.classified is not None
        one["pooling"] = {name: rows.tolist() for name, rows in look.classified.pooling.items()}


def _forget_labels(analysis: dict[str, Any]) -> None:
    """Leave out what asks for the label of a text, which nobody has said."""
    (model,) = analysis["models"]
    own, labels = model["classification"], analysis["data"]["labels"]
    model["loss"] = own["accuracy"] = None
    own["confusion"] = [[0] * len(labels) for _ in labels]
    for pooling in own["pooling"]:
        pooling["words"] = [[] for _ in labels]
