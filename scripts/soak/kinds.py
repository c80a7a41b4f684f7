"""The kinds of jobs that are killed: their commands, what they need, and what they promise."""

from __future__ import annotations

import json
import lzma
import random
import re
import shutil
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
RECIPE = ROOT / "examples" / "bible_es_en"
TRIAL = {"TRIAL_PAIRS": "240,16,12", "GENERATION_OPTIONS": "--max-len-b 20"}
UPDATES = "24"
TINY = (
    *("--encoder-layers=2", "--decoder-layers=2", "--encoder-embed-dim=32"),
    *("--decoder-embed-dim=32", "--encoder-ffn-embed-dim=32", "--decoder-ffn-embed-dim=32"),
    *("--encoder-attention-heads=4", "--decoder-attention-heads=4", "--save-interval-updates=4"),
)
RUN = ("--cpu", "--updates", UPDATES, "--output", "@", "entmax")
DATA = ("data-bin", "--source-lang=es", "--target-lang=en", "--gen-subset=test", "--path=model.pt")
QUIET = ("--cpu", "--num-workers=0")
# Logs grow with each attempt; locks say nothing of results
NOT_COMPARED = re.compile(r"(^|/)logs/|\.log$|(^|/)\.lock$|\.begun$")
# Of a record what is measured in seconds, or says when and with what it was made
OF_TIME = frozenset({"date", "machine", "seconds", "commit"})
# What follows from measured seconds has another number of updates each time
BY_TIME = re.compile(r"equaltime|(^|/)(speed\.json|claims\.md)")
HALF = re.compile(r"\.tmp(/|\d*$)|\.old(/|$)|\.extracted")


@dataclass(frozen=True)
class Kind:
    """A kind of job.

    Attributes:
        commands: one after the other; @ is the job's folder, which they run in.
        needs: of the base what is copied there: data, model, trained.
    """

    name: str
    commands: tuple[tuple[str, ...], ...]
    needs: tuple[str, ...] = ()


KINDS = {
    kind.name: kind
    for kind in (
        Kind("prepare", ((f"{RECIPE / 'prepare.sh'}", "--output", "@"),)),
        Kind("train", ((f"{RECIPE / 'train.sh'}", *RUN, *TINY),), ("data",)),
        Kind("evaluate", ((f"{RECIPE / 'evaluate.sh'}", *RUN),), ("trained",)),
        Kind(
            "prune",
            (
                (
                    *("fairseq-entmax", "prune", "model.pt", "--output=small.pt", "--overwrite"),
                    "--heads=encoder-self:0.1;cross:1.2",
                ),
            ),
            ("model",),
        ),
        Kind(
            "analyze",
            (
                (
                    *("fairseq-entmax", "analyze", *DATA, *QUIET, "--output=.", "--overwrite"),
                    *("--sentences=0", "--relevance-sentences=2", "--gradient-sentences=2"),
                ),
            ),
            ("model",),
        ),
        Kind(
            "report",
            (
                (
                    *("fairseq-entmax", "report", "analysis.json", "--output=report.html"),
                    *("--figures=figures", "--formats=svg,pdf", "--overwrite"),
                ),
            ),
            ("analysis",),
        ),
        Kind(
            "ablate",
            (
                (
                    *("fairseq-entmax", "ablate", *DATA, *QUIET, "--output=ablation"),
                    *("--scores=loss,bleu", "--beam=1", "--max-len-b=10", "--bootstrap=50"),
                ),
            ),
            ("model",),
        ),
        Kind(
            "oov",
            (
                (
                    *("fairseq-entmax", "oov", "vocabulary", "--text", "source.txt", "--words=900"),
                    *("--markers=20", "--output=vocab.txt", "--overwrite"),
                ),
                (
                    *("fairseq-entmax", "oov", "mark", "--source=source.txt", "--vocab=vocab.txt"),
                    *("--target=source.txt", "--output-source=marked.source"),
                    *("--output-target=marked.target", "--overwrite"),
                ),
            ),
            ("text",),
        ),
        Kind(
            "claims",
            (
                (
                    *(f"{RECIPE / 'claims.sh'}", "--quick", "--cpu", "--jobs", "2"),
                    *("--models", "softmax", "--sizes", "small", "--output", "@"),
                ),
            ),
        ),
    )
}


