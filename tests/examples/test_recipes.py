"""Every recipe on miniature archives: from raw archive to table, and what can go wrong."""

from __future__ import annotations

import contextlib
import csv
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

from tests import preloaded
from tests.examples import lm_miniatures, miniatures, summary_miniatures
from tests.examples.serving import serve

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"
RECIPES = list(miniatures.WRITERS)
# Those of the paper on pruning
PRUNING = ("wmt_en_ru", "opensubtitles_en_ru")
PATH = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
# A model that a CPU trains in no time, whatever the recipe's
TINY = [
    "--encoder-layers=2",
    "--decoder-layers=2",
    "--encoder-embed-dim=32",
    "--decoder-embed-dim=32",
    "--encoder-ffn-embed-dim=32",
    "--decoder-ffn-embed-dim=32",
]


def environment(**further):
    sizes = {"VALID_PAIRS": "16", "TEST_PAIRS": "12", **miniatures.TRIAL}
    return {**os.environ, "PATH": PATH, "OMP_NUM_THREADS": "1", **sizes, **further}


def run(recipe, script, *arguments, check=True, **further):
    result = subprocess.run(
        [EXAMPLES / recipe / script, *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        env=environment(**{"PATH": preloaded.path(PATH), **further}),
    )
    if check:
        assert result.returncode == 0, result.stdout[-3000:] + result.stderr[-3000:]
    return result


@pytest.fixture(scope="module")
def archives(tmp_path_factory):
    """Where the miniature archives of each recipe are, written when asked for."""
    folder = tmp_path_factory.mktemp("archives")

    def of(recipe):
        table = folder / recipe / "corpora.tsv"
        if not table.exists():
            miniatures.write(recipe, folder / recipe)
        return {"RAW_DIR": str(folder / recipe), "CORPORA": str(table)}

    return of


def lines(path):
    return path.read_text(encoding="utf-8").split("\n")[:-1]


@pytest.mark.slow
@pytest.mark.parametrize("recipe", RECIPES)
def test_a_recipe_goes_from_raw_archives_to_scores(recipe, archives, tmp_path):
    run(recipe, "prepare.sh", "--output", tmp_path, "--workers", 1, **archives(recipe))
    again = run(recipe, "prepare.sh", "--output", tmp_path, **archives(recipe)).stdout
    assert again.count("done before") == 4
    options = ["--output", tmp_path, "--updates", 2, "--cpu"]
    for mapping in ("softmax", "entmax15", "entmax"):
        log = run(recipe, "train.sh", *options, "--most-tokens", 16000, mapping, *TINY).stdout
        assert "num_updates 2 " in log
        assert "| valid on 'valid' subset |" in log
    printed = run(recipe, "evaluate.sh", *options, "entmax").stdout
    bleu = re.findall(r"BLEU\|nrefs:1\|case:mixed\|eff:no\|tok:(\w+)\|\S* = ([0-9.]+) ", printed)
    assert [tokenizer for tokenizer, _ in bleu] == ["13a", "none"]
    assert all(0 <= float(score) <= 100 for _, score in bleu)
    done = tmp_path / "runs" / "entmax-2updates"
    assert len(lines(done / "test.hyp")) == miniatures.TEST
    target = recipe.rpartition("_")[2]
    assert lines(done / "test.ref") == lines(tmp_path / "text" / f"test.{target}")
    assert "learned: mean" in (done / "alpha.txt").read_text(encoding="utf-8")
    if recipe in PRUNING:  # of what is trained already
        check_pruning(recipe, tmp_path)


def check_pruning(recipe, folder):
    """The pruning of a recipe prints its table."""
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
    options += ["--most-tokens", 16000, "--mapping", "entmax", "--budgets", "2/3/4"]
    run(recipe, "prune.sh", *options, "--", *TINY)
    with (folder / "pruning.tsv").open(encoding="utf-8", newline="") as file:
        rows = {row["model"]: row for row in csv.DictReader(file, delimiter="\t")}
    assert list(rows) == ["baseline", "continued", "2-3-4-pruned", "2-3-4-scratch"]
    for model in ("2-3-4-pruned", "2-3-4-scratch"):
        heads = [rows[model][name].split()[0] for name in ("encoder-self", "decoder-self", "cross")]
        assert heads == ["2", "3", "4"]


# --- what the splits are -----------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("recipe", RECIPES)
def test_the_splits_are_what_the_archives_hold(recipe, archives, tmp_path):
    """Only the first step: all that follows needs fairseq, and is tested above."""
    stop = tmp_path / "bin"
    stop.mkdir()
    (stop / "subword-nmt").write_text("#!/bin/sh\nexit 9\n")
    (stop / "subword-nmt").chmod(0o755)
    raw = archives(recipe)
    out = tmp_path / "out"
    result = run(recipe, "prepare.sh", "--output", out, check=False, **raw, PATH=f"{stop}:{PATH}")
    assert "the subword model could not be learned" in result.stderr
    assert not (out / "bpe").exists()
    assert not list(out.glob("*.tmp"))
    source, target = recipe.split("_")[-2:]
    texts = miniatures.Texts(source, target)
    read = {
        split: list(zip(*(lines(out / "text" / f"{split}.{x}") for x in texts.pair), strict=True))
        for split in ("train", "valid", "test")
    }
    assert len(read["valid"]) == miniatures.VALID
    assert len(read["test"]) == miniatures.TEST
    if recipe == "opensubtitles_en_ru":
        pairs = texts.train + texts.valid + texts.test
        good = {pair for number, pair in enumerate(pairs) if number % 5}
        films = [{pairs.index(pair) // miniatures.FILM for pair in read[x]} for x in read]
        assert miniatures.FILM > miniatures.DOCUMENT  # a film has several files
        assert set(read["train"]) | set(read["valid"]) | set(read["test"]) <= good
        assert not films[0] & (films[1] | films[2])
        assert not films[1] & films[2]
        return
    suffix = {"iwslt17_de_en": " R&D <x>"}.get(recipe, "")
    assert read["valid"] == [tuple(side + suffix for side in pair) for pair in texts.valid]
    suffix = " A & B" if recipe.startswith("wmt") else ""
    assert read["test"] == [tuple(side + suffix for side in pair) for pair in texts.test]
    if recipe == "iwslt17_de_en":
        expected = [pair for number, pair in enumerate(texts.train) if number != 7]
        expected[8] = tuple(side + " and on" for side in expected[8])
        assert read["train"] == expected
    else:
        assert read["train"] == texts.train
    words = [len(line.split()) for x in texts.pair for line in lines(out / "tok" / f"train.{x}")]
    most = 40 if recipe == "kftt_ja_en" else 200
    assert 0 < min(words) <= max(words) <= most


# --- what can go wrong -------------------------------------------------------

RECIPE = "iwslt17_de_en"
ARCHIVE = "de-en.tgz"


@pytest.fixture
def raw(tmp_path):
    """The archives of one recipe, to be damaged."""
    folder = tmp_path / "raw-dir"
    miniatures.write(RECIPE, folder)
    return folder


def prepare(tmp_path, check=False, **further):
    return run(RECIPE, "prepare.sh", "--output", tmp_path / "out", check=check, **further)


def contents(folder):
    return {
        path.relative_to(folder): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and path.name != ".lock"
    }


def test_an_archive_with_a_wrong_checksum_is_named_with_both(raw, tmp_path):
    archive = raw / ARCHIVE
    damaged = bytearray(archive.read_bytes())
    damaged[len(damaged) // 2] ^= 1
    archive.write_bytes(damaged)
    result = prepare(tmp_path, RAW_DIR=str(raw), CORPORA=str(raw / "corpora.tsv"))
    assert result.returncode == 1
    assert re.search(
        f"{archive} has the sha256 checksum [0-9a-f]{{64}}, and [0-9a-f]{{64}} is expected: "
        "it is damaged, or another version than that of https://example.org",
        result.stderr,
    )
    assert archive.read_bytes() == bytes(damaged)
    assert contents(tmp_path / "out") == {}


def test_an_archive_that_is_cut_short_is_named_with_its_size(raw, tmp_path):
    archive = raw / ARCHIVE
    whole = archive.stat().st_size
    archive.write_bytes(archive.read_bytes()[:1000])
    result = prepare(tmp_path, RAW_DIR=str(raw), CORPORA=str(raw / "corpora.tsv"))
    assert result.returncode == 1
    assert f"{archive} has 1000 of {whole} bytes: it is cut short" in result.stderr


@pytest.mark.parametrize("kind", ["tgz", "zip", "gz"])
def test_an_archive_without_a_known_checksum_is_tested_by_those_inside_it(kind, tmp_path):
    recipe, name = {
        "tgz": ("iwslt17_de_en", ARCHIVE),
        "zip": ("wmt16_ro_en", "SETIMES.en-ro.txt.zip"),
        "gz": ("opensubtitles_en_ru", "OpenSubtitles.en-ru.xml.gz"),
    }[kind]
    table = miniatures.write(recipe, tmp_path / "raw")
    rows = [line.split("\t") for line in lines(table)]
    unknown = [[row[0], "-", "-", *row[3:]] if row[0] == name else row for row in rows]
    table.write_text("".join("\t".join(row) + "\n" for row in unknown), encoding="utf-8")
    archive = tmp_path / "raw" / name
    archive.write_bytes(archive.read_bytes()[:-40])
    out = ["--output", tmp_path / "out"]
    further = {"RAW_DIR": str(tmp_path / "raw"), "CORPORA": str(table)}
    result = run(recipe, "prepare.sh", *out, check=False, **further)
    assert result.returncode == 1
    assert f"{archive} is cut short or damaged" in result.stderr


def test_an_archive_of_other_content_is_refused(raw, tmp_path):
    miniatures.write_tar(raw / ARCHIVE, {"de-en/README": b"nothing else\n"})
    table = miniatures.write_table(raw, [raw / ARCHIVE])
    result = prepare(tmp_path, RAW_DIR=str(raw), CORPORA=str(table))
    assert result.returncode == 1
    assert "has no file de-en/train.tags.de-en.de, de-en/train.tags.de-en.en" in result.stderr
    assert contents(tmp_path / "out") == {}


def test_an_archive_that_must_be_fetched_by_hand_is_named_with_its_home(raw, tmp_path):
    (raw / ARCHIVE).unlink()
    result = prepare(tmp_path, RAW_DIR=str(raw), CORPORA=str(raw / "corpora.tsv"))
    assert result.returncode == 1
    assert "cannot be downloaded by a program: get it from https://example.org" in result.stderr
    assert f"{tmp_path}/out/raw" in result.stderr


def test_a_dead_link_says_which_file_to_put_where(raw, tmp_path):
    with serve(raw) as address:
        table = miniatures.write_table(raw, [raw / ARCHIVE], address)
        (raw / ARCHIVE).unlink()
        result = prepare(tmp_path, CORPORA=str(table))
    assert result.returncode == 1
    assert "404" in result.stderr
    assert f"{ARCHIVE} cannot be downloaded from {address}/{ARCHIVE}" in result.stderr
    assert f"get it from https://example.org, put it in {tmp_path}/out/raw" in result.stderr


@pytest.mark.slow
def test_a_download_that_was_stopped_goes_on(raw, tmp_path):
    whole = (raw / ARCHIVE).read_bytes()
    part = tmp_path / "out" / "raw" / f"{ARCHIVE}.part"
    part.parent.mkdir(parents=True)
    part.write_bytes(whole[:3000])
    with serve(raw) as address:
        table = miniatures.write_table(raw, [raw / ARCHIVE], address)
        prepare(tmp_path, check=True, CORPORA=str(table))
        assert serve.ranges == ["bytes=3000-"]
    assert (tmp_path / "out" / "raw" / ARCHIVE).read_bytes() == whole
    assert not part.exists()


def test_a_dead_link_leaves_what_was_downloaded_before(raw, tmp_path):
    part = tmp_path / "out" / "raw" / f"{ARCHIVE}.part"
    part.parent.mkdir(parents=True)
    part.write_bytes(b"x" * 3000)
    with serve(raw) as address:
        table = miniatures.write_table(raw, [raw / ARCHIVE], address)
        (raw / ARCHIVE).unlink()
        result = prepare(tmp_path, CORPORA=str(table))
    assert result.returncode == 1
    assert part.read_bytes() == b"x" * 3000
    assert [path.name for path in part.parent.iterdir()] == [part.name]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["no parts", "nothing more"])
def test_a_download_begins_anew_where_the_server_cannot_go_on(kind, raw, tmp_path):
    whole = (raw / ARCHIVE).read_bytes()
    part = tmp_path / "out" / "raw" / f"{ARCHIVE}.part"
    part.parent.mkdir(parents=True)
    part.write_bytes(b"x" * (3000 if kind == "no parts" else len(whole) + 9))
    with serve(raw, parts=kind != "no parts") as address:
        table = miniatures.write_table(raw, [raw / ARCHIVE], address)
        prepare(tmp_path, check=True, CORPORA=str(table))
    assert (tmp_path / "out" / "raw" / ARCHIVE).read_bytes() == whole


@pytest.mark.slow
@pytest.mark.parametrize("tool", ["learn-bpe", "python3"])
def test_a_tool_that_fails_in_the_middle_leaves_no_finished_step(tool, archives, tmp_path):
    """It writes something for the first language, and then ends as when it is killed."""
    fake = tmp_path / "bin"
    fake.mkdir()
    real = shutil.which("subword-nmt", path=PATH)
    python = shutil.which("python3", path=PATH)
    bodies = {
        "learn-bpe": ("subword-nmt", f'{real} "$@"; case "$*" in *train.en*) exit 137 ;; esac'),
        # one line is lost, as on a disk that was full for a moment
        "python3": (
            "python3",
            f'case "$*" in *apply*) {python} "$@" | tail -n +2 ;; *) exec {python} "$@" ;; esac',
        ),
    }
    name, body = bodies[tool]
    (fake / name).write_text(f"#!/bin/sh\n{body}\n")
    (fake / name).chmod(0o755)
    out = tmp_path / "out"
    options = ["--output", out, "--workers", 1]
    raw = archives("wmt_en_ru")
    result = run("wmt_en_ru", "prepare.sh", *options, check=False, **raw, PATH=f"{fake}:{PATH}")
    assert result.returncode == 1
    assert not (out / "bpe").exists()
    expected = "could not be learned" if tool == "learn-bpe" else "was not written whole"
    assert expected in result.stderr


def test_a_score_that_cannot_be_computed_is_not_done(tmp_path, small_data):
    """sacrebleu fails: the run has no scores, and the next call tries again."""
    fake = tmp_path / "bin"
    fake.mkdir()
    (fake / "sacrebleu").write_text("#!/bin/sh\nexit 1\n")
    (fake / "sacrebleu").chmod(0o755)
    done = small_data / "runs" / "scored"
    done.mkdir(parents=True)
    script = f"""
        set -euo pipefail
        source {EXAMPLES}/lib/common.sh
        RUN={done} WORDS=text OUTPUT={small_data}
        {function_of("evaluate.sh", "score")}
        write_whole {done}/scores.txt score
    """
    result = subprocess.run(
        ["bash", "-c", script],
        capture_output=True,
        text=True,
        check=False,
        env=environment(PATH=f"{fake}:{PATH}"),
    )
    shutil.rmtree(small_data / "runs")
    assert result.returncode == 1
    assert not list(done.glob("*"))


def function_of(script, name):
    """The text of a function of examples/lib."""
    text = (EXAMPLES / "lib" / script).read_text(encoding="utf-8")
    return re.search(rf"^{name}\(\) {{\n.*?^}}\n", text, re.DOTALL | re.MULTILINE)[0]


def test_a_download_of_another_file_is_kept_aside_and_named(raw, tmp_path):
    with serve(raw) as address:
        table = miniatures.write_table(raw, [raw / ARCHIVE], address)
        size = (raw / ARCHIVE).stat().st_size
        (raw / ARCHIVE).write_bytes(b"x" * size)
        result = prepare(tmp_path, CORPORA=str(table))
    assert result.returncode == 1
    assert "is expected: it is damaged" in result.stderr
    assert [path.name for path in (tmp_path / "out" / "raw").iterdir()] == [f"{ARCHIVE}.bad"]


def test_without_curl_it_says_what_to_install(raw, tmp_path):
    tools = tmp_path / "tools"
    tools.mkdir()
    for folder in PATH.split(":"):
        for tool in Path(folder).glob("*") if Path(folder).is_dir() else []:
            link = tools / tool.name
            if tool.name == "curl" or link.exists() or not os.access(tool, os.X_OK):
                continue
            # Not as links: Python finds its virtual environment by its place
            link.write_text(f'#!/bin/sh\nexec "{tool}" "$@"\n')
            link.chmod(0o755)
    table = miniatures.write_table(raw, [raw / ARCHIVE], "http://127.0.0.1:1")
    result = prepare(tmp_path, CORPORA=str(table), PATH=str(tools))
    assert result.returncode == 1
    assert "the command curl is not on PATH: install it, or put de-en.tgz in" in result.stderr


def test_without_the_recipes_packages_it_says_what_to_install(raw, tmp_path):
    hidden = tmp_path / "hidden"
    hidden.mkdir()
    (hidden / "sitecustomize.py").write_text(
        "import importlib.util as u\nfind = u.find_spec\n"
        "u.find_spec = lambda n, p=None: None if n == 'sacremoses' else find(n, p)\n"
    )
    result = prepare(tmp_path, RAW_DIR=str(raw), PYTHONPATH=str(hidden))
    assert result.returncode == 1
    assert "python3 has no sacremoses, which" in result.stderr
    assert "[fairseq,recipes]" in result.stderr


@pytest.fixture
def small_disk(tmp_path):
    """A file system with room for little."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=320k", "tmpfs", str(folder)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("to mount a small file system needs the rights of an administrator")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


@pytest.mark.slow
def test_a_full_disk_is_said_and_what_was_there_stays(raw, small_disk):
    table = {"RAW_DIR": str(raw), "CORPORA": str(raw / "corpora.tsv")}
    (small_disk / "mine").write_bytes(b"x" * 200_000)
    result = run(RECIPE, "prepare.sh", "--output", small_disk, check=False, **table)
    assert result.returncode == 1
    assert "the disk is full" in result.stderr
    assert "free some space, or choose another --output" in result.stderr
    assert (small_disk / "mine").read_bytes() == b"x" * 200_000
    left = {path.name for path in small_disk.iterdir()} - {".lock", "mine"}
    assert left < {"text", "tok", "bpe", "data-bin"}
    for name in left:  # whole, or not there
        assert (small_disk / name / ".done").exists()
    # With space it goes on
    subprocess.run(["mount", "-o", "remount,size=20m", str(small_disk)], check=True)
    again = run(RECIPE, "prepare.sh", "--output", small_disk, **table)
    assert again.stdout.count("done before") == len(left)


@pytest.mark.slow
def test_a_preparation_that_is_killed_goes_on_where_it_was(raw, tmp_path):
    table = {"RAW_DIR": str(raw), "CORPORA": str(raw / "corpora.tsv")}
    straight = tmp_path / "straight"
    run(RECIPE, "prepare.sh", "--output", straight, **table)
    stopped = tmp_path / "stopped"
    process = subprocess.Popen(
        [EXAMPLES / RECIPE / "prepare.sh", "--output", stopped],
        env=environment(**table),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    deadline = time.monotonic() + 120
    while not (stopped / "tok.tmp").exists():
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.005)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    assert not (stopped / "tok").exists()
    again = run(RECIPE, "prepare.sh", "--output", stopped, **table)
    assert "text: done before" in again.stdout
    for folder in ("text", "tok", "bpe"):
        assert contents(stopped / folder) == contents(straight / folder)
    binary = [path for path in contents(straight / "data-bin") if path.suffix in (".bin", ".idx")]
    assert binary
    for path in binary:
        assert (stopped / "data-bin" / path).read_bytes() == (
            straight / "data-bin" / path
        ).read_bytes()


@pytest.mark.parametrize(
    ("arguments", "further", "message"),
    [
        (["--outptu", "x"], {}, "unknown option '--outptu': use --output, --workers or --help"),
        (["--workers", "0"], {}, "option --workers got '0'"),
        ([], {"RAW_DIR": "/nowhere"}, "RAW_DIR is '/nowhere', and there is no such folder"),
        ([], {"CORPORA": "/nowhere"}, "CORPORA is '/nowhere', and there is no such file"),
        ([], {"TRIAL_PAIRS": "240,16"}, "TRIAL_PAIRS is '240,16': give the pairs of training"),
        ([], {"SEED": "one"}, "SEED is 'one': give a whole number of at least 0"),
    ],
)
def test_a_wrong_option_of_prepare_is_named(tmp_path, arguments, further, message):
    result = run(RECIPE, "prepare.sh", "--output", tmp_path, *arguments, check=False, **further)
    assert result.returncode == 2
    assert message in result.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--epochs", "3", "entmax"], "unknown option '--epochs': use --output, --updates"),
        (["-cpu", "entmax"], "unknown option '-cpu': use --output, --updates"),
        (["entmax", "--max-update", "3"], "give --updates N before the mapping"),
        (["entmax", "--max-tokens", "3"], "so that the batch stays at 8192 tokens"),
        (["entmax", "--distributed-world-size", "3"], "give --processes N"),
        (["--nodes", "2", "entmax"], "option --master got ''"),
        (["--nodes", "2", "--master", "here", "entmax"], "option --master got 'here'"),
        (["--nodes", "2", "--node-rank", "2", "entmax"], "give a number from 0 to 1"),
        (["--most-tokens", "x", "entmax"], "option --most-tokens got 'x'"),
        ([], "no mapping given"),
    ],
)
def test_a_wrong_option_of_train_is_named(tmp_path, arguments, message):
    result = run(RECIPE, "train.sh", "--output", tmp_path, *arguments, check=False)
    assert result.returncode == 2
    assert message in result.stderr
    assert list(tmp_path.iterdir()) == []


# --- one machine or many -----------------------------------------------------


@pytest.fixture(scope="module")
def small_data(data, tmp_path_factory):
    """The recipe of the shipped corpus, prepared from a slice."""
    folder = tmp_path_factory.mktemp("small")
    shutil.copytree(data / "bin", folder / "data-bin")
    (folder / "data-bin" / ".done").touch()
    return folder


def losses(log):
    """(update, loss, nll_loss) of each update that fairseq logged."""
    found = re.findall(
        r"train_inner \| .* loss=([0-9.]+), nll_loss=([0-9.]+), .*num_updates=([0-9]+)", log
    )
    return [(int(update), float(loss), float(nll)) for loss, nll, update in found]


GATED = [
    "--criterion=label_smoothed_cross_entropy_with_head_l0",
    "--head-gates=encoder-self,decoder-self,cross",
    "--target-heads=9",
    "--decide-heads-at=40",
]
ONCE = ["--dropout=0", "--log-interval=1", *TINY]


@pytest.mark.slow
@pytest.mark.parametrize("gates", [[], GATED], ids=["entmax", "gated"])
def test_two_processes_train_as_one_with_twice_the_batches(gates, small_data, tmp_path):
    """Also when they are killed on the way: with the same batch in each update."""
    recipe = "bible_es_en"
    options = ["--cpu", "--epochs", 2, "--most-tokens", 313]
    logs = {}
    for name, sharing in (("one", []), ("two", ["--processes", 2])):
        folder = tmp_path / name
        shutil.copytree(small_data, folder)
        command = ["--output", folder, *options, *sharing, "entmax", *gates, *ONCE]
        if name == "two":
            log = folder / "runs" / "entmax-2epochs" / "train.log"
            kill_when(log, r"epoch 002: +5 /", [EXAMPLES / recipe / "train.sh", *command])
        logs[name] = run(recipe, "train.sh", *command).stdout
        if name == "two":
            assert "goes on from its last checkpoint" in logs[name]
            logs[name] = log.read_text(encoding="utf-8")
    assert "1 process(es), 2 x 312 tokens each" in logs["one"]
    one, two = losses(logs["one"]), losses(logs["two"])
    assert len(one) == one[-1][0] > 40
    by_update = {}
    for update, *values in two:
        # What was logged before the kill comes again after it
        assert by_update.setdefault(update, values) == pytest.approx(values, abs=2e-3)
    assert len(two) > len(by_update)
    for update, *values in one:
        assert by_update[update] == pytest.approx(values, abs=2e-3), update


def kill_when(log, pattern, command, **further):
    """Start a command in a session of its own, and kill it whole when its log says something."""
    process = subprocess.Popen(
        list(map(str, command)),
        env=environment(**further),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    deadline = time.monotonic() + 300
    while not (log.exists() and re.search(pattern, log.read_text(encoding="utf-8"))):
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.02)
    # torchrun gives its processes sessions of their own
    children = subprocess.run(
        ["ps", "-eo", "pid=,ppid="], capture_output=True, text=True, check=True
    ).stdout
    parents = dict(map(int, line.split()) for line in children.splitlines())
    family = {process.pid}
    while more := {pid for pid, parent in parents.items() if parent in family} - family:
        family |= more
    for pid in family:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    process.wait()


@pytest.mark.slow
def test_patience_goes_on_counting_where_a_training_was_killed(small_data, tmp_path):
    out = tmp_path / "out"
    shutil.copytree(small_data, out)
    # No validation has a lower loss than the first, so that the third ends the training
    still = ["--patience=2", "--lr=1e-20", *ONCE[1:]]
    arguments = ["--output", out, "--cpu", "--epochs", 30, "--name", "still", "softmax", *still]
    log = out / "runs" / "still" / "train.log"
    kill_when(log, "begin training epoch 3", [EXAMPLES / "bible_es_en" / "train.sh", *arguments])
    run("bible_es_en", "train.sh", *arguments)
    text = log.read_text(encoding="utf-8")
    assert re.findall(r"\| valid \| epoch (\d+)", text) == ["001", "002", "003"]
    assert "early stop since" in text


def test_a_share_too_small_for_the_sentences_is_refused_at_once(small_data):
    command = ["--output", small_data, "--cpu", "--most-tokens", 40, "entmax"]
    result = run("bible_es_en", "train.sh", *command, check=False)
    assert result.returncode == 2
    assert re.search(
        "1 process.es. take 39 tokens at a time, and [0-9]{2,3} of 600 training pairs are longer: "
        "use fewer processes",
        result.stderr,
    )
    assert not (small_data / "runs").exists()


READ_ONLY = ["mount", "-o", "remount,ro"]


def test_a_read_only_output_is_named_with_the_remedy(small_disk):
    subprocess.run([*READ_ONLY, str(small_disk)], check=True)
    result = run("bible_es_en", "prepare.sh", "--output", small_disk, check=False)
    assert result.returncode == 1
    assert result.stderr == (
        f"prepare.sh: error: nothing can be written to {small_disk} (Read-only file system): make "
        "it writable, or choose another folder with --output, and run again\n"
    )


def test_a_step_that_finds_its_folder_read_only_says_so(small_disk):
    subprocess.run([*READ_ONLY, str(small_disk)], check=True)
    script = f"source {EXAMPLES}/lib/common.sh; explain_failures; WRITING={small_disk}/runs; exit 1"
    result = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=False)
    assert f"nothing can be written to {small_disk}/runs (no permission, or" in result.stderr


FAKE_SLURM = {
    "scontrol": "printf '127.0.0.1\\nother\\n'",
    "srun": 'shift\nfor node in 1 0; do SLURM_NODEID=$node "$@" & done\nwait -n\nwait -n',
}


@pytest.mark.slow
def test_a_full_disk_in_training_is_said_and_with_space_it_is_done(small_data, small_disk):
    remount = ["mount", "-o", "remount,size={}", str(small_disk)]
    subprocess.run([part.format("800k") for part in remount], check=True)
    shutil.copytree(small_data / "data-bin", small_disk / "data-bin")
    command = ["--output", small_disk, "--cpu", "--epochs", 1, "entmax", *ONCE]
    result = run("bible_es_en", "train.sh", *command, check=False)
    assert result.returncode == 1
    assert "the disk is full" in result.stderr
    assert not list(small_disk.glob("runs/*/checkpoints/*.pt"))
    subprocess.run([part.format("50m") for part in remount], check=True)
    assert "==> trained: " in run("bible_es_en", "train.sh", *command).stdout


@pytest.mark.slow
def test_the_slurm_script_trains_on_two_machines(small_data, tmp_path):
    """SLURM stood for by two shell scripts, the machines by two processes of this one."""
    fake = tmp_path / "bin"
    fake.mkdir()
    for name, body in FAKE_SLURM.items():
        (fake / name).write_text(f"#!/usr/bin/env bash\nset -e\n{body}\n")
        (fake / name).chmod(0o755)
    out = tmp_path / "out"
    shutil.copytree(small_data, out)
    command = ["bible_es_en", "--output", out, "--cpu", "--epochs", 1, "entmax", *ONCE[1:]]
    slurm = {"SLURM_JOB_NODELIST": "node[1-2]", "SLURM_NNODES": "2", "PORT": free_port()}
    result = subprocess.run(
        [EXAMPLES / "slurm.sh", *map(str, command)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=500,
        env=environment(**slurm, PATH=f"{fake}:{PATH}"),
    )
    assert result.returncode == 0, result.stdout[-3000:] + result.stderr[-3000:]
    assert "2 process(es), 1 x 312 tokens each" in result.stdout
    folder = out / "runs" / "entmax-1epochs"
    assert (folder / ".train.done").exists()
    assert losses((folder / "train.log").read_text(encoding="utf-8"))
    assert "distributed init (rank 1)" in (folder / "train.node1.log").read_text(encoding="utf-8")


def free_port():
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return str(probe.getsockname()[1])


# --- the recipes as a whole --------------------------------------------------


def test_no_two_recipes_hold_the_same_six_lines():
    seen = {}
    for path in sorted(EXAMPLES.glob("*/*")):
        if path.parent.name in ("lib", "tools") or path.suffix not in (".sh", ".py"):
            continue
        text = [line.strip() for line in lines(path) if line.strip()]
        for start in range(len(text) - 5):
            block = tuple(text[start : start + 6])
            other = seen.setdefault(block, path.parent)
            assert other == path.parent, f"{path} and {other}: {block[0]}"
    assert len(seen) > 100


OTHER_RECIPES = [*summary_miniatures.WRITERS, *lm_miniatures.WRITERS, "snli"]
# Those without archives to download
OWN_RECIPES = ["bible_es_en", "bible_en_lm", "bible_testaments", "own_corpus"]
OWN_RECIPES += ["debian_headlines", "debian_en_de"]


@pytest.mark.parametrize("recipe", [*RECIPES, *OTHER_RECIPES, *OWN_RECIPES])
def test_a_recipe_is_complete(recipe):
    folder = EXAMPLES / recipe
    readme = (folder / "README.md").read_text(encoding="utf-8")
    for script in ("prepare.sh", "train.sh", "evaluate.sh", "prune.sh"):
        if script == "prune.sh" and not (folder / script).exists():
            continue
        assert os.access(folder / script, os.X_OK)
        assert f"examples/{recipe}/{script}" in readme
        shown = run(recipe, script, "--help").stdout
        assert shown.startswith(lines(folder / script)[1].removeprefix("# "))
    table = (ROOT / "docs" / "recipes.md").read_text(encoding="utf-8")
    assert f"](../examples/{recipe}/README.md)" in table


def test_every_archive_of_a_recipe_has_a_line_in_the_table():
    rows = [line.split("\t") for line in lines(EXAMPLES / "corpora.tsv")]
    assert {len(row) for row in rows} == {6}
    named = set()
    for recipe in [*RECIPES, *OTHER_RECIPES]:
        text = (EXAMPLES / recipe / "dataset.sh").read_text(encoding="utf-8")
        named |= set(re.search(r"ARCHIVES=\(([^)]*)\)", text)[1].split())
    assert {row[0] for row in rows[1:]} == named
    for _, size, checksum, addresses, page, source in rows[1:]:
        assert size == "-" or int(size) > 1_000_000
        assert checksum == "-" or re.fullmatch("sha256:[0-9a-f]{64}|sha1:[0-9a-f]{40}", checksum)
        assert addresses == "-" or all(x.startswith("http") for x in addresses.split())
        assert page.startswith("http")
        assert source


# --- configs for fairseq-hydra-train -------------------------------------------


def options_of(recipe, *arrays, given="", **further):
    """The options of fairseq-train in some arrays of a recipe's dataset.sh.

    Args:
        given: a user's own, behind the mapping.
        **further: of the environment.
    """
    script = (
        f"set -eu; REST=({given}); ROOT={ROOT} RECIPE={EXAMPLES / recipe}; source $ROOT/examples/lib/common.sh; "
        "source $RECIPE/dataset.sh; source $ROOT/examples/lib/pruning.sh; "
        "if declare -F settle_dataset >/dev/null; then settle_dataset /nowhere; fi; "
        "if declare -F model_options >/dev/null; then model_options entmax; fi; "
        'if declare -F prune_schedules >/dev/null; then prune_schedules; fi; printf "%s\\n" '
        + " ".join(f'"${{{name}[@]}}"' for name in arrays)
    )
    env = {**os.environ, **further}
    shown = subprocess.run(
        ["bash", "-c", script], capture_output=True, text=True, check=True, env=env
    )
    found, name = {}, None
    for word in shown.stdout.splitlines():
        if word.startswith("--"):
            name = word.removeprefix("--").replace("-", "_")
            found[name] = True
        else:
            found[name] = word
    return found


@pytest.mark.parametrize("recipe", ["bible_es_en", "debian_en_de"])
def test_the_rate_falls_to_0_at_the_end_unless_another_schedule_is_given(recipe):
    assert int(options_of(recipe, "TRAINING")["total_num_update"]) > 1000
    assert "total_num_update" in options_of(recipe, "TRAINING", given="--lr 0.001")
    total = int(options_of(recipe, "TRAINING")["total_num_update"])
    halved = int(options_of(recipe, "TRAINING", BATCH_TOKENS="1250")["total_num_update"])
    assert halved == pytest.approx(total / 2, rel=0.01)
    # fairseq takes the option of none of the other schedules
    for given in ("--lr-scheduler inverse_sqrt", "--lr-scheduler=inverse_sqrt"):
        assert "total_num_update" not in options_of(recipe, "TRAINING", given=given)


def settings_of(recipe, name):
    """Every setting of a YAML file, whatever its section."""
    path = EXAMPLES / recipe / "configs" / f"{name}.yaml"
    sections = yaml.safe_load(path.read_text(encoding="utf-8"))
    return {key: value for section in sections.values() for key, value in section.items()}


def same(option, setting):
    if isinstance(setting, list):
        texts = option.strip("()").split(",")
        return [float(text) for text in texts] == [float(value) for value in setting]
    if isinstance(setting, bool) or isinstance(option, bool):
        return option == setting
    return option == str(setting) or float(option) == float(setting)


@pytest.mark.parametrize(
    ("recipe", "name", "arrays"),
    [
        ("iwslt17_de_en", "entmax", ["MODEL", "TRAINING"]),
        ("wmt_en_ru", "prune", ["MODEL", "TRAINING", "searching"]),
        ("bible_es_en", "entmax", ["MODEL", "TRAINING"]),
        ("bible_en_lm", "entmax", ["MODEL", "TRAINING", "MODEL_OPTIONS"]),
    ],
)
def test_a_config_says_what_the_scripts_say(recipe, name, arrays):
    options, settings = options_of(recipe, *arrays), settings_of(recipe, name)
    for given in ("arch", "criterion", "optimizer", "lr_scheduler"):
        options.pop(given)
    if name == "prune":  # prune.sh switches it off
        options.pop("patience")
    assert len(options) > 8
    assert {k: v for k, v in options.items() if not same(v, settings.get(k, ""))} == {}
    tokens = settings["max_tokens"] * settings.get("update_freq", [1])[0]
    assert (
        str(tokens)
        == subprocess.run(
            [
                "bash",
                "-c",
                f"ROOT={ROOT} RECIPE={EXAMPLES / recipe}; source $ROOT/examples/lib/common.sh; "
                "source $RECIPE/dataset.sh; printf %s $BATCH_TOKENS",
            ],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
    )


@pytest.mark.slow
def test_hydra_trains_and_prunes_from_the_configs(small_data, tmp_path):
    def hydra(recipe, name, folder, *overrides):
        command = [
            shutil.which("fairseq-hydra-train", path=preloaded.path(PATH)),
            "--config-dir", EXAMPLES / recipe / "configs", "--config-name", name,
            f"common.user_dir={ROOT / 'fairseq_entmax'}", "common.cpu=true",
            f"task.data={small_data / 'data-bin'}", "task.source_lang=es", "task.target_lang=en",
            f"checkpoint.save_dir={folder}", "optimization.max_update=4",
            "dataset.max_tokens=1000", "dataset.validate_interval_updates=2",
            *[f"+model.{option[2:].replace('-', '_')}" for option in TINY],
            *overrides,
        ]  # fmt: skip
        result = subprocess.run(
            list(map(str, command)), cwd=tmp_path, capture_output=True, text=True, check=False,
            env=environment(),
        )  # fmt: skip
        assert result.returncode == 0, result.stdout[-3000:] + result.stderr[-3000:]
        return folder / "checkpoint_best.pt"

    start = hydra("iwslt17_de_en", "entmax", tmp_path / "start")
    pruned = hydra(
        "wmt_en_ru",
        "prune",
        tmp_path / "pruned",
        f"checkpoint.finetune_from_model={start}",
        "model.attn_mapping=entmax",
        "+model.share_all_embeddings=true",
        "model.encoder_normalize_before=false",
        "model.decoder_normalize_before=false",
        "criterion.target_heads='encoder-self=1,decoder-self=2,cross=3'",
        "criterion.l0_warmup_updates=1",
        "criterion.decide_heads_at=2",
    )
    shown = subprocess.run(
        ["fairseq-entmax", "prune", pruned, "--print-config"],
        capture_output=True,
        text=True,
        check=True,
        env=environment(PATH=preloaded.path(PATH)),
    ).stdout.split()
    assert [sum(map(int, counts.split(","))) for counts in shown[1::2]] == [1, 2, 3]
