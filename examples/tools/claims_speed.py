"""Measure how fast models of claims.sh translate and train.

PYTHONPATH=scripts/benchmarks claims_speed.py claims/record/bible_es_en/speed.json --output claims/bible_es_en

The models take turns in every round, so that other load on the machine affects all alike. They
translate the same sentences of the test set, and are trained on the same batches of the training
set, each from its trained weights; the checkpoints on disk do not change.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from messages import one_sentence

from fairseq_entmax.files import write_together

BEST = "checkpoints/checkpoint_best.pt"


def training(path: str, options: argparse.Namespace) -> Callable[[], float]:
    """A function that trains a model and returns its updates per second."""
    import torch
    from fairseq import checkpoint_utils, utils

    [model], config, task = checkpoint_utils.load_model_ensemble_and_task(
        [path], arg_overrides={"data": options.data}
    )
    task.load_dataset("train")
    iterator = task.get_batch_iterator(
        task.dataset("train"), max_tokens=config.dataset.max_tokens, seed=1
    ).next_epoch_itr(shuffle=True)
    batches = [batch for batch, _ in zip(iterator, range(options.updates), strict=False)]
    if options.device == "cuda":
        batches = utils.move_to_cuda(batches)
    criterion = task.build_criterion(config.criterion).to(options.device)
    model.train().to(options.device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-6)

    def train() -> float:
        begin = time.perf_counter()
        for batch in batches:
            loss, size, _ = criterion(model, batch)
            (loss / size).backward()
            optimizer.step()
            optimizer.zero_grad()
        if options.device == "cuda":
            torch.cuda.synchronize()
        return len(batches) / (time.perf_counter() - begin)

    return train


def measure(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Speed of the large models of a seed that claims compare: trained, and with 24 heads."""
    from common import in_turns
    from pruned_generation import loaded_models

    import fairseq_entmax.models  # noqa: F401

    names = (path.name.partition(".")[0] for path in sorted(options.json.parent.glob("*.json.xz")))
    roles = f"-large-seed{options.seed}", f"-large-seed{options.seed}-all24-pruned"
    own = [name for name in names if name.endswith(roles) and not name.startswith("rise")]
    files = {name: options.output / "runs" / name / BEST for name in own}
    paths = {name: f"{file}" for name, file in files.items() if file.exists()}
    options.path = list(paths.values())
    translators = dict(zip(paths, loaded_models(options).values(), strict=True))
    trainings = {name: training(path, options) for name, path in paths.items()}

    def rates(name: str, turn: int) -> tuple[float, float]:
        batches = translators[name].batches
        sentences = sum(len(batch["net_input"]["src_tokens"]) for batch in batches)
        return sentences / translators[name].seconds(turn), trainings[name]()

    rows = []
    for name, rounds in in_turns(list(paths), options.rounds, rates).items() if paths else ():
        translated, trained = map(list, zip(*rounds, strict=True))
        speed = {"sentences_per_second_rounds": translated, "updates_per_second_rounds": trained}
        rows.append({"run": name, **speed})
    return rows


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("json", type=Path, help="file to write, in the corpus's record")
    parser.add_argument("--output", type=Path, required=True, help="folder of the corpus's runs")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--device", choices=("cpu", "gpu"), default="cpu")
    parser.add_argument("--sentences", type=int, default=100, help="sentences in a round")
    parser.add_argument("--updates", type=int, default=20, help="updates in a round")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args(arguments)
    device, data = options.device, f"{options.output}/data-bin"
    how = {"data": data, "device": "cuda" if device == "gpu" else device, "batch": 32, "beam": 5}
    with one_sentence():
        models = measure(argparse.Namespace(**{**vars(options), **how}))
        if models:
            text = json.dumps({"device": device, "models": models}, indent=1)
            write_together({options.json: f"{text}\n".encode()})


if __name__ == "__main__":
    main()