class Base:
    """What jobs begin with: made once, and never killed.

    Args:
        folder: where.
        undisturbed: where the kinds that were measured have what they made, which is taken.
        run: runs the commands of a kind in a folder.
    """

    def __init__(self, folder: Path, undisturbed: Path, run: Callable[[Kind, Path], None]) -> None:
        self.folder, self._undisturbed, self._run = folder, undisturbed, run

    def fill(self, kind: Kind, folder: Path) -> None:
        """Put what a kind needs into a new folder."""
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        for need in kind.needs:
            shutil.copytree(self._made(need), folder, dirs_exist_ok=True)

    def _made(self, need: str) -> Path:
        folder = self.folder / need
        if not folder.exists():
            making = self.folder / f"{need}.making"
            getattr(self, f"_make_{need}")(making)
            making.rename(folder)
        return folder

    def _make_text(self, folder: Path) -> None:
        folder.mkdir(parents=True)
        chance = random.Random(1)
        words = [f"word{int(chance.paretovariate(0.5)) % 5000}" for _ in range(400_000)]
        lines = (" ".join(words[at : at + 20]) for at in range(0, len(words), 20))
        (folder / "source.txt").write_text("\n".join(lines) + "\n")

    def _make_data(self, folder: Path) -> None:
        self._make(KINDS["prepare"], folder)

    def _make_trained(self, folder: Path) -> None:
        self._make(KINDS["train"], folder)

    def _make_model(self, folder: Path) -> None:
        trained = self._made("trained")
        shutil.copytree(trained / "data-bin", folder / "data-bin")
        (checkpoint,) = trained.glob("runs/*/checkpoints/checkpoint_best.pt")
        shutil.copyfile(checkpoint, folder / "model.pt")

    def _make_analysis(self, folder: Path) -> None:
        self._make(KINDS["analyze"], folder)

    def _make(self, kind: Kind, folder: Path) -> None:
        made = self._undisturbed / kind.name
        if made.exists():
            shutil.copytree(made, folder)
            return
        self.fill(kind, folder)
        self._run(kind, folder)


def differences(kind: Kind, expected: Path, found: Path) -> list[str]:
    """What is another in the folder of a job that was killed than in that of one that was not."""
    names, others = (set(_files(folder)) for folder in (expected, found))
    told = [f"{name} is missing" for name in sorted(names - others)]
    told += [f"{name} is there, and should not be" for name in sorted(others - names)]
    told += [
        f"{name} has other content"
        for name in sorted(names & others)
        if not _are_alike(expected, found, name)
    ]
    every = (path.relative_to(found).as_posix() for path in found.rglob("*"))
    told += [f"{name} was left" for name in sorted(every) if HALF.search(name)]
    return [f"{kind.name}: {line}" for line in told]


def _files(folder: Path) -> Iterable[str]:
    for path in folder.rglob("*"):
        name = path.relative_to(folder).as_posix()
        if path.is_file() and not NOT_COMPARED.search(name) and not HALF.search(name):
            yield name


def _are_alike(expected: Path, found: Path, name: str) -> bool:
    """The same bytes, or where seconds and the folder's path are inside, the same beside these."""
    one, other = expected / name, found / name
    own = str(expected).encode(), str(found).encode()
    if one.read_bytes().replace(own[0], b"") == other.read_bytes().replace(own[1], b""):
        return True
    if BY_TIME.search(name):
        return True
    if one.suffix == ".pt":
        return _learned(one) == _learned(other)
    if one.suffix == ".xz":
        read = (json.loads(lzma.decompress(path.read_bytes())) for path in (one, other))
        return _lasting(next(read)) == _lasting(next(read))
    if one.name == "record.json":
        return _lasting(json.loads(one.read_bytes())) == _lasting(json.loads(other.read_bytes()))
    # Stamps of files with seconds inside change with these
    return one.name.startswith(".") and one.name.endswith(".done")


def _lasting(value: Any) -> Any:
    """A document without what is measured in seconds."""
    if isinstance(value, dict):
        return {key: _lasting(each) for key, each in value.items() if key not in OF_TIME}
    return [_lasting(each) for each in value] if isinstance(value, list) else value


def _learned(path: Path) -> list[Any]:
    """Of a checkpoint what training made: every number of the model and the optimizer, and updates."""
    import torch

    from fairseq_entmax.checkpoints import load_checkpoint

    found: list[Any] = []

    def look(name: str, value: Any) -> None:
        if isinstance(value, torch.Tensor):
            # Bytes, in which NaN is like itself
            found.append((name, value.dtype, value.shape, value.contiguous().numpy().tobytes()))
        elif isinstance(value, dict):
            for key in value:
                look(f"{name}.{key}", value[key])
        elif isinstance(value, list | tuple):
            for number, each in enumerate(value):
                look(f"{name}.{number}", each)

    state = load_checkpoint(str(path))
    look("model", state["model"])
    look("optimizer", state.get("last_optimizer_state"))
    history = state.get("optimizer_history") or [{}]
    return [*found, history[-1].get("num_updates")]
