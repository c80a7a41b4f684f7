"""Small valid inputs of every kind."""

import json
import random
import shutil

import pytest

from fairseq_entmax import cli
from tests.analysis.conftest import tiny  # noqa: F401
from tests.fuzz.support import Place
from tests.support import random_sentences

PRUNING = (
    "mapping\tmodel\tencoder-self\tdecoder-self\tcross\tBLEU\tparameters\tsentences/s\tspeed\n"
    "softmax\tbaseline\t8 (4,4)\t8 (4,4)\t8 (4,4)\t20.5\t10000\t30.1\t1.0\n"
    "softmax\tall12-pruned\t4 (3,1)\t4 (2,2)\t4 (4,0)\t20.1\t9000\t40.2\t1.3\n"
)
# The same as in the data of the fixture tiny
SOURCES = random_sentences([5, 9, 3, 7, 11, 4, 6, 8])


@pytest.fixture(scope="session")
def inputs(tiny, tmp_path_factory):  # noqa: F811
    """A folder with one file of each kind that a command reads."""
    folder = tmp_path_factory.mktemp("inputs") / "inputs"
    shutil.copytree(tiny, folder)
    chance = random.Random(1)
    lines = [" ".join(f"w{chance.randrange(25)}" for _ in range(5)) for _ in range(6)]
    (folder / "source.txt").write_text("\n".join(lines) + "\n")
    (folder / "target.txt").write_text("\n".join(lines[::-1]) + "\n")
    markers = "".join(f"<unk-{number}> 0\n" for number in range(3))
    (folder / "vocab.txt").write_text("".join(f"w{n} 9\n" for n in range(20)) + markers)
    mark = ["oov", "mark", "--vocab", str(folder / "vocab.txt")]
    files = ["--source", str(folder / "source.txt"), "--output-source", str(folder / "marked.txt")]
    succeed([*mark, *files])
    marked = (folder / "marked.txt").read_text().splitlines()
    generated = [
        f"{kind}-{number}\t{text}\n"
        for number, line in enumerate(marked)
        for kind, text in (("S", line), ("H", f"-0.5\t{line}"), ("D", f"-0.5\t{line}"))
    ]
    (folder / "generated.txt").write_text("".join(generated))
    (folder / "parses.conllu").write_text("".join(map(parse, words_of(SOURCES))))
    (folder / "pruning.tsv").write_text(PRUNING)
    (folder / "whole-words").mkdir()
    for language in "ab":
        text = (folder / "bin" / f"dict.{language}.txt").read_text().replace("▁", "")
        (folder / "whole-words" / f"dict.{language}.txt").write_text(text)
    values = {name: {"0": [1.5] * 4, "1": [1.4] * 4} for name in ("encoder-self", "cross")}
    values["decoder-self"] = values["cross"]
    records = [json.dumps({"update": update, "alpha": values}) for update in (0, 5, 7)]
    (folder / "alpha.jsonl").write_text("\n".join(records) + "\n")
    data = [str(folder / "bin"), f"--path={folder / 'plain.pt'}", "--cpu", "--num-workers=0"]
    ablated = ["--heads=cross:0.1", "--scores=loss", f"--output={folder / 'ablated'}"]
    succeed(["ablate", *data, *ablated])
    succeed(["analyze", *data, "--sentences=0", "--measures=density", f"--output={folder}"])
    return folder


def succeed(words):
    assert cli.main(words) == 0


def words_of(sentences):
    """The words that the pieces form, by sentencepiece's sign for the beginning of a word."""
    for sentence in sentences:
        pieces = [f"{'▁' * (n % 2)}w{n}" for n in (sentence[:-1] - 4).tolist()]
        yield "".join(pieces).replace("▁", " ").split()


def parse(words):
    rows = [
        f"{number}\t{word}\t_\tNOUN\t_\t_\t{number - 1}\t{'obl:x' if number > 1 else 'root'}\t_\tNER=O\n"
        for number, word in enumerate(words, 1)
    ]
    return f"# text\n{''.join(rows)}\n"


@pytest.fixture
def place(inputs, tmp_path):
    """The working folder of each example, with those inputs."""
    return Place(inputs, tmp_path)
