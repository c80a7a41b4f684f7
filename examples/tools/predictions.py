"""What a classifier says of the test set, and the words that its attention selects.

predictions.py write checkpoint_best.pt data-bin tok/test input0 --device cpu > test.predictions.jsonl
predictions.py words test.predictions.jsonl text/test.label

The first writes an example a line, as JSON: the predicted label, the logarithm of its probability,
and for each attention that pools words (the mean of its heads) how many words there are, and those
with a weight above zero, in their order. The second prints how many words are selected, and
for each label those that get most of the weight in its examples.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from messages import one_sentence
from translations import lines_of

BATCH = 64  # examples at a time
SHOWN = 12  # words of a label
END = "</s>"
TEXT_OF = {"premise": 0, "hypothesis": 1}  # which text of a pair an attention reads, by its name


def read_texts(prefix: str, inputs: Sequence[str]) -> list[tuple[str, ...]]:
    return list(zip(*(lines_of(Path(f"{prefix}.{name}")) for name in inputs), strict=True))


def words_of(texts: tuple[str, ...]) -> list[str]:
    """The words of an example, as the model reads them; an unknown one as it is written."""
    return [word for one in texts for word in [*one.split(), END]]


def row_of(prediction: Any, texts: tuple[str, ...]) -> dict[str, Any]:
    """What is written of an example, of which fairseq_entmax's classifier made this prediction."""
    words = words_of(texts)
    selected = {
        name: [
            [word, round(weight, 4)]
            for word, weight in zip(words, weights.mean(0).tolist(), strict=True)
            if weight > 0
        ]
        for name, weights in prediction.pooling.items()
    }
    sizes = [len(one.split()) for one in texts]
    return {
        "predicted": prediction.label,
        "log_prob": round(prediction.log_probs[prediction.label], 4),
        "words": {
            name: sizes[TEXT_OF[name]] if name in TEXT_OF else sum(sizes) for name in selected
        },
        "pooling": selected,
    }


def predicted(
    checkpoint: Path, data: Path, texts: Sequence[tuple[str, ...]], device: str
) -> Iterator[dict[str, Any]]:
    """Yield the rows of examples in their order; the dictionaries are in the folder of data."""
    from fairseq_entmax.models.classifier import EntmaxClassifierModel

    classifier = EntmaxClassifierModel.from_pretrained(
        str(checkpoint.parent), checkpoint.name, str(data)
    )
    if device == "gpu":
        classifier = classifier.cuda()
    # Examples of one length side by side are less work
    order = sorted(range(len(texts)), key=lambda number: len(words_of(texts[number])))
    examples: list[Any] = [texts[number] for number in order]
    if len(texts[0]) == 1:
        examples = [text for (text,) in examples]
    said = classifier.predict(examples, batch_size=BATCH)
    place = dict(zip(order, said, strict=True))
    for number, own in enumerate(texts):
        yield row_of(place[number], own)


def told(rows: Sequence[dict[str, Any]], labels: Sequence[str]) -> str:
    """How many words each attention selects, and which ones, for each true label of the rows."""
    lines = []
    for name in rows[0]["pooling"]:
        words = sum(row["words"][name] for row in rows)
        chosen = sum(len(row["pooling"][name]) for row in rows)
        lines.append(
            f"{name}: {chosen / len(rows):.1f} of {words / len(rows):.1f} words on average"
        )
        weights: dict[str, Counter[str]] = defaultdict(Counter)
        for row, label in zip(rows, labels, strict=True):
            for word, weight in row["pooling"][name]:
                weights[label][word] += weight
        for label in sorted(weights):
            total = weights[label].total()
            most = weights[label].most_common(SHOWN)
            shown = ", ".join(f"{word} {weight / total:.1%}" for word, weight in most)
            lines.append(f"  {label}: {shown}")
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    write = commands.add_parser("write", help="classify, and print an example a line")
    write.add_argument("checkpoint", type=Path)
    write.add_argument("data", type=Path, help="folder of binarised data, with the dictionaries")
    write.add_argument("prefix", help="of the files with the texts")
    write.add_argument("inputs", nargs="+", help="their ends: input0, and input1 of pairs")
    write.add_argument("--device", choices=("cpu", "gpu"), default="cpu")
    words = commands.add_parser("words", help="print which words are selected")
    words.add_argument("predictions", type=Path)
    words.add_argument("labels", type=Path)
    options = parser.parse_args(arguments)
    with one_sentence():
        if options.command == "words":
            rows = [json.loads(line) for line in lines_of(options.predictions)]
            print(told(rows, lines_of(options.labels)))
            return
        texts = read_texts(options.prefix, options.inputs)
        for row in predicted(options.checkpoint, options.data, texts, options.device):
            print(json.dumps(row, ensure_ascii=False))


if __name__ == "__main__":
    main()
