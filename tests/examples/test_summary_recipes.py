"""The recipes for summaries on miniature archives: from archives to ROUGE, and what can go wrong."""

from __future__ import annotations

import csv
import json
import os
import re
import signal
import subprocess
import time

import pytest

from tests.examples import miniatures, summary_miniatures
from tests.examples.test_recipes import EXAMPLES, contents, environment, lines, run

TINY = [
    *("--encoder-embed-dim=32", "--decoder-embed-dim=32"),
    *("--encoder-ffn-embed-dim=32", "--decoder-ffn-embed-dim=32"),
    *("--encoder-attention-heads=4", "--decoder-attention-heads=4"),
]
STORIES = {**summary_miniatures.STORIES, "train": summary_miniatures.STORIES["train"] - 1}
SIZES = {
    "LAYERS": "2",
    "PAIRS": "/".join(map(str, STORIES.values())),
    "VALID_PAIRS": f"{miniatures.VALID}",
    "VOCABULARY": "joint:300",
    # A model of a few updates ends its summaries neither early nor by itself
    "GENERATION_OPTIONS": "--min-len 1 --max-len-b 12 --beam 2",
}
UPDATES = ["--updates", 2, "--cpu"]


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    """Where the miniature archives of both recipes are."""
    folder = tmp_path_factory.mktemp("archives")
    found = {}
    for recipe in summary_miniatures.WRITERS:
        table = summary_miniatures.write(recipe, folder / recipe)
        found[recipe] = {"RAW_DIR": str(table.parent), "CORPORA": str(table), **SIZES}
    return found


@pytest.fixture(scope="module")
def stories(tables, tmp_path_factory):
    """The data of cnn_dm as subwords, and what prepare.sh said."""
    folder = tmp_path_factory.mktemp("stories")
    options = ["--output", folder, "--workers", 1]
    return folder, run("cnn_dm", "prepare.sh", *options, **tables["cnn_dm"]).stdout


def rouge(run_folder, name="test"):
    return json.loads((run_folder / f"{name}.rouge.json").read_text(encoding="utf-8"))


@pytest.mark.slow
def test_stories_become_articles_and_marked_sentences_cut_to_their_first_words(stories, tables):
    folder, said = stories
    assert "train: 59 pairs; left out 1 without an article or a summary" in said
    again = run("cnn_dm", "prepare.sh", "--output", folder, **tables["cnn_dm"]).stdout
    assert again.count("done before") == 4
    articles, summaries = (lines(folder / "tok" / f"test.{x}") for x in ("article", "summary"))
    assert [len(articles), len(summaries)] == [STORIES["test"]] * 2
    assert all(line.startswith("( CNN ) ") for line in articles)
    assert all(re.fullmatch("<t> .* </t> <t> .* </t>", line) for line in summaries)
    assert all("A picture of nothing . " in line for line in articles)
    # The marks are whole words of the dictionary
    words = {line.split()[0] for line in lines(folder / "data-bin" / "dict.summary.txt")}
    assert {"<t>", "</t>", "."} <= words
    assert lines(folder / "data-bin" / "units") == ["joint:300"]


@pytest.mark.slow
def test_stories_go_from_archives_to_rouge_beside_the_published_numbers(stories):
    folder, _ = stories
    options = ["--output", folder, *UPDATES]
    log = run("cnn_dm", "train.sh", *options, "sparse-tl", *TINY, **SIZES).stdout
    assert "num_updates 2 " in log
    printed = run("cnn_dm", "evaluate.sh", *options, "sparse-tl", **SIZES).stdout
    done = folder / "runs" / "sparse-tl_sparsemax-2updates"
    assert len(lines(done / "test.hyp")) == STORIES["test"]
    scores = rouge(done)
    assert scores["documents"] == STORIES["test"]
    assert scores["settings"]["sentences"] == "</t>"
    for name in ("rouge1", "rouge2", "rougeL"):
        interval = scores[name]["f1"]
        assert 0 <= interval["low"] <= interval["value"] <= interval["high"] <= 100
    assert f"ROUGE-1  {scores['rouge1']['f1']['value']:.2f} [" in printed
    assert "sparse-tl                             38.51    16.87    35.66" in printed
    again = run("cnn_dm", "evaluate.sh", *options, "sparse-tl", **SIZES).stdout
    assert again.count("done before") == 3


