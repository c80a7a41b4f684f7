"""Runs all jobs of claims.sh, and writes the table of verdicts.

claims_run.py check --seeds 1,2,3 --corpora bible_es_en --output claims --record claims/record
claims_run.py run --seeds 1,2,3 --corpora bible_es_en --output claims --record claims/record --jobs 4
claims_run.py table --output claims --record claims/record

The data of the corpora are in folders of their names in the output; `run` is called by claims.sh,
which holds the locks. A call that finds everything done writes the table again, and nothing else.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from claims.checks import read_object
from claims_about import ABOUT, asked_for, today, write_about
from claims_added import check_addable, left_to_do
from claims_plan import CorpusJobs, Setting, plan
from claims_scope import MORE_CORPUS, scope_of
from jobs import Outcome, Pool
from messages import UsageError, one_sentence, say
from provenance import commit, is_changed, package_digest

TOOLS = Path(__file__).resolve().parent
EXAMPLES = TOOLS.parent
TABLE = "claims.md"
NOT_ASKED_FOR = "not-in-record"  # folder in that of --output
QUICK_SPEED = ("--sentences", "2", "--longest", "20", "--updates", "2", "--rounds", "1")
STOPPED = 128  # and the signal's number: the exit status that a shell reports


def numbers(text: str, option: str = "--seeds") -> list[int]:
    """Seeds, with commas between them.

    Args:
        option: for messages.

    Raises:
        UsageError: one is no whole number, or is there twice.
    """
    listed = text.split(",")
    if not all(re.fullmatch("0|[1-9][0-9]{0,8}", one) for one in listed):
        raise UsageError(f"option {option} got '{text}': give whole numbers, such as 1,2,3")
    if len(set(listed)) < len(listed):
        raise UsageError(f"option {option} got '{text}': give each seed once")
    return [int(one) for one in listed]


def check_more_seeds(options: argparse.Namespace) -> None:
    """Do nothing where further seeds are others, and of a corpus that is asked for.

    Raises:
        UsageError: they are not.
    """
    twice = sorted({*options.seeds} & {*options.more_seeds})
    if twice:
        raise UsageError(f"option --more-seeds got '{twice[0]}', which --seeds has: give others")
    if options.more_seeds and MORE_CORPUS not in options.corpora:
        raise UsageError(
            f"option --more-seeds is for {MORE_CORPUS}, which --corpora leaves out: add it there"
        )


def check_corpora(options: argparse.Namespace) -> None:
    """Do nothing where each corpus is there once, and has something to train of what was chosen.

    Raises:
        UsageError: one is there twice, or has nothing; or a model or a size is unknown.
    """
    given = options.corpora
    if len(set(given)) < len(given):
        raise UsageError(f"option --corpora got '{','.join(given)}': give each corpus once")
    chosen = (options.models, options.sizes)
    for corpus in given:
        scope_of(corpus, options.quick, *chosen)
    if options.more_seeds:
        scope_of(MORE_CORPUS, options.quick, *chosen, more=True)


def fingerprint(recipe: Path, output: Path) -> str:
    """A text that changes with the scripts, the recipe's settings and the data.

    Jobs are then begun again, and what they find done of the same settings they skip.
    """
    files = [*sorted(EXAMPLES.glob("lib/*.sh")), *sorted(EXAMPLES.glob("tools/*.py"))]
    files += [*sorted(recipe.glob("*.sh")), output / "data-bin" / ".done", output / "test.conllu"]
    digest = hashlib.sha256()
    for path in files:
        digest.update(path.name.encode() + b"\0")
        if path.exists():
            digest.update(path.read_bytes())
    for name in sorted(os.environ):
        if name.startswith("CLAIMS_") or name == "GENERATION_OPTIONS":
            digest.update(f"{name}={os.environ[name]}\0".encode())
    return digest.hexdigest()


def corpus_jobs(corpus: str, options: argparse.Namespace, more: bool = False) -> CorpusJobs:
    """The jobs of a corpus, of what was chosen.

    Args:
        more: whether they are of further seeds.

    Raises:
        UsageError: a model or a size is unknown.
    """
    recipe, output = EXAMPLES / corpus, options.output / corpus
    setting = Setting(
        corpus,
        recipe,
        output,
        options.record / corpus,
        options.device,
        fingerprint(recipe, output),
        # claims.sh holds the lock of the folder
        {"RECIPE_LOCK": f"{output}", "OMP_NUM_THREADS": "1"},
        QUICK_SPEED if options.quick else (),
        package_digest(),
    )
    scope = scope_of(corpus, options.quick, options.models, options.sizes, more)
    return CorpusJobs(setting, scope)


# --- the record -------------------------------------------------------------------------


def move_others_out(record: Path, products: Iterable[Path], folder: Path) -> int:
    """Move the files of a record that no job of this plan makes to another folder; return how many.

    What the record says of its seeds, corpora and models would not hold of them.
    """
    planned = {path.resolve() for path in products}
    moved = 0
    for path in sorted(record.glob("*/*.json*")):
        if path.resolve() in planned or path.suffix == ".tmp":
            continue
        target = folder / path.relative_to(record)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.move(path, target)
        moved += 1
    if moved:
        say(f"{moved} files of runs that were not asked for now: moved from {record} to {folder}")
    return moved


def check_record(options: argparse.Namespace) -> None:
    """Do nothing where the record is of the same kind of call, or there is none yet.

    Raises:
        UsageError: it is of a trial, and this is none, or the reverse.
        ValueError: it is damaged.
    """
    path = options.record / ABOUT
    if not path.exists():
        return
    about = read_object(path)
    if about.get("quick") != options.quick:
        which = "of a whole call, and this one is" if options.quick else "of a call"
        raise UsageError(
            f"the record {options.record} is {which} with --quick: choose another --output"
        )
    if options.add:
        check_addable(about, asked_for(options), options.record)


# --- claims.md --------------------------------------------------------------------------


def write_table(record: Path, folder: Path) -> None:
    """Have the package claims write its table of a record.

    Raises:
        ValueError: it cannot; its message is on standard error.
    """
    if not (TOOLS / "claims" / "__main__.py").exists():
        raise ValueError(f"there is no {TOOLS / 'claims'} to write {TABLE}: {record} is complete")
    paths = [f"{TOOLS}", *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    command = [sys.executable, "-m", "claims", f"{record}", "--output", f"{folder}"]
    made = subprocess.run(command, env=environment, stdout=subprocess.DEVNULL, check=False)
    if made.returncode:
        raise ValueError(f"{folder / TABLE} could not be made of {record}: the reason is above")
    say(f"verdicts: {folder / TABLE}")


def run(options: argparse.Namespace) -> int:
    """Run what is not done; return the exit status.

    Raises:
        ValueError: the table cannot be made.
    """
    corpora = [corpus_jobs(corpus, options) for corpus in options.corpora]
    more = [corpus_jobs(MORE_CORPUS, options, more=True)] if options.more_seeds else []
    table = ("table", "--record", f"{options.record}", "--output", f"{options.output}")
    command = ("python3", __file__, *table)
    jobs = plan(corpora, options.seeds, command, more, options.more_seeds)
    if options.add:
        jobs = left_to_do(jobs, options.record)
    about = {"date": today(), "commit": commit(), "changed": is_changed()}
    pool = Pool(jobs, options.output / "jobs", options.jobs, about=about)
    say(f"{len(jobs)} jobs, {options.jobs} at once on {options.device}")
    if not (options.record / ABOUT).exists():
        write_about(options)  # so that the record can be read while it is made
    outcome = pool.run()
    moved = 0
    if not options.add:
        products = (path for job in jobs for path in job.products)
        moved = move_others_out(options.record, products, options.output / NOT_ASKED_FOR)
    if moved or outcome.ran or outcome.failed or outcome.signal is not None:
        write_about(options)
    say(f"{len(outcome.done)} jobs done, {len(outcome.ran)} of them now")
    if outcome.signal is not None:
        return STOPPED + outcome.signal
    if outcome.failed:
        pool.report_failures()
        raise ValueError(failures(outcome))
    write_table(options.record, options.output)
    return 0


def failures(outcome: Outcome) -> str:
    left = f", and {len(outcome.left)} that need them were left out" if outcome.left else ""
    return (
        f"{len(outcome.failed)} jobs failed ({', '.join(outcome.failed)}){left}: the last lines of "
        "their logs are above; the same command tries them again"
    )


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("command", choices=("check", "run", "table"))
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--record", type=Path, required=True)
    parser.add_argument("--seeds", default="1")
    parser.add_argument("--more-seeds", default="")
    for name in ("--corpora", "--models", "--sizes"):
        parser.add_argument(name, type=lambda text: text.split(","), default=[])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--add", action="store_true")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--device", choices=("cpu", "gpu"), default="cpu")
    options = parser.parse_args(arguments)
    with one_sentence():
        if options.command == "table":
            write_table(options.record, options.output)
            return
        options.seeds = numbers(options.seeds)
        more = options.more_seeds
        options.more_seeds = numbers(more, "--more-seeds") if more else []
        check_more_seeds(options)
        check_record(options)
        check_corpora(options)
        if options.command == "run":
            sys.exit(run(options))


if __name__ == "__main__":
    main()
