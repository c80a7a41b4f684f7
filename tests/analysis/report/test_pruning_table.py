import pytest

from fairseq_entmax.analysis.report.figures import read_pruning

HEADER = "mapping\tmodel\tencoder-self\tdecoder-self\tcross\tBLEU\tparameters\tsentences/s\tspeed"
GOOD = "softmax\tall24-pruned\t1 (0,1,0)\t7 (7,0,0)\t16 (1,7,8)\t18.13\t852736\t38.3\t1.25"


def written(tmp_path, *lines):
    path = tmp_path / "pruning.tsv"
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


def test_the_rows_have_the_columns_of_the_file(tmp_path):
    (row,) = read_pruning(written(tmp_path, HEADER, GOOD))
    assert row == {
        "mapping": "softmax",
        "model": "all24-pruned",
        "encoder-self": [0, 1, 0],
        "decoder-self": [7, 0, 0],
        "cross": [1, 7, 8],
        "BLEU": 18.13,
        "parameters": 852736,
        "sentences/s": 38.3,
        "speed": 1.25,
    }


@pytest.mark.parametrize(
    "model", ["baseline", "continued", "encoder4-pruned", "2-3-4-scratch", "all48-scratch"]
)
def test_every_model_of_the_recipe_is_known(tmp_path, model):
    (row,) = read_pruning(written(tmp_path, HEADER, GOOD.replace("all24-pruned", model)))
    assert row["model"] == model


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ([], "the first line does not name the columns mapping, model"),
        (["model\tBLEU", "a\t1"], "the first line does not name the columns mapping, model"),
        ([HEADER], "no model is in it; run prune.sh to its end"),
        ([HEADER, GOOD, GOOD[:-5]], "line 3: 8 columns instead of 9"),
        ([HEADER, GOOD.replace("all24", "half")], "line 2: the model is 'half-pruned', not"),
        ([HEADER, GOOD.replace("1 (0,1,0)", "24")], "encoder-self are '24', not a sum"),
        ([HEADER, GOOD.replace("1 (0,1,0)", "2 (0,1,0)")], r"encoder-self are '2 \(0,1,0\)', not"),
        ([HEADER, GOOD.replace("18.13", "good")], "BLEU is 'good', not a number from 0"),
        ([HEADER, GOOD.replace("18.13", "nan")], "BLEU is 'nan', not a number from 0"),
        ([HEADER, GOOD.replace("1.25", "-1")], "speed is '-1', not a number from 0"),
        ([HEADER, GOOD.replace("852736", "8.5")], "parameters is '8.5', not a number from 0"),
    ],
)
def test_what_is_no_such_table_gives_one_sentence_that_names_the_place(tmp_path, lines, message):
    with pytest.raises(ValueError, match=message) as caught:
        read_pruning(written(tmp_path, *lines))
    assert str(caught.value).startswith("--pruning ")
    assert "pruning.tsv" in str(caught.value)


def test_a_file_that_is_no_text_is_named(tmp_path):
    path = tmp_path / "pruning.tsv"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ValueError, match=r"--pruning .*: not a text"):
        read_pruning(path)


def test_a_file_that_is_missing_is_named_with_what_to_give(tmp_path):
    for path in (tmp_path / "pruning.tsv", tmp_path):
        with pytest.raises(FileNotFoundError, match=r"--pruning .* give the pruning\.tsv"):
            read_pruning(path)
