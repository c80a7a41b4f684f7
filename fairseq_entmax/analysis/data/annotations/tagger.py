"""Parse a text with a spaCy pipeline and write CoNLL-U.

The extra ``tagger`` installs spaCy. Pipelines are separate packages, which nothing here downloads:
``python -m spacy download es_core_news_sm``. The relations are the pipeline's: English and German
pipelines use their own sets of relations, such as ``pobj`` and ``oa``."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from fairseq_entmax.error_messages import required
from fairseq_entmax.files import check_target, refuse_inputs, whole_file
from fairseq_entmax.progress import watched
from fairseq_entmax.summaries.generated import read_lines

_BATCH = 64


def tag(text_path: str, language: str, output_path: str, overwrite: bool = False) -> int:
    """Parse each line of a text into one sentence of a CoNLL-U file, written whole or not at all.

    ``language`` is a code such as ``es``, or a pipeline's name or folder. A column is ``_`` if the
    pipeline has no component for it; entities are in MISC. Return the number of sentences."""
    target = check_target(output_path, "--output", overwrite)
    refuse_inputs([target], {"the text": text_path})
    pipeline = _load(language)
    lines = [line.strip() for line in read_lines(text_path)]
    with whole_file(target) as output:
        parses = watched(
            pipeline.pipe(lines, batch_size=_BATCH), "tag", len(lines), unit="sentences"
        )
        for number, parsed in enumerate(parses, start=1):
            rows = list(_rows(parsed))
            if not rows:
                raise ValueError(
                    f"{text_path}, line {number}: no words, but a CoNLL-U sentence has at "
                    f"least one: remove the line here and in the data"
                )
            output.write("\n".join([*rows, "", ""]).encode())
    return len(lines)


def _load(language: str) -> Any:
    """Load a language's small pipeline, or the pipeline of that name or folder."""
    instead = "or make the CoNLL-U file with another tagger"
    spacy = required(
        "spacy", f"tagging needs spaCy: run pip install 'fairseq-entmax[tagger]', {instead}"
    )
    name = language
    if not (spacy.util.is_package(name) or os.path.isdir(name)):
        # spaCy's name for the small pipeline of a language
        name += f"_core_{'web' if language in ('en', 'zh') else 'news'}_sm"
        if not spacy.util.is_package(name):
            raise ModuleNotFoundError(
                f"spaCy's pipeline {name} for --language {language} is not installed: run python "
                f"-m spacy download {name}, or give the name or folder of one that is"
            )
    return spacy.load(name)


def _rows(parsed: Any) -> Iterator[str]:
    """Yield the CoNLL-U lines of a parsed line, without spaCy's white-space tokens."""
    words = [token for token in parsed if not token.is_space]
    number = {token.i: position for position, token in enumerate(words, start=1)}
    has_entities = parsed.has_annotation("ENT_IOB")
    has_arcs = parsed.has_annotation("DEP")
    for token in words:
        head, relation = "_", "_"
        if has_arcs:
            is_root = token.head.i == token.i
            # A head that is white space has no number
            head = "0" if is_root else str(number.get(token.head.i, "_"))
            relation = "root" if is_root else token.dep_ or "_"
        misc = []
        if has_entities:
            misc.append(f"NE={token.ent_iob_}-{token.ent_type_}" if token.ent_type_ else "NE=O")
        if not token.whitespace_:
            misc.append("SpaceAfter=No")
        tags = token.pos_ or "_", "_", str(token.morph) or "_"
        columns = [str(number[token.i]), token.text, "_", *tags]
        yield "\t".join([*columns, head, relation, "_", "|".join(misc) or "_"])
