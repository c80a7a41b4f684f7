import pytest

from fairseq_entmax.analysis.report.pruning_table import read_pruning

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
    ("lines", "message"),
    [
        ([], "the first line does not name the columns mapping, model"),
        (["model\tBLEU", "a\t1"], "the first line does not name the columns mapping, model"),
        ([HEADER, GOOD, GOOD[:-5]], "line 3: .*run prune.sh again"),
        ([HEADER, GOOD.replace("1 (0,1,0)", "24")], "encoder-self are '24', not a sum"),
        ([HEADER, GOOD.replace("18.13", "good")], "line 2: .*'good'"),
    ],
)
def test_what_is_no_such_table_gives_one_sentence_that_names_the_place(tmp_path, lines, message):
    path = written(tmp_path, *lines)
    with pytest.raises(ValueError, match=message) as caught:
        read_pruning(path)
    assert str(caught.value).startswith(f"--pruning {path}")


def test_a_file_that_is_missing_or_no_text_is_named_with_what_to_give(tmp_path):
    path = tmp_path / "pruning.tsv"
    with pytest.raises(FileNotFoundError, match=r"--pruning .* give the pruning\.tsv"):
        read_pruning(path)
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ValueError, match=r"--pruning .* give the pruning\.tsv"):
        read_pruning(path)
