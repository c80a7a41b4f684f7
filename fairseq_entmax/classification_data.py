"""The data of the task ``sentence_prediction``, checked before fairseq reads it.

They are in folders beside each other: ``input0`` with the texts, ``input1`` with the second texts
of pairs, and ``label`` with a class or, for regression, with ``SPLIT.label``, the numbers as text.
fairseq reads both inputs with the dictionary of the first, and takes classes from the label's
place in its dictionary, whatever ``--num-classes`` is.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from typing import Any

import numpy
from fairseq.data import Dictionary

from fairseq_entmax.data_bin import check_dictionary, check_side, tokens_of

INPUTS = ("input0", "input1")
MASK = "<mask>"
# Of labels, in a message
MOST_NAMES = 8
_REMEDY = "run fairseq-preprocess --only-source again for each of input0, input1 and label"


def check_data(
    task: Any,
    splits: Iterable[str],
    is_pair: bool,
    needs_numbers: bool = False,
    may_lack: bool = False,
) -> None:
    """Refuse data, and options of the task, that training would fail with or be wrong with.

    Args:
        task: its options.
        splits: the data sets that training reads.
        is_pair: whether the texts of each pair are pooled apart.
        needs_numbers: whether the criterion takes the names of classes for numbers, as fairseq's
            does for ``--report-mcc`` and its like.
        may_lack: whether a split that is not there is passed over.

    Raises:
        ValueError: names the option or file, what it is, and what to do.
    """
    _check_options(task, is_pair)
    folder = str(task.data)
    words = check_dictionary(os.path.join(folder, "input0", "dict.txt"), _REMEDY)
    _check_same_words(folder)
    # The task adds <mask>
    for name in ("init_token", "separator_token"):
        token = getattr(task, name, None)
        if token is not None and not 0 <= token <= len(words):
            raise ValueError(
                f"--{name.replace('_', '-')} {token} is none of the {len(words) + 1} symbols of the "
                f"dictionary, which are numbered from 0"
            )
    labels = None
    if not task.regression_target:
        labels = check_dictionary(os.path.join(folder, "label", "dict.txt"), _REMEDY)
        _check_names(labels, task.num_classes if needs_numbers else 0)
    has_second: dict[str, bool] = {}
    for split in splits:
        if may_lack and not _is_there(os.path.join(folder, "input0", split)):
            continue
        has_second[split] = _check_split(task, split, labels, is_pair)
    if len(set(has_second.values())) > 1:
        without = next(split for split, is_there in has_second.items() if not is_there)
        raise ValueError(
            f"there is no {os.path.join(folder, 'input1', without)}.idx, but input1 has other data "
            f"sets: {_REMEDY}"
        )


def check_classes(task: Any) -> None:
    """Refuse more classes than there are labels, as nothing would ever be of those.

    Args:
        task: its options, whose data have passed :func:`check_data`.

    Raises:
        ValueError: names the option, the labels, and the number to give.
    """
    if task.regression_target:
        return
    path = os.path.join(str(task.data), "label", "dict.txt")
    names = _names(check_dictionary(path, _REMEDY))
    if task.num_classes > len(names):
        shown = ", ".join(names[:MOST_NAMES]) + ", …" * (len(names) > MOST_NAMES)
        raise ValueError(
            f"--num-classes {task.num_classes}: {path} has {len(names)} labels, {shown} (a "
            f"madeupword is none, fairseq-preprocess fills the file up with them): give "
            f"--num-classes {len(names)}"
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


def _check_options(task: Any, is_pair: bool) -> None:
    if task.num_classes < 1:
        raise ValueError(
            f"--num-classes must be the number of classes, 1 or more, not {task.num_classes}"
        )
    if getattr(task, "d2v2_multi", False):
        raise ValueError("--d2v2-multi is for data2vec, not for this model: leave it out")
    if is_pair and str(task.shorten_method) == "random_crop":
        raise ValueError(
            "--shorten-method random_crop may crop away the separator that --pair-attention "
            "needs: use truncate, or a larger --max-positions"
        )


def _check_same_words(folder: str) -> None:
    """Refuse a second input with a dictionary of its own, which would be read as other words."""
    first, second = (os.path.join(folder, name, "dict.txt") for name in INPUTS)
    if os.path.isfile(second):
        words = (check_dictionary(path, _REMEDY).symbols for path in (first, second))
        if next(words) != next(words):
            raise ValueError(
                f"{second} has other words than {first}, and fairseq reads both inputs with the "
                f"first: binarise input1 again, by fairseq-preprocess --srcdict {first}"
            )


def _check_names(labels: Dictionary, number: int) -> None:
    """Refuse names of the first so many classes that are no numbers."""
    for name in labels.symbols[labels.nspecial :][:number]:
        if not re.fullmatch("[+-]?[0-9]+", name):
            raise ValueError(
                f"--report-mcc and --report-acc-and-f1 take labels for numbers, and label/dict.txt "
                f"has {name!r}: name labels 0 and 1, or leave them out"
            )


def _check_split(task: Any, split: str, labels: Dictionary | None, is_pair: bool) -> bool:
    """Check one data set; whether it has a second input."""
    folder = str(task.data)
    paths = {name: os.path.join(folder, name, split) for name in (*INPUTS, "label")}
    has_second = _is_there(paths["input1"])
    if not has_second:
        if is_pair:
            raise ValueError(
                f"--pair-attention needs two texts for each label, and there is no "
                f"{paths['input1']}.idx: {_REMEDY}, or leave --pair-attention out"
            )
        del paths["input1"]
    if labels is None:
        del paths["label"]
    numbers: dict[str, int] = {}
    for path in paths.values():
        if not _is_there(path):
            raise ValueError(f"there is no {path}.idx: {_REMEDY}")
        number = check_side(path, None) if os.path.exists(f"{path}.idx") else None
        if number is None:  # of an implementation that fairseq reads on its own
            return has_second
        numbers[f"{path}.idx"] = number
    if labels is None:
        path = os.path.join(folder, "label", f"{split}.label")
        numbers[path] = _check_regression(path, task.num_classes)
    else:
        _check_labels(paths["label"], labels, task.num_classes)
    if len(set(numbers.values())) > 1:
        said = " and ".join(f"{name} is of {number}" for name, number in numbers.items())
        raise ValueError(f"{said} texts, which do not fit each other: {_REMEDY}")
    if is_pair and str(task.shorten_method) == "truncate":
        _check_room(task, split, paths["input0"])
    return has_second


def _is_there(prefix: str) -> bool:
    return os.path.exists(f"{prefix}.idx") or os.path.exists(prefix)


def _check_labels(prefix: str, labels: Dictionary, num_classes: int) -> None:
    """Refuse lines that have not one label, and labels beyond the number of classes."""
    tokens, ends = tokens_of(prefix)
    is_label = tokens != labels.eos()
    counts = numpy.diff(numpy.concatenate([[0], numpy.cumsum(is_label)[ends - 1]]))
    if (counts != 1).any():
        line = int((counts != 1).argmax())
        raise ValueError(
            f"{prefix}.bin has {counts[line]} labels for text {line}, each text has one: write a "
            f"label as one word, and {_REMEDY}"
        )
    classes = tokens[is_label].astype(numpy.int64) - labels.nspecial
    wrong = (classes < 0) | (classes >= num_classes)
    if wrong.any():
        line = int(wrong.argmax())
        place = int(classes[line])
        if not 0 <= place < len(labels) - labels.nspecial:
            raise ValueError(
                f"{prefix}.bin has a label for text {line} that label/dict.txt has not: {_REMEDY}"
            )
        raise ValueError(
            f"--num-classes {num_classes}: {prefix}.bin has the label "
            f"{labels[place + labels.nspecial]!r} for text {line}, which is class {place}, "
            f"counted from 0: give --num-classes {int(classes.max()) + 1}"
        )


def _check_regression(path: str, num_classes: int) -> int:
    """The number of lines of numbers to predict."""
    try:
        with open(path, encoding="utf-8") as file:
            lines = file.readlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(
            f"--regression-target needs {path}, a line of numbers for each text, which cannot be "
            f"read: {error}"
        ) from None
    for number, line in enumerate(lines):
        try:
            is_right = len([float(value) for value in line.split()]) == num_classes
        except ValueError:
            is_right = False
        if not is_right:
            raise ValueError(
                f"{path}, line {number + 1}: not {num_classes} numbers, as --num-classes says, but "
                f"{line.strip()[:80]!r}"
            )
    return len(lines)


def _check_room(task: Any, split: str, prefix: str) -> None:
    """Refuse a first text so long that nothing of the second is left when sources are cut."""
    shortened = str(task.shorten_data_split_list or "")
    if shortened and split not in shortened.split(","):
        return
    _, ends = tokens_of(prefix)
    longest = int(numpy.diff(ends, prepend=0).max()) + (task.init_token is not None)
    longest += task.separator_token is not None
    if longest >= task.max_positions:
        raise ValueError(
            f"--max-positions {task.max_positions} --shorten-method truncate leaves nothing of a "
            f"second text that --pair-attention needs: {prefix}.idx has a first text of {longest} "
            f"symbols, separator included"
        )
