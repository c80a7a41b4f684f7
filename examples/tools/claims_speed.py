"""How fast models of claims.sh translate and train, and how dense their attention is.

claims_speed.py claims/record/bible_es_en/speed.json --output claims/bible_es_en

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
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from messages import one_sentence, write_whole

BATCH, BEAM = 32, 5  # sentences that are translated at a time
ATTENTIONS = ("encoder-self", "decoder-self", "cross")
UNITS = ("sentences", "updates")
BEST = "checkpoints/checkpoint_best.pt"


def density_of(analysis: Mapping[str, Any]) -> dict[str, float | None]:
    """The mean density of the heads of each attention; None where no head is left."""
    found: dict[str, list[float]] = {attention: [] for attention in ATTENTIONS}
    for entry in analysis["models"][0]["attentions"]:
        found[entry["attention"]] += [head["density"] for head in entry["heads"]]
    return {name: statistics.fmean(one) if one else None for name, one in found.items()}


def translation(model: Any, task: Any, options: argparse.Namespace) -> Callable[[], int]:
    import torch
    from fairseq import utils

    task.load_dataset("test")
    dataset = task.dataset("test")
    chosen = range(min(options.sentences, len(dataset)))
    groups = [chosen[start : start + BATCH] for start in chosen[::BATCH]]
    batches = [dataset.collater([dataset[index] for index in group]) for group in groups]
    if options.device != "cpu":
        batches = [utils.move_to_cuda(batch) for batch in batches]
    model.eval()
    model.prepare_for_inference_(Namespace(generation=Namespace(print_alignment=None)))
    decoding = Namespace(beam=BEAM, max_len_a=0, max_len_b=options.longest, min_len=1)
    search = task.build_generator([model], decoding)

    def translate() -> int:
        with torch.no_grad():
            for batch in batches:
                search.generate([model], batch)
        return len(chosen)

    return translate


def training(model: Any, config: Any, task: Any, options: argparse.Namespace) -> Callable[[], int]:
    import torch
    from fairseq import utils

    task.load_dataset("train")
    iterator = task.get_batch_iterator(
        task.dataset("train"), max_tokens=config.dataset.max_tokens, seed=1
    ).next_epoch_itr(shuffle=True)
    batches = [batch for batch, _ in zip(iterator, range(options.updates), strict=False)]
    device = "cpu"
    if options.device != "cpu":
        batches, device = [utils.move_to_cuda(batch) for batch in batches], "cuda"
    criterion = task.build_criterion(config.criterion).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-6)
    model.train()

    def train() -> int:
        for batch in batches:
            loss, size, _ = criterion(model, batch)
            (loss / size).backward()
            optimizer.step()
            optimizer.zero_grad()
        return len(batches)

    return train


def loaded(checkpoint: Path, options: argparse.Namespace) -> tuple[Any, Any, Any]:
    from fairseq import checkpoint_utils

    [model], config, task = checkpoint_utils.load_model_ensemble_and_task(
        [f"{checkpoint}"], arg_overrides={"data": f"{options.output}/data-bin"}
    )
    return model.to("cpu" if options.device == "cpu" else "cuda"), config, task


def measure(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Speed and density of trained and pruned models of a seed, in turns; a first round warms up."""
    import torch

    import fairseq_entmax.models  # noqa: F401

    rows, works = [], []
    for path in sorted(options.json.parent.glob(f"*-seed{options.seed}*.json.xz")):
        run = path.name.removesuffix(".json.xz")
        folder = options.output / "runs" / run
        is_left_out = run.endswith(("-continued", "-scratch"))
        if is_left_out or not (folder / BEST).exists():
            continue
        analysis = json.loads((folder / "analysis" / "analysis.json").read_text(encoding="utf-8"))
        model, config, task = loaded(folder / BEST, options)
        # One of its own to translate, as it is changed for that
        translate = translation(copy.deepcopy(model), task, options)
        works.append((translate, training(model, config, task, options)))
        rounds: dict[str, Any] = {f"{unit}_per_second_rounds": [] for unit in UNITS}
        rows.append({"run": run, "density": density_of(analysis), **rounds})
    for number in range(options.rounds + 1):
        for row, of_model in zip(rows, works, strict=True):
            for unit, work in zip(UNITS, of_model, strict=True):
                begin = time.perf_counter()
                done = work()
                if options.device != "cpu":
                    torch.cuda.synchronize()
                if number:
                    taken = time.perf_counter() - begin
                    row[f"{unit}_per_second_rounds"].append(done / taken)
    return rows


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("json", type=Path, help="the file to write, beside the runs' files")
    parser.add_argument("--output", type=Path, required=True, help="the corpus's folder")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--device", choices=("cpu", "gpu"), default="cpu")
    parser.add_argument("--sentences", type=int, default=100, help="to translate in a round")
    parser.add_argument("--longest", type=int, default=200, help="words of a translation")
    parser.add_argument("--updates", type=int, default=20, help="to make in a round")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args(arguments)
    with one_sentence():
        models = measure(options)
        if models:
            text = json.dumps({"device": options.device, "models": models}, indent=1)
            write_whole(options.json, f"{text}\n".encode())


if __name__ == "__main__":
    main()
