"""Files of a record: JSON objects, and whether they have what they should."""

from __future__ import annotations

import json
import lzma
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

PACKED = ".json.xz"
ENCODER_SELF, DECODER_SELF, CROSS = "encoder-self", "decoder-self", "cross"
ATTENTIONS = (ENCODER_SELF, DECODER_SELF, CROSS)
STATISTICS = 10  # of a sentence: two lengths, and of 1-grams to 4-grams the matches, then all


def read_object(path: Path) -> dict[str, Any]:
    """The JSON object of a file, packed or not.

    Raises:
        ValueError: there is none.
    """
    try:
        data = path.read_bytes()
        found = json.loads(lzma.decompress(data) if path.name.endswith(PACKED) else data)
    except FileNotFoundError as error:
        raise ValueError(f"{path} is missing: give a folder that claims.sh wrote") from error
    except (lzma.LZMAError, ValueError) as error:
        raise ValueError(f"{path} is damaged ({error}): make it again with claims.sh") from error
    if not isinstance(found, dict):
        raise ValueError(f"{path} has no JSON object: make it again with claims.sh")
    return found


def _list_of(kind: type | tuple[type, ...]) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, list) and all(isinstance(x, kind) for x in value)


def _is(*kinds: type | None) -> Callable[[Any], bool]:
    types = tuple(type(None) if kind is None else kind for kind in kinds)
    # True is an int in Python, and no number in a record
    return lambda value: isinstance(value, types) and (bool in types or not isinstance(value, bool))


def _by_attention(entry: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, dict) and all(entry(value.get(a)) for a in ATTENTIONS)


def _of_gated(entry: Callable[[Any], bool]) -> Callable[[Any], bool]:
    """Of one attention or more, as the others of a search may have no gates."""
    return lambda value: (
        isinstance(value, dict)
        and len(value) > 0
        and all(name in ATTENTIONS and entry(x) for name, x in value.items())
    )


# Of each field whether a value fits, and what it should be
Fields = Mapping[str, tuple[Callable[[Any], bool], str]]
TEXT = (_is(str), "a text")
_COUNT = (lambda value: _is(int)(value) and value >= 0, "a number from 0 up, without fraction")
_SECONDS = (lambda value: _is(int, float)(value) and value >= 0, "a number from 0 up")
_OBJECT = (_is(dict), "an object")
ABOUT_FIELDS: Fields = {
    "date": TEXT,
    "versions": _OBJECT,
    "processor": TEXT,
    "cores": _COUNT,
    "hours": _SECONDS,
    "core_hours": _SECONDS,
    "calls": _COUNT,
    "quick": (_is(bool), "true or false"),
    "seeds": (_list_of(int), "a list of numbers"),
    "corpora": (_list_of(str), "a list of names"),
}
RUN_FIELDS: Fields = {
    "corpus": TEXT,
    "run": TEXT,
    "model": TEXT,
    "size": TEXT,
    "seed": _COUNT,
    "role": TEXT,
    "budget": (_is(str, None), "a text or null"),
    "from_run": (_is(str, None), "a text or null"),
    "heads": (_by_attention(_list_of(int)), "an object of lists, one for each attention"),
    "kept": (
        lambda value: value is None or _by_attention(_list_of(list))(value),
        "null or an object of lists, one for each attention",
    ),
    "updates": _COUNT,
    "own_updates": _COUNT,
    "epochs": _COUNT,
    "ended_by": TEXT,
    "cpu_seconds": _SECONDS,
    "parameters": _COUNT,
    "curve": (_list_of(dict), "a list of objects"),
    "analysis": _OBJECT,
    "translation": _OBJECT,
    "ablation": (_is(dict, None), "an object or null"),
}
ATTENTION_FIELDS: Fields = {
    "attention": TEXT,
    "layer": _COUNT,
    "heads": (_list_of(dict), "a list of objects"),
}


SEARCH_FIELDS: Fields = {"search": (_list_of(dict), "a list of objects")}
SEARCH_POINT_FIELDS: Fields = {
    "updates": _COUNT,
    # Of a part of the course: heads open on average
    "open": (_of_gated(_SECONDS[0]), "an object of numbers, one for each attention with gates"),
}
OPTIONAL_ABOUT_FIELDS: Fields = {"models": (_list_of(str), "a list of names")}


def check(path: Path, document: Mapping[str, Any], expected: Fields) -> None:
    """Do nothing where a document has these fields, each of its kind.

    Raises:
        ValueError: one is missing or of another kind; the message names it.
    """
    for name, (fits, what) in expected.items():
        if name not in document:
            raise ValueError(f"{path} has no '{name}': make it again with claims.sh")
        if not fits(document[name]):
            shown = json.dumps(document[name])
            shown = shown if len(shown) <= 40 else f"{shown[:40]}…"
            raise ValueError(f"{path}: '{name}' is {shown}, and has to be {what}")


def check_translation(path: Path, translation: Mapping[str, Any]) -> None:
    """Do nothing where there are scores, and the statistics of each sentence.

    Raises:
        ValueError: there are not.
    """
    number = (_is(int, float), "a number")
    rows = (
        lambda value: _list_of(list)(value) and all(len(row) == STATISTICS for row in value),
        f"a list of {STATISTICS} numbers for each sentence",
    )
    check(path, translation, {"bleu": number, "chrf": number, "sentences": rows})


def check_speed(path: Path, speed: Mapping[str, Any]) -> None:
    """Do nothing where speed.json has the runs that were timed.

    Raises:
        ValueError: it has not.
    """
    rounds = (_list_of((int, float)), "a list of numbers")
    check(path, speed, {"models": (_list_of(dict), "a list of objects")})
    for model in speed["models"]:
        fields: Fields = {"run": TEXT, "density": _OBJECT}
        timed = {name: rounds for name in model if name.endswith("_rounds")}
        check(path, model, {**fields, **timed})