@pytest.mark.slow
def test_stories_as_words_have_numbers_for_others_and_words_again_in_the_summaries(
    tables, tmp_path
):
    words = {**tables["cnn_dm"], "VOCABULARY": "words:300"}
    run("cnn_dm", "prepare.sh", "--output", tmp_path, "--workers", 1, **words)
    dictionary = [line.split()[0] for line in lines(tmp_path / "data-bin" / "dict.article.txt")]
    assert dictionary[-200:] == [f"<unk-{number}>" for number in range(200)]
    assert len(dictionary) == 500
    # What the data are is asked of the data
    options = ["--output", tmp_path, *UPDATES]
    run("cnn_dm", "train.sh", *options, "baseline", *TINY, **SIZES)
    run("cnn_dm", "evaluate.sh", *options, "baseline", **SIZES)
    done = tmp_path / "runs" / "baseline-2updates"
    assert len(lines(done / "test.hyp")) == STORIES["test"]
    assert not re.search("<unk-", (done / "test.generated").read_text(encoding="utf-8"))
    assert "--source-position-markers 200" in (done / "settings.txt").read_text(encoding="utf-8")
    refused = run("cnn_dm", "train.sh", *options, "cross:softmax", check=False, **SIZES)
    assert refused.returncode == 2
    assert "'cross:softmax', which does not copy, and the data have words" in refused.stderr


@pytest.mark.slow
def test_a_model_that_copies_is_pruned_where_the_paper_prunes(stories):
    folder, _ = stories
    options = [
        "--output",
        folder,
        "--updates",
        2,
        "--search-updates",
        6,
        "--recovery-updates",
        4,
        "--cpu",
    ]
    options += ["--mapping", "baseline", "--budgets", "2/-/3"]
    run("cnn_dm", "prune.sh", *options, "--", *TINY, **SIZES)
    with (folder / "pruning.tsv").open(encoding="utf-8", newline="") as file:
        rows = {row["model"]: row for row in csv.DictReader(file, delimiter="\t")}
    assert list(rows) == ["baseline", "2-x-3-pruned"]
    pruned = rows["2-x-3-pruned"]
    heads = [pruned[name].split()[0] for name in ("encoder-self", "decoder-self", "cross")]
    assert heads == ["2", "8", "3"]
    for row in rows.values():
        assert all(0 <= float(row[f"ROUGE-{kind}"]) <= 100 for kind in "12L")


@pytest.mark.slow
def test_headlines_go_from_the_archive_to_both_test_sets(tables, tmp_path):
    prepared = run(
        "gigaword", "prepare.sh", "--output", tmp_path, "--workers", 1, **tables["gigaword"]
    )
    assert f"==> duc2004: {miniatures.TEST} pairs" in prepared.stdout
    options = ["--output", tmp_path, *UPDATES]
    run("gigaword", "train.sh", *options, "cross:fusedmax", *TINY, **SIZES)
    printed = run("gigaword", "evaluate.sh", *options, "cross:fusedmax", **SIZES).stdout
    done = tmp_path / "runs" / "cross_fusedmax-2updates"
    test, duc = rouge(done), rouge(done, "duc2004")
    assert (test["settings"]["bytes"], test["settings"]["statistic"]) == (None, "f1")
    assert (duc["settings"]["bytes"], duc["settings"]["statistic"]) == (75, "recall")
    assert (len(test["references"]), len(duc["references"])) == (1, 4)
    assert len(lines(done / "duc2004.hyp")) == miniatures.TEST
    assert "cross:fusedmax      36.09   17.62   33.69      28.42    9.96   25.55" in printed
    assert "--cross-attn-mapping fusedmax" in (done / "settings.txt").read_text(encoding="utf-8")


