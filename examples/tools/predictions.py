"""What a classifier predicts for the test set, which words it attends to, and how fast it is.

predictions.py write checkpoint_best.pt data-bin > test.predictions.jsonl
predictions.py words test.predictions.jsonl text/test.label
predictions.py speed data-bin checkpoint_best.pt other.pt > speed.tsv

The first writes one example a line, as JSON: the predicted label, the logarithm of its probability,
and the words to which <s>, from which the class is read, gives a weight above zero: the mean of the
heads of the last layer. The second prints how many words are selected, and for each label the words
with the most weight in its examples. The third prints examples per second of processor time, the
best of several passes in which the models take turns.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from messages import one_sentence
from translations import lines_of

BATCH = 64  # examples at a time
PASSES = 5  # over the test set; the best one counts
SHOWN = 12  # words shown for a label
MARKS = ("<s>", "</s>", "<pad>")


def loaded(checkpoint: Path, data: Path, device: str = "cpu") -> tuple[Any, Any, list[Any]]:
    """The task of a checkpoint, its model, and the test set in batches."""
    from fairseq_entmax.analysis import load_model, load_samples, load_task
    from fairseq_entmax.analysis.data.loading import load_dataset

    task = load_task(str(data), task="sentence_prediction", checkpoint=str(checkpoint))
    number = len(load_dataset(task, "test"))
    samples = load_samples(task, "test", range(number), BATCH, device)
    return task, load_model(str(checkpoint), task).model.to(device), samples


def predicted(checkpoint: Path, data: Path, device: str) -> Iterator[dict[str, Any]]:
    """Yield a row for each example, in their order."""
    import torch

    from fairseq_entmax.analysis import record_attention

    task, model, samples = loaded(checkpoint, data, device)
    words, labels = task.source_dictionary, task.label_dictionary
    rows = {}
    last = len(model.attention_options.heads["encoder-self"]) - 1
    for sample in samples:
        attention, logits = record_attention(model, sample)
        tokens = sample["net_input"]["src_tokens"]
        # Shape (batch, tokens); zero if the layer has lost all its heads
        of_last = attention.get("encoder-self", {}).get(last)
        weights = torch.zeros(tokens.shape) if of_last is None else of_last.mean(1)[:, 0]
        each = zip(sample["id"].tolist(), logits.log_softmax(-1), tokens, weights, strict=True)
        for number, scores, own, looked_at in each:
            text = [words[token] for token in own.tolist()]
            rows[number] = row_of(text, looked_at.tolist()) | {
                "predicted": labels[int(scores.argmax()) + labels.nspecial],
                "log_prob": round(float(scores.max()), 4),
            }
    for number in sorted(rows):
        yield rows[number]


def row_of(tokens: Sequence[str], weights: Sequence[float]) -> dict[str, Any]:
    """The number of words, and the words with a weight above zero, in their order."""
    pairs = zip(tokens, weights, strict=True)
    words = [(word, weight) for word, weight in pairs if word not in MARKS]
    return {
        "words": len(words),
        "selected": [[word, round(weight, 4)] for word, weight in words if weight > 0],
    }


def selected_words(rows: Sequence[dict[str, Any]], labels: Sequence[str]) -> str:
    """A text: how many words are selected, and which ones for each true label."""
    chosen, words = (
        sum(map(count, rows)) / len(rows)
        for count in (lambda row: len(row["selected"]), lambda row: row["words"])
    )
    lines = [f"{chosen:.1f} of {words:.1f} words on average"]
    weights: dict[str, Counter[str]] = defaultdict(Counter)
    for row, label in zip(rows, labels, strict=True):
        for word, weight in row["selected"]:
            weights[label][word] += weight
    for label in sorted(weights):
        total = weights[label].total()
        most = weights[label].most_common(SHOWN)
        shown = ", ".join(f"{word} {weight / total:.1%}" for word, weight in most)
        lines.append(f"  {label}: {shown}")
    return "\n".join(lines)


def speeds(data: Path, checkpoints: Sequence[Path]) -> list[float]:
    """Each model's examples per second of processor time, which other load hardly affects."""
    import torch

    from fairseq_entmax.analysis.data.data_types import type_of_model

    models, best = [loaded(path, data) for path in checkpoints], [float("inf")] * len(checkpoints)
    for _ in range(PASSES):
        for number, (_task, model, samples) in enumerate(models):
            start = time.process_time()
            with torch.no_grad():
                for sample in samples:
                    type_of_model(model).run(model, sample)
            best[number] = min(best[number], time.process_time() - start)
    total = sum(len(sample["id"]) for sample in models[0][2])
    return [total / seconds for seconds in best]


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    write = commands.add_parser("write", help="classify, and print one example per line")
    write.add_argument("checkpoint", type=Path)
    write.add_argument("data", type=Path, help="folder of binarised data, with the dictionaries")
    write.add_argument("--device", choices=("cpu", "gpu"), default="cpu")
    words = commands.add_parser("words", help="print which words are selected")
    words.add_argument("predictions", type=Path)
    words.add_argument("labels", type=Path)
    speed = commands.add_parser(
        "speed", help="print a table of examples per second of processor time"
    )
    speed.add_argument("data", type=Path)
    speed.add_argument("checkpoints", type=Path, nargs="+")
    options = parser.parse_args(arguments)
    with one_sentence():
        if options.command == "words":
            rows = [json.loads(line) for line in lines_of(options.predictions)]
            print(selected_words(rows, lines_of(options.labels)))
        elif options.command == "speed":
            print("model\texamples per second of processor time")
            found = speeds(options.data, options.checkpoints)
            for path, each in zip(options.checkpoints, found, strict=True):
                print(f"{path.parent.name}\t{each:.0f}")
        else:
            device = {"cpu": "cpu", "gpu": "cuda"}[options.device]
            for row in predicted(options.checkpoint, options.data, device):
                print(json.dumps(row, ensure_ascii=False))


if __name__ == "__main__":
    main()
