"""examples/lib: no partial or stale results, downloads, locks, and wrong options."""

import os
import platform
import re
import shutil
import signal
import subprocess
import sys
import time

import pytest

from tests.examples import miniatures
from tests.examples.dry_runs import EXAMPLES, PATH, DryRun, kill_when
from tests.examples.serving import serve

COMMON = EXAMPLES / "lib" / "common.sh"
RECIPE, ARCHIVE = "iwslt17_de_en", "de-en.tgz"


def shell(script, cwd):
    """Run a script that has sourced examples/lib/common.sh."""
    command = ["bash", "-c", f'set -euo pipefail; source "$0"; {script}', str(COMMON)]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)


def names(folder):
    return {path.name for path in folder.iterdir()}


@pytest.mark.skipif(
    platform.libc_ver()[0] != "glibc", reason="other libraries have no such setting"
)
def test_freed_memory_is_reused_instead_of_requested_again(tmp_path):
    program = """
import resource
for _ in range(20):
    bytearray(20_000_000)[:] = b"1" * 20_000_000
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt)
"""
    counts = [
        int(shell(f"{setting} exec {sys.executable} -c '{program}'", tmp_path).stdout)
        for setting in ("", "GLIBC_TUNABLES=")
    ]
    assert counts[0] < counts[1] / 4


def test_a_file_is_replaced_completely_or_not_at_all(tmp_path):
    (tmp_path / "out").write_text("before")
    assert shell("write_atomically out bash -c 'echo half; exit 3'", tmp_path).returncode == 3
    assert (tmp_path / "out").read_text() == "before"
    killed = shell("write_atomically out bash -c 'echo half; kill -KILL $PPID'", tmp_path)
    assert killed.returncode == -9
    assert (tmp_path / "out").read_text() == "before"
    assert shell("write_atomically out echo after", tmp_path).returncode == 0
    assert ((tmp_path / "out").read_text(), names(tmp_path)) == ("after\n", {"out"})


@pytest.mark.skipif(not shutil.which("taskset"), reason="needs taskset")
def test_only_the_cores_that_a_process_may_use_are_counted(tmp_path):
    mine = os.sched_getaffinity(0)
    export = "export OMP_NUM_THREADS=1"
    assert shell(f"{export}; cores", tmp_path).stdout == f"{len(mine)}\n"
    limited = f"{export}; export -f cores; taskset -c {min(mine)} bash -c cores"
    assert shell(limited, tmp_path).stdout == "1\n"


def test_a_step_prints_its_duration_and_stops_its_clock(tmp_path):
    fine = shell("CLOCK_SECONDS=.1; timed words sleep 2; echo end", tmp_path)
    assert re.fullmatch(r"(==> words: 0 min so far\n)+end\n", fine.stdout)
    failed = shell("step() { sleep 0.2; false; }; timed words step; echo end", tmp_path)
    assert (failed.returncode, failed.stdout) == (1, "")


def test_a_folder_appears_complete_with_its_stamp_and_leftovers_are_removed(tmp_path):
    for leftover in ("data", "data.tmp", "data.old"):
        (tmp_path / leftover).mkdir()
        (tmp_path / leftover / "stale").touch()
    script = "begin_dir data; echo new >data.tmp/file; finish_dir data settings"
    assert shell(script, tmp_path).returncode == 0
    assert (names(tmp_path), names(tmp_path / "data")) == ({"data"}, {".done", "file"})
    assert shell("is_done data/.done settings", tmp_path).returncode == 0
    here = tmp_path / "here"
    script = "mkdir -p here/text; hold_lock $PWD/here; begin_dir $PWD/here/data-bin; begin_dir "
    script += "$PWD/here/text; rm() { kill -KILL $BASHPID; }; finish_dir $PWD/here/text done"
    assert shell(script, tmp_path).returncode == -9
    (here / "mine.tmp").touch()
    assert names(here) == {".lock", "data-bin.tmp", "text", "text.old", "mine.tmp"}
    assert shell("hold_lock $PWD/here", tmp_path).returncode == 0
    assert names(here) == {".lock", "text", "mine.tmp"}


def test_a_folder_has_one_absolute_path(tmp_path):
    written = shell("for x in a/b a/b/ a/b// ./a/b $PWD/a/b/; do absolute_path $x; done", tmp_path)
    assert set(written.stdout.splitlines()) == {f"{tmp_path}/a/b"}