@pytest.mark.slow
def test_prepare_that_was_killed_while_it_read_stories_gives_the_same(stories, tables, tmp_path):
    straight, _ = stories
    # Taking a story out of an archive lasts long enough to be killed in
    slow = tmp_path / "slow"
    slow.mkdir()
    (slow / "sitecustomize.py").write_text(
        "import sys, tarfile, time\n"
        "if any(word.endswith('stories.py') for word in sys.orig_argv):\n"
        "    take = tarfile.TarFile.extractfile\n"
        "    tarfile.TarFile.extractfile = lambda *x: (time.sleep(0.05), take(*x))[1]\n"
    )
    path = f"{slow}:{os.environ.get('PYTHONPATH', '')}"
    process = subprocess.Popen(
        [EXAMPLES / "cnn_dm" / "prepare.sh", "--output", tmp_path / "out", "--workers", "1"],
        env=environment(**tables["cnn_dm"], PYTHONPATH=path),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    deadline = time.monotonic() + 120
    while not (tmp_path / "out" / "text.tmp").exists():
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.005)
    time.sleep(0.2)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    assert not (tmp_path / "out" / "text").exists()
    options = ["--output", tmp_path / "out", "--workers", 1]
    run("cnn_dm", "prepare.sh", *options, **tables["cnn_dm"])
    for folder in ("text", "tok", "bpe"):
        assert contents(tmp_path / "out" / folder) == contents(straight / folder)


# --- what can go wrong ---------------------------------------------------------


@pytest.mark.parametrize(
    ("recipe", "further", "message"),
    [
        ("cnn_dm", {"VOCABULARY": "words"}, "VOCABULARY is 'words': give joint:N or words:N"),
        ("cnn_dm", {"LOWERCASE": "yes"}, "LOWERCASE is 'yes': give 1, or leave it out"),
        ("cnn_dm", {"LAYERS": "0"}, "LAYERS got '0': give a whole number"),
        ("gigaword", {"SUMDATA": "/nowhere"}, "SUMDATA is '/nowhere', and there is no such folder"),
    ],
)
def test_a_wrong_setting_is_named(recipe, further, message, tmp_path):
    result = run(recipe, "prepare.sh", "--output", tmp_path, check=False, **further)
    assert result.returncode == 2
    assert message in result.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("recipe", "further", "message"),
    [
        ("cnn_dm", {"PAIRS": "58/6/6"}, "all_train.txt gives 59 pairs, and 58 are expected"),
        ("cnn_dm", {"PAIRS": "59/6"}, "PAIRS is '59/6': give 3 numbers"),
        ("gigaword", {"VALID_PAIRS": "0"}, "VALID_PAIRS is '0': give a number of at least 1"),
    ],
)
def test_numbers_of_pairs_that_do_not_fit_leave_nothing(recipe, further, message, tables, tmp_path):
    settings = {**tables[recipe], **further}
    result = run(recipe, "prepare.sh", "--output", tmp_path, check=False, **settings)
    assert result.returncode in (1, 2)
    assert message in result.stderr
    assert not [path for path in tmp_path.iterdir() if path.name != ".lock"]


def test_the_archive_of_gigaword_has_to_be_put_there_by_a_person(tmp_path):
    result = run("gigaword", "prepare.sh", "--output", tmp_path, check=False)
    assert result.returncode == 1
    assert "sent-summary.tar.gz cannot be downloaded by a program: get it from" in result.stderr


def test_a_model_that_there_is_not_is_named_with_those_there_are(tmp_path):
    result = run("cnn_dm", "train.sh", "--output", tmp_path, "softmax", check=False)
    assert result.returncode == 2
    assert "the model got 'softmax': give baseline, sparse-enc, sparse-tl" in result.stderr


def test_every_published_number_is_in_the_readme():
    for recipe in summary_miniatures.WRITERS:
        published = (EXAMPLES / recipe / "published.txt").read_text(encoding="utf-8")
        readme = (EXAMPLES / recipe / "README.md").read_text(encoding="utf-8")
        numbers = re.findall(r"\d+\.\d\d", published)
        assert len(numbers) >= 24
        assert [number for number in numbers if number not in readme] == []
