"""Record each run of claims.sh: all that the verdicts need, but no checkpoint.

claims_record.py about claims/record --corpora bible_es_en,debian_en_de
claims_record.py run claims/record/bible_es_en --output claims/bible_es_en --corpus bible_es_en \
    --run entmax-large-seed1 --model entmax --size large --seed 1 --role trained

Files are written completely or not at all.
"""

from __future__ import annotations

import argparse
import datetime
import importlib
import importlib.metadata
import json
import lzma
import os
import platform
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from messages import UsageError, one_sentence
from sacrebleu.metrics import BLEU, CHRF
from training_logs import Course, read_course, read_search
from translations import lines_of

from fairseq_entmax.files import write_together

ATTENTIONS = ("encoder-self", "decoder-self", "cross")
BEST, LAST = "checkpoints/checkpoint_best.pt", "checkpoints/checkpoint_last.pt"
SEARCH_POINTS = 50  # at most, in the recorded course of a search for heads


def translation(hypotheses: Sequence[str], references: Sequence[str]) -> dict[str, Any]:
    """Scores, and statistics of each sentence from which BLEU of any sample can be computed."""
    bleu, chrf = BLEU(references=[list(references)]), CHRF()
    # The statistics that sacreBLEU's own tests of significance resample
    sentences = bleu._extract_corpus_statistics(list(hypotheses), None)
    score = bleu.corpus_score(list(hypotheses), None)
    chrf_score = chrf.corpus_score(list(hypotheses), [list(references)])
    return {
        "bleu": round(score.score, 4),
        "chrf": round(chrf_score.score, 4),
        "bleu_signature": str(bleu.get_signature()),
        "chrf_signature": str(chrf.get_signature()),
        "sentences": [[int(number) for number in sentence] for sentence in sentences],
    }


def heads_of(model: Any) -> dict[str, list[list[int]]]:
    remaining: dict[str, dict[int, list[int]]] = {attention: {} for attention in ATTENTIONS}
    for attention in model.attentions:
        heads = [head for head, gate in enumerate(model.gates(attention)) if gate > 0]
        remaining[attention.attention][attention.layer] = heads
    return {name: [layers[n] for n in sorted(layers)] for name, layers in remaining.items()}


def curve(courses: Sequence[Course]) -> list[dict[str, Any]]:
    """The epochs of successive trainings; epochs and updates are counted from the first one."""
    points = []
    epochs = updates = 0
    for course in courses:
        for one in course.epochs:
            counted = one._replace(epoch=epochs + one.epoch, updates=updates + one.updates)
            points.append(counted._asdict())
        epochs += course.epochs[-1].epoch
        updates += course.updates
    return points


def relative_paths(value: Any, folder: Path) -> Any:
    """The document with paths relative to the corpus's folder: the same wherever it was made."""
    if isinstance(value, dict):
        return {name: relative_paths(one, folder) for name, one in value.items()}
    if isinstance(value, list):
        return [relative_paths(one, folder) for one in value]
    return value.removeprefix(f"{folder}/") if isinstance(value, str) else value


def read_json(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def document(about: Mapping[str, Any], output: Path, search: str | None) -> dict[str, Any]:
    """The record of a run; ``search`` is the run that found the heads of a pruned model."""
    from fairseq_entmax.models.checkpoint_model import read_model
    from fairseq_entmax.pruning.remaining_heads import head_counts

    runs = output / "runs"
    folder = runs / about["run"]
    courses = [read_course(runs / run / "train.log") for run in (search, about["run"]) if run]
    in_this_run = sum(course.updates for course in courses)
    before = read_course(runs / about["from_run"] / "train.log").updates if about["from_run"] else 0
    analysis = relative_paths(read_json(folder / "analysis" / "analysis.json"), output)
    ablation = folder / "ablation" / "ablation.json"
    opened = read_search(runs / search / "train.log", SEARCH_POINTS) if search else []
    points = curve(courses)
    counts = head_counts(read_model(f"{folder / BEST}"))
    return {
        **about,
        "device": (folder / "settings.txt").read_text(encoding="utf-8").split()[1],
        "heads": {attention: list(counts[attention]) for attention in ATTENTIONS},
        "kept": heads_of(read_model(f"{runs / search / LAST}")) if search else None,
        "updates": before + in_this_run,
        "own_updates": in_this_run,
        "epochs": points[-1]["epoch"],
        "ended_by": "patience" if courses[-1].by_patience else "length",
        "parameters": analysis["models"][0]["parameters"],
        "curve": points,
        "search": [{"updates": updates, "open": heads} for updates, heads in opened] or None,
        "analysis": {**analysis, "maps": []},
        "translation": translation(lines_of(folder / "test.hyp"), lines_of(folder / "test.ref")),
        "ablation": relative_paths(read_json(ablation), output) if ablation.exists() else None,
    }


def about(before: Mapping[str, Any], corpora: Sequence[str], given: Any) -> dict[str, Any]:
    git = ["git", "-C", str(Path(__file__).parent), "rev-parse", "HEAD"]
    commit = subprocess.run(git, capture_output=True, text=True, check=False).stdout.strip()
    versions = {name: importlib.metadata.version(name) for name in ("fairseq-entmax", "torch")}
    # fairseq can come from several distributions
    versions["fairseq"] = f"{importlib.import_module('fairseq').__version__}"
    versions["python"] = platform.python_version()
    return {
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "versions": dict(sorted(versions.items())),
        "processor": platform.processor() or platform.machine(),
        "cores": os.cpu_count(),
        "commit": commit or None,
        **before,  # the date, versions and machine of a record are those of its first runs
        **given,
        "corpora": list(dict.fromkeys([*before.get("corpora", []), *corpora])),
    }


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    whole = commands.add_parser("about", help="write record.json")
    whole.add_argument("record", type=Path)
    whole.add_argument("--corpora", required=True)
    whole.add_argument("--quick", action="store_true")
    whole.add_argument("--epochs", type=int, help="of every model; none if as the recipe says")
    one = commands.add_parser("run", help="write RUN.json.xz")
    one.add_argument("record", type=Path, help="folder of the corpus's record")
    one.add_argument("--output", type=Path, required=True, help="folder of the corpus's runs")
    for name in ("corpus", "run", "model", "size", "role"):
        one.add_argument(f"--{name}", required=True)
    one.add_argument("--seed", type=int, required=True)
    one.add_argument("--budget", help="budget of heads; none if all were kept")
    one.add_argument("--from-run", help="the baseline; none if it is one itself")
    one.add_argument("--search", help="the run that found the heads of a pruned model")
    options = vars(parser.parse_args(arguments))
    command, record = options.pop("command"), options.pop("record")
    record.mkdir(parents=True, exist_ok=True)
    with one_sentence():
        if command == "about":
            path = record / "record.json"
            before = read_json(path) if path.exists() else {}
            corpora = options.pop("corpora").split(",")
            if any(before.get(name, value) != value for name, value in options.items()):
                raise UsageError(
                    f"{record} has runs of another length, or of --quick: choose another --output or --record"
                )
            text = json.dumps(about(before, corpora, options))
            write_together({path: f"{text}\n".encode()})
            return
        output, search = options.pop("output"), options.pop("search")
        content = json.dumps(document(options, output, search), sort_keys=True, ensure_ascii=False)
        packed = lzma.compress(content.encode(), preset=9)
        write_together({record / f"{options['run']}.json.xz": packed})


if __name__ == "__main__":
    main()
