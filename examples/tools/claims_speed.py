"""How fast models of claims.sh translate and train, and how dense their attention is.

claims_speed.py measure claims/record/bible_es_en/speed.json --output claims/bible_es_en
claims_speed.py updates claims/record/bible_es_en/speed.json entmax-large entmax15-large 10902

The models take turns in every round, so that what else the machine does meets all alike. They
translate the same sentences of the test set, and make updates on the same batches of the training set,
each of its own trained weights, which stay as they are on disk.
"""

from __future__ import annotations

import argparse
import copy
import json
import statistics
import time
from argparse import Namespace
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from messages import one_sentence

from fairseq_entmax.files import write_together

BATCH = 32  # sentences that are translated at a time
BEAM = 5
ATTENTIONS = ("encoder-self", "decoder-self", "cross")
BEST = "checkpoints/checkpoint_best.pt"


@dataclass
class Timed:
    """A model, and the seconds of its rounds.

    Attributes:
        translate, train: do the work of a round.
        sentences, updates: that a round has.
    """

    run: str
    parameters: int
    density: dict[str, float | None]
    translate: Callable[[], None]
    train: Callable[[], None]
    sentences: int
    updates: int
    translating: list[float] = field(default_factory=list)
    training: list[float] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        translated = [self.sentences / seconds for seconds in self.translating]
        trained = [self.updates / seconds for seconds in self.training]
        return {
            "run": self.run,
            "parameters": self.parameters,
            "density": self.density,
            "sentences_per_second": statistics.median(translated),
            "sentences_per_second_rounds": translated,
            "updates_per_second": statistics.median(trained),
            "updates_per_second_rounds": trained,
        }


def density_of(analysis: dict[str, Any]) -> dict[str, float | None]:
    """The mean density of the heads of each attention; None where no head is left."""
    found: dict[str, list[float]] = {attention: [] for attention in ATTENTIONS}
    for entry in analysis["models"][0]["attentions"]:
        found[entry["attention"]] += [head["density"] for head in entry["heads"]]
    return {name: statistics.fmean(one) if one else None for name, one in found.items()}


def loaded(checkpoint: str, data: str, device: str) -> tuple[Any, Any, Any]:
    """Model, configuration and task."""
    from fairseq import checkpoint_utils

    [model], config, task = checkpoint_utils.load_model_ensemble_and_task(
        [checkpoint], arg_overrides={"data": data}
    )
    return model.to(device), config, task


def translation(
    model: Any, task: Any, options: argparse.Namespace, device: str
) -> tuple[Callable[[], None], int]:
    """What translates the first sentences of the test set, and how many those are."""
    import torch
    from fairseq import utils

    task.load_dataset("test")
    dataset = task.dataset("test")
    chosen = range(min(options.sentences, len(dataset)))
    groups = [chosen[start : start + BATCH] for start in chosen[::BATCH]]
    batches = [dataset.collater([dataset[index] for index in group]) for group in groups]
    if device != "cpu":
        batches = [utils.move_to_cuda(batch) for batch in batches]
    model.eval()
    model.prepare_for_inference_(Namespace(generation=Namespace(print_alignment=None)))
    decoding = Namespace(beam=BEAM, max_len_a=0, max_len_b=options.longest, min_len=1)
    search = task.build_generator([model], decoding)

    def translate() -> None:
        with torch.no_grad():
            for batch in batches:
                search.generate([model], batch)

    return translate, len(chosen)


def training(model: Any, config: Any, task: Any, number: int, device: str) -> tuple[Any, int]:
    """What makes updates on the first batches of an epoch, and how many those are."""
    import torch
    from fairseq import utils

    task.load_dataset("train")
    iterator = task.get_batch_iterator(
        task.dataset("train"), max_tokens=config.dataset.max_tokens, seed=1
    ).next_epoch_itr(shuffle=True)
    batches = [batch for batch, _ in zip(iterator, range(number), strict=False)]
    if device != "cpu":
        batches = [utils.move_to_cuda(batch) for batch in batches]
    criterion = task.build_criterion(config.criterion).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-6)
    model.train()

    def train() -> None:
        for batch in batches:
            loss, size, _ = criterion(model, batch)
            (loss / size).backward()
            optimizer.step()
            optimizer.zero_grad()

    return train, len(batches)