def test_a_step_is_done_once_per_settings_while_its_product_exists(tmp_path):
    step = "once step .done {} product -- bash -c 'echo made; touch product'"
    for settings, before in (("a", ""), ("a", ""), ("b", ""), ("b", "rm product;")):
        output = shell(f"{before} {step.format(settings)}", tmp_path).stdout
        assert ("made" in output) == (output != "==> step: already done\n")
    assert "made" in output
    failing = shell("once step .done c product -- false; echo reached", tmp_path)
    assert (failing.returncode, failing.stdout) == (1, "==> step\n")
    assert names(tmp_path) == {"product"}  # no stamp


def test_a_run_set_aside_never_overwrites_another(tmp_path):
    for content in ("first", "second"):
        (tmp_path / "run").mkdir()
        (tmp_path / "run" / "file").write_text(content)
        assert shell("set_aside run 'settings have changed'", tmp_path).returncode == 0
    assert (tmp_path / "run.replaced-1" / "file").read_text() == "first"
    assert (tmp_path / "run.replaced-2" / "file").read_text() == "second"


def test_the_run_name_distinguishes_mappings_and_lengths(tmp_path):
    texts = ["entmax", "entmax:alpha=1.5", "sparsemax*2", "sparsemax,softmax", "sparsemax|softmax"]
    texts += ["(sparsemax|softmax*7)*3,softmax", "sparsemax|softmax*7,softmax"]
    script = "".join(f"run_name '{text}' {epochs} epochs;" for text in texts for epochs in (1, 11))
    found = shell(script, tmp_path).stdout.split()
    assert len(set(found)) == 2 * len(texts)
    assert not any(set(name) & set("/:*, |()") for name in found)


@pytest.mark.parametrize("failing", ["files_fingerprint nope", "sha256_of nope"])
def test_an_error_within_the_words_of_a_command_ends_the_script(failing, tmp_path):
    script = f'step() {{ local x; x=$(fingerprint "$({failing})"); echo reached; }}; step || echo'
    ended = shell(script, tmp_path)
    assert (ended.returncode, ended.stdout) == (1, "")
    assert "nope" in ended.stderr


@pytest.mark.slow
def test_child_processes_of_a_killed_script_still_hold_the_lock(tmp_path):
    held = 'hold_lock "$PWD"; sleep 60 >/dev/null 2>&1 & echo $! >child; kill -9 $$'
    assert shell(held, tmp_path).returncode == -9
    child = (tmp_path / "child").read_text().strip()
    try:
        refused = shell('hold_lock "$PWD"', tmp_path)
        assert refused.returncode == 1
        assert f"another run is using {tmp_path}" in refused.stderr
    finally:
        subprocess.run(["kill", "-9", child], check=True)
    time.sleep(0.2)
    assert shell('hold_lock "$PWD"', tmp_path).returncode == 0


def test_a_suspended_script_goes_on_and_a_signal_ends_its_processes(tmp_path):
    step = f'source {EXAMPLES}/lib/recipe.sh; hold_lock "$PWD"; echo $$ >pid; touch begun; sleep 60'
    (tmp_path / "step.sh").write_text(step)
    command = ["env", f"RECIPE_FOLDER={EXAMPLES / RECIPE}", "bash", "step.sh"]
    process = subprocess.Popen(command, cwd=tmp_path)
    while not (tmp_path / "begun").exists():
        assert process.poll() is None
        time.sleep(0.02)
    for sent in (signal.SIGSTOP, signal.SIGCONT):
        os.killpg(int((tmp_path / "pid").read_text()), sent)
        time.sleep(0.2)
        assert process.poll() is None
    process.terminate()
    assert process.wait(30) == -signal.SIGTERM
    assert shell('hold_lock "$PWD"', tmp_path).returncode == 0


@pytest.fixture
def raw(tmp_path):
    """The archives of one recipe, for tests that damage them."""
    miniatures.write(RECIPE, tmp_path / "raw-dir")
    return tmp_path / "raw-dir"


def fetched(tmp_path, table, **further):
    """The output of prepare.sh, which a stub stops at the words."""
    shutil.rmtree(tmp_path / "stubs", ignore_errors=True)
    dry = DryRun(tmp_path / "stubs")
    dry.write("subword-nmt", "exit 9")
    command = (RECIPE, "prepare.sh", "--output", tmp_path / "out", "--workers", 1)
    return dry(*command, check=False, CORPORA=str(table), **further)


def test_a_wrong_archive_is_named_and_nothing_is_made_of_it(raw, tmp_path):
    archive = raw / ARCHIVE
    miniatures.write_tar(archive, {"de-en/README": b"nothing else\n"})
    output = fetched(tmp_path, miniatures.write_table(raw, [archive]), RAW_DIR=str(raw))
    assert "has no file de-en/train.tags.de-en.de, de-en/train.tags.de-en.en" in output
    assert names(tmp_path / "out") == {".lock"}


