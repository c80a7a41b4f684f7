"""The dictionaries of the task ``sentence_prediction``: words of both inputs, names of classes.

They are in folders beside each other: ``input0`` with the texts, ``input1`` with the second texts
of pairs, and ``label``. fairseq reads both inputs with the dictionary of the first, and takes
classes from the label's place in its dictionary, whatever ``--num-classes`` is.
"""

from __future__ import annotations

import os
import re
from typing import Any

from fairseq.data import Dictionary

from fairseq_entmax.data_bin import check_dictionary

INPUTS = ("input0", "input1")
MASK = "<mask>"
_REMEDY = "run fairseq-preprocess --only-source again for each of input0, input1 and label"


def check_words(task: Any) -> None:
    """Refuse a second input with a dictionary of its own, which would be read as other words."""
    first, second = (os.path.join(str(task.data), name, "dict.txt") for name in INPUTS)
    words = check_dictionary(first, _REMEDY)
    if os.path.isfile(second) and check_dictionary(second, _REMEDY).symbols != words.symbols:
        raise ValueError(
            f"{second} has other words than {first}, and fairseq reads both inputs with the "
            f"first: binarise input1 again, by fairseq-preprocess --srcdict {first}"
        )


def check_classes(task: Any) -> None:
    """Refuse another number of classes than there are labels."""
    if task.regression_target:
        return
    path = os.path.join(str(task.data), "label", "dict.txt")
    names = _names(check_dictionary(path, _REMEDY))
    if task.num_classes != len(names):
        raise ValueError(
            f"--num-classes {task.num_classes}: {path} has {len(names)} labels, "
            f"{', '.join(names[:8])}: give --num-classes {len(names)}"
        )


def class_names(labels: Dictionary, number: int) -> list[str]:
    """What classes are called, in their order.

    Args:
        labels: the task's dictionary of them.
        number: how many classes there are; those beyond the labels are called by their number,
            counted from 0.
    """
    known = _names(labels)[:number]
    taken = set(known)
    beyond = (str(place) for place in range(len(known), number))
    return known + [f"class {name}" if name in taken else name for name in beyond]


def _names(labels: Dictionary) -> list[str]:
    """The labels of a dictionary, without what fairseq puts behind them.

    These are a <mask> of the task, and words that fill the dictionary up, which no text has.
    """
    end = len(labels)
    if labels[end - 1] == MASK and labels.count[end - 1] == 1:
        end -= 1
    while end > labels.nspecial and _is_filling(labels[end - 1], labels.count[end - 1]):
        end -= 1
    return list(labels.symbols[labels.nspecial : end])


def _is_filling(word: str, count: int) -> bool:
    return count == 0 and re.fullmatch("madeupword[0-9]{4,}", word) is not None
