"""Data of texts and classes that fairseq would fail with, or read wrongly, are refused."""

from types import SimpleNamespace

import numpy
import pytest
from fairseq.data import Dictionary
from fairseq.data.indexed_dataset import MMapIndexedDatasetBuilder

from fairseq_entmax.classification_data import check_classes, check_data

TEXTS = [["a", "b"], ["c"], ["a", "c", "b"]]
SECOND = [["b"], ["a", "b"], ["c"]]
LABELS = [["yes"], ["no"], ["yes"]]


def write(folder, split, lines, words=None):
    folder.mkdir(exist_ok=True)
    dictionary = Dictionary()
    for word in words or ("a", "b", "c"):
        dictionary.add_symbol(word)
    dictionary.save(str(folder / "dict.txt"))
    builder = MMapIndexedDatasetBuilder(str(folder / f"{split}.bin"), dtype=numpy.int32)
    for line in lines:
        builder.add_item(dictionary.encode_line(" ".join(line), add_if_not_exist=False).int())
    builder.finalize(str(folder / f"{split}.idx"))


@pytest.fixture
def data(tmp_path):
    for split in ("train", "valid"):
        write(tmp_path / "input0", split, TEXTS)
        write(tmp_path / "input1", split, SECOND)
        write(tmp_path / "label", split, LABELS, ("yes", "no"))
    return tmp_path


def check(folder, is_pair=False, needs_numbers=False, **options):
    defaults = {
        "data": str(folder),
        "num_classes": 2,
        "regression_target": False,
        "init_token": None,
        "separator_token": None,
        "shorten_method": "none",
        "shorten_data_split_list": "",
        "max_positions": 512,
    }
    check_data(
        SimpleNamespace(**{**defaults, **options}), ("train", "valid"), is_pair, needs_numbers
    )


def refused(folder, message, is_pair=False, **options):
    with pytest.raises(ValueError, match=message):
        check(folder, is_pair, **options)


@pytest.mark.parametrize("is_pair", [False, True])
def test_whole_data_are_taken(data, is_pair):
    check(data, is_pair)
    check(data, is_pair, init_token=0, separator_token=2, shorten_method="truncate")


def test_data_without_second_texts_are_taken_unless_pairs_are_asked_for(data):
    for path in (data / "input1").iterdir():
        path.unlink()
    check(data)
    refused(data, "--pair-attention needs two texts for each label, and there is no .*train", True)


@pytest.mark.parametrize("name", ["input0", "label"])
def test_a_missing_folder_is_named(data, name):
    (data / name).rename(data / "gone")
    refused(data, f"there is no dictionary .*{name}/dict.txt, it is missing")


@pytest.mark.parametrize("name", ["input0/train", "label/valid"])
def test_a_missing_data_set_is_named(data, name):
    (data / f"{name}.idx").unlink()
    refused(data, f"there is no .*{name}.idx: run fairseq-preprocess --only-source")


def test_second_texts_of_one_data_set_alone_are_refused(data):
    (data / "input1" / "valid.idx").unlink()
    refused(data, "there is no .*input1/valid.idx, but input1 has other data sets")


@pytest.mark.parametrize("name", ["input0/train.idx", "input1/valid.bin", "label/train.bin"])
def test_a_file_cut_short_is_named(data, name):
    path = data / name
    path.write_bytes(path.read_bytes()[:-3])
    refused(data, f"{name} is damaged")


def test_inputs_of_other_numbers_of_texts_are_refused(data):
    write(data / "input1", "train", SECOND[:2])
    refused(data, "input0/train.idx is of 3 and .*input1/train.idx is of 2 .*do not fit each")


def test_a_second_input_with_a_dictionary_of_its_own_is_refused(data):
    write(data / "input1", "train", SECOND, ("b", "a", "c"))
    refused(data, "input1/dict.txt has other words than .*by fairseq-preprocess --srcdict")


def test_more_labels_than_classes_are_refused(data):
    refused(
        data,
        "--num-classes 1: .*train.bin has the label 'no' for text 1, .* give --num-cl.* 2",
        num_classes=1,
    )