def test_check_reports_for_every_archive_whether_its_files_are_there(tmp_path):
    table, dry = miniatures.write("wmt_en_ru", tmp_path / "raw"), DryRun(tmp_path / "stubs")
    command = ("wmt_en_ru", "prepare.sh", "--output", tmp_path / "out", "--check")
    given = {"RAW_DIR": str(table.parent), "CORPORA": str(table)}
    miniatures.write_zip(table.parent / "1mcorpus.zip", {"corpus.en_ru.2m.ru": b""})
    miniatures.write_table(table.parent, [x for x in table.parent.iterdir() if x != table])
    (table.parent / "wiki-titles.tgz").unlink()
    output = dry(*command, check=False, **given)
    assert "wiki-titles.tgz could not be downloaded" in output
    assert "is a different archive; it has corpus.en_ru.2m.ru\n" in output
    assert "wmt14-test-full.tgz: 2 files" in output
    assert "not all required files were found" in output
    assert dry.calls() == []  # it needs no fairseq


@pytest.mark.parametrize("kind", ["goes on", "no parts", "nothing more"])
def test_an_interrupted_download_continues_or_starts_again(kind, raw, tmp_path):
    whole = (raw / ARCHIVE).read_bytes()
    part = tmp_path / "out" / "raw" / f"{ARCHIVE}.part"
    part.parent.mkdir(parents=True)
    part.write_bytes(whole[:3000] if kind == "goes on" else b"x" * (len(whole) + 9))
    if kind == "no parts":
        part.write_bytes(b"x" * 3000)
    with serve(raw, parts=kind != "no parts") as (address, ranges):
        table = miniatures.write_table(raw, [raw / ARCHIVE], address)
        output = fetched(tmp_path, table)
        if kind == "nothing more":
            assert "run again without it" in output
            fetched(tmp_path, table)
        assert kind != "goes on" or ranges == ["bytes=3000-"]
    assert (part.parent / ARCHIVE).read_bytes() == whole
    assert not part.exists()


def test_a_failed_download_is_named_with_its_home_page(raw, tmp_path):
    archive, out = raw / ARCHIVE, tmp_path / "out" / "raw"
    with serve(raw) as (address, _):
        table = miniatures.write_table(raw, [archive], address)
        archive.write_bytes(b"x" * archive.stat().st_size)  # not the file in the table
        assert "is expected: it is damaged" in fetched(tmp_path, table)
        assert names(out) == set()
        archive.unlink()
        dead = fetched(tmp_path, table)
    assert "404" in dead
    assert f"or get it from https://example.org, put it in {out}" in dead


@pytest.mark.slow
def test_a_killed_preparation_continues_where_it_stopped(raw, tmp_path):
    given = {"RAW_DIR": str(raw), "CORPORA": str(raw / "corpora.tsv")}
    dry = DryRun(tmp_path / "stubs")
    straight, stopped = tmp_path / "straight", tmp_path / "stopped"
    dry(RECIPE, "prepare.sh", "--output", straight, **given)
    kill_when(
        lambda: (stopped / "tok.tmp").exists(),
        [EXAMPLES / RECIPE / "prepare.sh", "--output", stopped],
        {**os.environ, "PATH": f"{dry.bin}:{PATH}", **given},
    )
    assert not (stopped / "tok").exists()
    assert "text: already done" in dry(RECIPE, "prepare.sh", "--output", stopped, **given)
    for path in straight.rglob("*"):
        if path.is_file() and path.name != ".lock":
            assert (stopped / path.relative_to(straight)).read_bytes() == path.read_bytes(), path


@pytest.mark.slow
def test_a_line_lost_by_a_tool_leaves_no_finished_step(raw, tmp_path):
    """The line is lost as on a disk that was full for a moment."""
    dry, real = DryRun(tmp_path / "stubs"), shutil.which("subword-nmt", path=PATH)
    body = f'case "$*" in *apply*) {real} "$@" | tail -n +2 ;; *) exec {real} "$@" ;; esac'
    dry.write("subword-nmt", body)
    given = {"RAW_DIR": str(raw), "CORPORA": str(raw / "corpora.tsv")}
    command = (RECIPE, "prepare.sh", "--output", tmp_path / "out", "--workers", 1)
    assert "was not written completely" in dry(*command, check=False, **given)
    assert not (tmp_path / "out" / "bpe").exists()


