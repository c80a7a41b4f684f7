"""``look`` in Python."""

from __future__ import annotations

from typing import Any

from fairseq_entmax.analysis.looking import opening
from fairseq_entmax.analysis.looking.sentence import Look


def look(
    model: Any,
    text: str,
    translation: str | None = None,
    *,
    second: str | None = None,
    task: Any = None,
    data: str | None = None,
    lower: bool | None = None,
    **options: Any,
) -> Look:
    """The attention of every head on one sentence.

        print(look(model, "En el principio crió Dios los cielos y la tierra."))

    Args:
        model: a model of this package: what ``from_pretrained`` or ``load_model`` gave, the path
            of a checkpoint, or the model itself with its task. Of fairseq's own ``transformer``
            the path, or what ``load_model`` gave.
        text: as it would be written; it is cut into subwords as ``from_pretrained`` was told, or
            as ``options`` say, or as is found out from what lies beside the data.
        translation: what the model is to have said of it; None lets it translate.
        second: the second text of a pair, for classifiers of pairs.
        task: fairseq's; None takes what comes with the model, or with its checkpoint.
        data: the folder with the dictionaries, for a checkpoint whose own is not there.
        lower: whether the text is lower-cased, as that of the training was; None does so where the
            dictionary has no capital letter.
        **options: of fairseq, such as ``beam=1``, ``bpe="sentencepiece"`` with
            ``sentencepiece_model="bpe.model"``; True for an option without a value.

    Raises:
        ValueError: the text is empty, too long, or nothing says how it is cut; the model is an
            ensemble, or has no attention that can be looked at; an option is wrong.
        FileNotFoundError, UnsafeCheckpointError: the checkpoint cannot be read.
    """
    if not isinstance(text, str):
        raise ValueError(f"look takes one text, not {type(text).__name__}")
    words: list[str] = []
    for name, value in options.items():
        option = f"--{name.replace('_', '-')}"
        words += [option] if value is True else [option, str(value)]
    session = opening.of_model(model, task, data, words, lower)
    (found,) = session.look(
        [text],
        None if translation is None else [translation],
        None if second is None else [second],
    )
    return found