def test_names_that_fairseq_would_take_for_numbers_are_refused(data):
    refused(data, "--report-mcc .* has 'yes': name labels 0 and 1", needs_numbers=True)
    for split in ("train", "valid"):
        write(data / "label", split, [["1"], ["0"], ["1"]], ("1", "0", "other"))
    check(data, needs_numbers=True)


@pytest.mark.parametrize("lines", [[["yes"], ["yes", "no"], ["no"]], [["yes"], [], ["no"]]])
def test_a_text_without_its_one_label_is_refused(data, lines):
    write(data / "label", "train", lines, ("yes", "no"))
    refused(data, f"has {len(lines[1])} labels for text 1, each text has one")


def test_a_label_that_the_dictionary_lacks_is_refused(data):
    write(data / "label", "valid", [["yes"], ["yes"], ["maybe"]], ("yes", "no"))
    refused(data, "label/valid.bin has a label for text 2 that label/dict.txt has not")


def test_numbers_to_predict_are_read(data):
    options = {"regression_target": True, "num_classes": 1}
    refused(data, "--regression-target needs .*train.label", **options)
    for split in ("train", "valid"):
        (data / "label" / f"{split}.label").write_text("0.5\n-1\n2e3\n")
    check(data, **options)
    (data / "label" / "train.label").write_text("0.5\nx\n2\n")
    refused(data, "train.label, line 2: not 1 numbers, as --num-classes says, but 'x'", **options)
    (data / "label" / "train.label").write_text("0.5\n")
    refused(data, "train.label is of 1 texts, which do not fit each other", **options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_classes": -1}, "--num-classes must be the number of classes, 1 or more, not -1"),
        ({"init_token": 8}, "--init-token 8 is none of the 8 symbols of the dictionary"),
        ({"separator_token": -1}, "--separator-token -1 is none of the 8 symbols"),
        ({"d2v2_multi": True}, "--d2v2-multi is for data2vec"),
    ],
)
def test_a_wrong_option_of_the_task_is_refused(data, options, message):
    refused(data, message, **options)


def test_cutting_that_may_take_the_second_text_away_is_refused_for_pairs(data):
    refused(data, "--shorten-method random_crop may crop away", True, shorten_method="random_crop")
    check(data, shorten_method="random_crop")
    cut = {"shorten_method": "truncate", "max_positions": 4}
    refused(data, "--max-positions 4 --shorten-method truncate leaves nothing", True, **cut)
    check(data, True, **{**cut, "max_positions": 5})
    check(data, True, **cut, shorten_data_split_list="test")


def labels_of(folder, lines):
    (folder / "label" / "dict.txt").write_text(lines, encoding="utf-8")
    return SimpleNamespace(data=str(folder), num_classes=3, regression_target=False)


def test_more_classes_than_labels_are_refused_with_the_labels(data):
    # As fairseq-preprocess writes it, which fills dictionaries up
    task = labels_of(data, "yes 2\nno 1\nmadeupword0000 0\nmadeupword0001 0\n")
    message = "--num-classes 3: .*dict.txt has 2 labels, yes, no .*: give --num-classes 2"
    with pytest.raises(ValueError, match=message):
        check_classes(task)
    task.num_classes = 2
    check_classes(task)


def test_a_label_that_looks_like_filling_and_is_in_the_data_is_a_label(data):
    task = labels_of(data, "yes 2\nno 1\nmadeupword0000 1\n")
    check_classes(task)
    task.num_classes = 4
    with pytest.raises(ValueError, match="has 3 labels, yes, no, madeupword0000"):
        check_classes(task)


def test_numbers_to_predict_need_no_labels(data):
    task = labels_of(data, "")
    task.regression_target = True
    check_classes(task)


def test_of_many_labels_the_first_are_said(data):
    task = labels_of(data, "".join(f"l{number} 1\n" for number in range(9)))
    task.num_classes = 10
    with pytest.raises(ValueError, match=r"has 9 labels, l0, .*, l7, … .*: give --num-classes 9"):
        check_classes(task)