WRONG = [
    (RECIPE, "prepare.sh --outptu x", {}, "unknown option '--outptu': use --output, --workers, --"),
    (RECIPE, "prepare.sh --workers 0", {}, "option --workers got '0'"),
    (RECIPE, "prepare.sh", {"RAW_DIR": "/nowhere"}, "RAW_DIR is '/nowhere', which is not a folder"),
    ("own_corpus", "train.sh entmax", {"BPE_SIZE": "x"}, "error: BPE_SIZE got 'x': give a whole"),
    (RECIPE, "prepare.sh", {"SEED": "one"}, "SEED is 'one': give a whole number of at least 0"),
    (RECIPE, "prepare.sh", {"TRIAL_PAIRS": "9"}, "TRIAL_PAIRS is '9': give the numbers of train"),
    (RECIPE, "train.sh", {}, "no mapping given"),
    (RECIPE, "train.sh entmax --max-update 3", {}, "option --max-update is set by the recipe"),
    (RECIPE, "train.sh entmax --name x", {}, "option --name is set by the recipe: give the"),
    (RECIPE, "train.sh entmax --max-tokens 3", {}, "--most-tokens, --processes, --nodes, --cpu or"),
    ("bible_en_lm", "train.sh entmax --tokens-per-sample=9", {}, "change BLOCK_TOKENS in its"),
    (RECIPE, "train.sh --nodes 2 entmax", {}, "option --master got ''"),
    (RECIPE, "train.sh --nodes 2 --node-rank 2 entmax", {}, "give a number from 0 to 1"),
    (RECIPE, "train.sh --name ../x softmax", {}, "--name got '../x'"),
    (RECIPE, "evaluate.sh softmax extra", {}, "unknown argument 'extra'"),
    ("bible_es_en", "prune.sh --budgets all=73", {}, "got 'all=73': give all=N with N up to 72"),
    ("bible_es_en", "prune.sh --mapping", {}, "option --mapping needs a value"),
    ("bible_es_en", "claims.sh --seeds one", {}, "option --seeds got 'one': give whole numbers"),
    ("bible_es_en", "claims.sh --seeds 1,2,1", {}, "option --seeds has '1' twice: remove one of"),
    ("bible_es_en", "claims.sh --models softmix", {}, "got 'softmix': give any of softmax, entmax"),
    ("bible_es_en", "claims.sh --models softmax,rise75-foo", {}, "got 'rise75-foo': give any of "),
    ("debian_headlines", "prepare.sh", {"VOCABULARY": "bpe:3"}, "VOCABULARY is 'bpe:3'"),
    ("wikitext103", "prepare.sh", {"CONTEXT_WINDOW": "3072"}, "CONTEXT_WINDOW is '3072'"),
    ("cnn_dm", "prepare.sh", {"VOCABULARY": "words"}, "VOCABULARY is 'words': give joint:N"),
    ("cnn_dm", "train.sh softmax", {}, "the model got 'softmax': give baseline, sparse-enc"),
    ("snli", "report.sh --mappings softmax,,x", {}, "separate names by one comma and no spaces"),
    ("snli", "report.sh", {}, "run prepare.sh --output"),
    ("snli", "evaluate.sh softmax", {}, "run train.sh with the same options first"),
    ("bible_testaments", "prepare.sh --labels x", {}, "got 'x': give testaments or books"),
    ("bible_testaments", "prepare.sh", {"DICTIONARY": "no"}, "DICTIONARY is 'no', which is not a"),
    ("bible_es_en", "prune.sh --budgets all=6,all=6", {}, "has 'all=6' twice: remove one"),
    ("wikitext103", "prune.sh --teacher", {}, "an adaptive softmax cannot learn from a teacher"),
]


@pytest.mark.parametrize(("recipe", "command", "environment", "message"), WRONG)
def test_a_wrong_option_is_named_before_anything_is_done(
    recipe, command, environment, message, tmp_path
):
    script, *words = command.split()
    dry, out = DryRun(tmp_path / "stubs"), tmp_path / "out"
    output = dry(recipe, script, "--output", out, *words, check=False, **environment)
    assert message in output
    assert output.count("\n") == 1
    assert not out.exists()


@pytest.mark.parametrize("step", ["prepare", "train", "evaluate", "prune", "report", "claims"])
def test_help_describes_each_script_and_its_options(step, tmp_path):
    dry = DryRun(tmp_path)
    for script in sorted(EXAMPLES.glob(f"[!l]*/{step}.sh")):  # except those of lib
        shown = dry(script.parent.name, script.name, "--help")
        about = script if step == "claims" else script.parent / "dataset.sh"
        assert shown.startswith(re.search("(?m)^# (.*)", about.read_text())[1])
        assert "--output DIR" in shown
        assert step != "report" or "--updates N" in shown
