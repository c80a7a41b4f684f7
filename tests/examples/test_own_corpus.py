"""examples/own_corpus: one command from two texts to scores and a report, and wrong options."""

import csv
import json
import re
import shutil

import pytest

from tests import preloaded
from tests.examples import dry_runs
from tests.examples.dry_runs import PATH
from tests.examples.miniatures import lines, verses

TINY = [
    f"--{side}-{size}"
    for side in ("encoder", "decoder")
    for size in ("layers=1", "embed-dim=16", "ffn-embed-dim=16", "attention-heads=2")
]


def run(script, *arguments, check=True, pieces=300):
    environment = {"PATH": preloaded.path(PATH), "BPE_SIZE": str(pieces)}
    environment["GENERATION_OPTIONS"] = "--beam 1 --max-len-a 0 --max-len-b 9"
    return dry_runs.run("own_corpus", script, *arguments, check=check, **environment)


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    """English verses and their Spanish translation, in two files with arbitrary names."""
    folder = tmp_path_factory.mktemp("texts")
    pairs = verses(240)
    for name, side in (("english", 1), ("spanish.txt", 0)):
        (folder / name).write_text("".join(f"{pair[side]}\n" for pair in pairs), encoding="utf-8")
    return ["--source", folder / "english", "--target", folder / "spanish.txt"]


@pytest.mark.slow
def test_one_command_gives_scores_and_a_report_and_a_second_run_does_nothing(texts, tmp_path):
    out = tmp_path / "out"
    command = [*texts, "--source-lang", "en", "--target-lang", "es", "--lower"]
    command += ["--mappings", "stock,entmax", "--updates", 2, "--output", out, "--cpu"]
    command += ["--", *TINY, "--clip-norm", "1.0"]
    run("run.sh", *command)
    table = (out / "scores.tsv").read_text(encoding="utf-8")
    rows = list(csv.DictReader(table.splitlines(), delimiter="\t"))
    assert [row["model"] for row in rows] == ["stock", "entmax"]
    assert all(0 <= float(row["BLEU"]) <= 100 and 0 <= float(row["chrF2"]) <= 100 for row in rows)
    analysis = json.loads((out / "compare" / "analysis.json").read_text(encoding="utf-8"))
    assert [model["name"] for model in analysis["models"]] == ["stock", "entmax"]
    report = (out / "compare" / "report.html").read_text(encoding="utf-8")
    assert "<title>Attention heads of stock, entmax on en-es test</title>" in report
    assert "learned: mean" in (out / "runs" / "entmax-2updates" / "alpha.txt").read_text("utf-8")
    # Options reach the text, the model and the training
    assert len(lines(out / "text" / "valid.en")) == len(lines(out / "text" / "test.es")) == 12
    assert all(line == line.lower() for line in lines(out / "text" / "train.es"))
    stock, entmax = (
        (out / "runs" / f"{model}-2updates" / "settings.txt").read_text("utf-8") + " "
        for model in ("stock", "entmax")
    )
    for option in ("--arch transformer", "--encoder-embed-dim=16", "--max-update 2"):
        assert f"{option} " in stock
    assert "--clip-norm 1.0" in stock
    assert "--attn-mapping entmax " in entmax
    # It becomes sparse by degrees in the first half
    assert "--alpha-warmup-updates 1 " in entmax
    assert "--alpha" not in stock
    again = run("run.sh", *command).stdout
    # text, subwords, binarise; per model train, translate, score; the alpha table; scores, report
    assert again.count("already done") == 3 + 2 * 3 + 1 + 2
    assert (out / "scores.tsv").read_text(encoding="utf-8") == table


@pytest.mark.slow
def test_too_many_subwords_are_refused_with_the_largest_possible_number(texts, tmp_path):
    options = [*texts, "--output", tmp_path]
    refused = run("prepare.sh", *options, check=False, pieces=30_000)
    assert refused.returncode == 1
    assert "prepare.sh: error: 30000 subwords cannot be learned" in refused.stderr
    most = re.search(r"set it to a value <= (\d+)", refused.stderr)[1]
    assert not (tmp_path / "spm").exists()
    assert "data ready" in run("prepare.sh", *options, pieces=most).stdout


def test_another_text_is_refused_where_models_of_the_old_one_exist(texts, tmp_path):
    command = ["prepare.sh", *texts, "--output", tmp_path, "--workers", 1]
    run(*command, pieces=200)
    run(*command)  # no model depends on it yet
    (tmp_path / "runs" / "entmax-1epochs").mkdir(parents=True)
    dictionary = (tmp_path / "data-bin" / "dict.src.txt").read_bytes()
    refused = run(*command, check=False, pieces=200)
    assert refused.returncode == 1
    assert "has models trained on them" in refused.stderr
    assert (tmp_path / "data-bin" / "dict.src.txt").read_bytes() == dictionary
    # The same text in another place
    command[2:5:2] = [shutil.copy(path, tmp_path) for path in texts[1::2]]
    assert run(*command).stdout.count("already done") == 3


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--mappings", "stock,,entmax"], "--mappings got 'stock,,entmax': separate names"),
        (["--mappings", "entmax,entmax"], "option --mapping or --mappings has 'entmax' twice"),
        (["--mappings", "sparsemax*5,softmax"], "give the whole list with --mapping"),
        (["--mappings", "stock,entmaxx"], "got 'entmaxx'"),
        (["--updates", "0"], "option --updates got '0'"),
        (["--source-lang", "zh-Hans"], "option --source-lang got 'zh-Hans': give a short name"),
        (["--source-lang", "tgt"], "option --target-lang got 'tgt', the same as --source-lang"),
        (["--source", "nowhere"], "option --source got 'nowhere': no such file; give the path"),
        (["--target", "../nothing.de"], "option --target got '../nothing.de': no such file"),
        (["--fp16"], "unknown option '--fp16': options of fairseq-train go after --"),
        (["file.txt"], "unknown argument 'file.txt': name the texts with --source and --target"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)  # fmt: skip
def test_a_wrong_option_is_refused_in_one_line_at_the_start(arguments, message, texts, tmp_path):
    refused = run("run.sh", *texts, "--output", tmp_path / "out", *arguments, check=False)
    assert refused.returncode
    assert message in refused.stderr
    assert refused.stderr.count("\n") == 1
    assert refused.stdout == ""
    assert not (tmp_path / "out").exists()


def test_the_same_file_twice_leaves_nothing_behind(texts, tmp_path):
    twice = ["--source", texts[1], "--target", texts[1], "--output", tmp_path]
    refused = run("prepare.sh", *twice, check=False)
    assert refused.returncode == 2
    assert "prepare.sh: error: source and target are the same file" in refused.stderr
    assert [path.name for path in tmp_path.iterdir()] == [".lock"]