def prepared(run: str, options: argparse.Namespace) -> Timed:
    """A run, ready to be timed."""
    device = "cpu" if options.device == "cpu" else "cuda"
    folder = options.output / "runs" / run
    checkpoint, data = f"{folder}/checkpoints/checkpoint_best.pt", f"{options.output}/data-bin"
    analysis = json.loads((folder / "analysis" / "analysis.json").read_text(encoding="utf-8"))
    model, config, task = loaded(checkpoint, data, device)
    # One of its own to translate, as it is changed for that
    translate, sentences = translation(copy.deepcopy(model), task, options, device)
    train, updates = training(model, config, task, options.updates, device)
    parameters = sum(one.numel() for one in {*model.parameters()})
    return Timed(run, parameters, density_of(analysis), translate, train, sentences, updates)


def measure(models: Sequence[Timed], rounds: int, device: str) -> None:
    """Let the models take turns; a first round, which is not counted, warms up."""
    import torch

    for number in range(rounds + 1):
        for model in models:
            for work, taken in (
                (model.translate, model.translating),
                (model.train, model.training),
            ):
                begin = time.perf_counter()
                work()
                if device != "cpu":
                    torch.cuda.synchronize()
                if number:
                    taken.append(time.perf_counter() - begin)


def write_speed(options: argparse.Namespace) -> None:
    """Measure the trained and pruned models of a seed that the record and the folder have."""
    import torch

    import fairseq_entmax.models  # noqa: F401

    kept = options.json.parent.glob(f"*-seed{options.seed}*.json.xz")
    names = sorted(path.name.removesuffix(".json.xz") for path in kept)
    runs = [
        name
        for name in names
        if not name.endswith(("-continued", "-scratch", "-equaltime"))
        and (options.output / "runs" / name / BEST).exists()
    ]
    if not runs:
        return
    models = [prepared(run, options) for run in runs]
    measure(models, options.rounds, options.device)
    content = {
        "device": options.device,
        "threads": torch.get_num_threads(),
        "sentences": models[0].sentences,
        "updates": models[0].updates,
        "rounds": options.rounds,
        "models": [model.as_json() for model in models],
    }
    write_together({options.json: f"{json.dumps(content, indent=1)}\n".encode()})


def updates_in_equal_time(
    speed: Mapping[str, Any], model: str, reference: str, updates: int
) -> int:
    """How many updates a model makes while another makes so many, by the median over the rounds."""
    rounds = [
        next(m["updates_per_second_rounds"] for m in speed["models"] if m["run"].startswith(name))
        for name in (f"{model}-seed", f"{reference}-seed")
    ]
    ratio = statistics.median(one / other for one, other in zip(*rounds, strict=True))
    return max(1, round(updates * ratio))


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    measuring = commands.add_parser("measure", help="write speed.json")
    measuring.add_argument("json", type=Path, help="the file to write, beside the runs' files")
    measuring.add_argument("--output", type=Path, required=True, help="the corpus's folder")
    measuring.add_argument("--seed", type=int, default=1)
    measuring.add_argument("--device", choices=("cpu", "gpu"), default="cpu")
    measuring.add_argument("--sentences", type=int, default=100, help="to translate in a round")
    measuring.add_argument("--longest", type=int, default=200, help="words of a translation")
    measuring.add_argument("--updates", type=int, default=20, help="to make in a round")
    measuring.add_argument("--rounds", type=int, default=5)
    counting = commands.add_parser("updates", help="print how many a model makes meanwhile")
    counting.add_argument("json", type=Path, help="as measure wrote it")
    counting.add_argument("model")
    counting.add_argument("reference")
    counting.add_argument("updates", type=int, help="of the reference")
    options = parser.parse_args(arguments)
    with one_sentence():
        if options.command == "measure":
            write_speed(options)
            return
        speed = json.loads(options.json.read_text(encoding="utf-8"))
        print(updates_in_equal_time(speed, options.model, options.reference, options.updates))


if __name__ == "__main__":
    main()
