"""What is kept of each run of claims.sh: all that its verdicts need, and no checkpoint.

claims_record.py --output claims/bible_es_en --record claims/record/bible_es_en --run RUN \
    --corpus bible_es_en --model entmax --size large --seed 1 --role trained

Writes RUN.json.xz, whole or not at all, the same bytes for the same run. The format is that which
the package claims reads.
"""

from __future__ import annotations

import argparse
import json
import lzma
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from jobs import spent
from messages import one_sentence
from sacrebleu.metrics import BLEU, CHRF
from training_logs import Course, read_course, read_search
from translations import lines_of

MOST_BYTES = 1_000_000  # of a file of the record
ATTENTIONS = ("encoder-self", "decoder-self", "cross")
BEST, LAST = "checkpoints/checkpoint_best.pt", "checkpoints/checkpoint_last.pt"
ATTEMPTS = "attempts"
SEARCH_POINTS = 50  # at most, of the course of a search for heads


def translation(hypotheses: Sequence[str], references: Sequence[str]) -> dict[str, Any]:
    """Scores, and the statistics of each sentence of which BLEU of any sample can be made.

    Args:
        hypotheses: a translation for each of the references.
    """
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


def kept_heads(gated: Path) -> dict[str, list[list[int]]]:
    """Of each attention the heads of each layer that a search has left open, by their numbers in it.

    Args:
        gated: the checkpoint with gates that was pruned.
    """
    from fairseq_entmax.models.saved import read_model

    model = read_model(str(gated))
    kept: dict[str, dict[int, list[int]]] = {attention: {} for attention in ATTENTIONS}
    for attention in model.attentions:
        gates = model.gates(attention)
        heads = [head for head, gate in enumerate(gates) if gate > 0]
        kept[attention.attention][attention.layer] = heads
    return {name: [layers[n] for n in sorted(layers)] for name, layers in kept.items()}


def numbers_of_heads(checkpoint: Path) -> dict[str, list[int]]:
    """Of each attention the number of heads of each layer, the bottom one first."""
    from fairseq_entmax.models.saved import read_model
    from fairseq_entmax.pruning.left import head_counts

    counts = head_counts(read_model(str(checkpoint)))
    return {attention: list(counts[attention]) for attention in ATTENTIONS}


def curve(courses: Sequence[Course]) -> list[dict[str, Any]]:
    """The epochs of trainings that followed each other; epochs and updates count from the first."""

    def points() -> Iterator[dict[str, Any]]:
        epochs = updates = 0
        for course in courses:
            for one in course.epochs:
                yield {
                    "epoch": epochs + one.epoch,
                    "updates": updates + one.updates,
                    "valid_loss": one.valid_loss,
                    "valid_nll_loss": one.valid_nll_loss,
                    "train_loss": one.train_loss,
                }
            epochs += course.epochs[-1].epoch
            updates += course.updates

    return list(points())


def search_course(log: Path) -> list[dict[str, Any]]:
    """How many heads of each attention a search had open, in its course."""
    points = read_search(log, SEARCH_POINTS)
    return [{"updates": point.updates, "open": point.open} for point in points]


def trained_by(folders: Sequence[Path]) -> list[dict[str, Any]]:
    """The code of the attempts of trainings: each commit once, and whether code was changed beside it."""
    found: list[dict[str, Any]] = []
    for path in (path for folder in folders for path in sorted(folder.glob("*.json"))):
        attempt = read_json(path)
        code = {name: attempt.get(name) for name in ("commit", "changed")}
        if code not in found:
            found.append(code)
    return found


def without_places(value: Any, folder: Path) -> Any:
    """A document that says the same wherever it was made: its paths begin in the corpus's folder."""
    if isinstance(value, dict):
        return {name: without_places(one, folder) for name, one in value.items()}
    if isinstance(value, list):
        return [without_places(one, folder) for one in value]
    return value.removeprefix(f"{folder}/") if isinstance(value, str) else value


def document(about: Mapping[str, Any], output: Path, search: str | None) -> dict[str, Any]:
    """All that is kept of a run.

    Args:
        about: corpus, run, model, size, seed, role, budget and from_run.
        output: the corpus's folder, with data-bin and runs.
        search: the run in which the heads were found, of a pruned one.

    Raises:
        ValueError: something of the run is not as it should be.
        OSError: something of it is missing.
    """
    folder = output / "runs" / about["run"]
    runs = [*([search] if search else []), about["run"]]
    courses = [read_course(output / "runs" / run / "train.log") for run in runs]
    attempts = [output / "runs" / run / ATTEMPTS for run in runs]
    own = sum(course.updates for course in courses)
    before = 0
    if about["from_run"]:
        before = read_course(output / "runs" / about["from_run"] / "train.log").updates
    analysis = without_places(read_json(folder / "analysis" / "analysis.json"), output)
    ablation = folder / "ablation" / "ablation.json"
    points = curve(courses)
    last_fall = courses[-1].last_fall
    return {
        **about,
        "heads": numbers_of_heads(folder / BEST),
        "kept": kept_heads(output / "runs" / search / LAST) if search else None,
        "updates": before + own,
        "own_updates": own,
        "epochs": points[-1]["epoch"],
        "ended_by": "patience" if courses[-1].by_patience else "length",
        "last_fall": None if last_fall is None else round(last_fall, 4),
        "cpu_seconds": round(sum(map(spent, attempts)), 1),
        "trained_by": trained_by(attempts),
        "parameters": analysis["models"][0]["parameters"],
        "curve": points,
        "search": search_course(output / "runs" / search / "train.log") if search else None,
        "analysis": {**analysis, "maps": []},
        "translation": translation(lines_of(folder / "test.hyp"), lines_of(folder / "test.ref")),
        "ablation": without_places(read_json(ablation), output) if ablation.exists() else None,
    }


def read_json(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def packed(content: Mapping[str, Any]) -> bytes:
    """JSON in xz, the same bytes for the same content."""
    text = json.dumps(content, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    return lzma.compress(f"{text}\n".encode(), format=lzma.FORMAT_XZ, preset=9)


def write_run(path: Path, content: Mapping[str, Any]) -> None:
    """Write a file of the record, whole or not at all.

    Raises:
        ValueError: it would be larger than `MOST_BYTES`.
    """
    data = packed(content)
    if len(data) > MOST_BYTES:
        raise ValueError(
            f"{path} would have {len(data)} bytes, and a file of the record has {MOST_BYTES} at "
            "most: choose fewer measures in CLAIMS_ANALYSIS"
        )
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f"{path.name}.tmp")
    unfinished.write_bytes(data)
    os.replace(unfinished, path)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, required=True, help="the corpus's folder")
    parser.add_argument("--record", type=Path, required=True, help="its folder of the record")
    for name in ("corpus", "run", "model", "size", "role"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--budget", help="of heads; none where all were kept")
    parser.add_argument("--from-run", help="the baseline; none where it is one itself")
    parser.add_argument("--search", help="the run in which heads were found, of a pruned one")
    options = vars(parser.parse_args(arguments))
    output, record, search = (options.pop(name) for name in ("output", "record", "search"))
    with one_sentence():
        content = document(options, output, search)
        write_run(record / f"{options['run']}.json.xz", content)


if __name__ == "__main__":
    main()
