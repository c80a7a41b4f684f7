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


def read_texts(prefix: str, inputs: Sequence[str]) -> list[Any]:
    """The texts of a split, or its pairs of texts.

    Args:
        prefix: of the files.
        inputs: their ends, one or two.
    """
    sides = [lines_of(Path(f"{prefix}.{name}")) for name in inputs]
    return sides[0] if len(sides) == 1 else list(zip(*sides, strict=True))


def words_of(text: Any) -> list[str]:
    """The words of a text or a pair, as the model reads them; an unknown one as it is written."""
    texts = [text] if isinstance(text, str) else text
    return [word for one in texts for word in [*one.split(), END]]


def row_of(prediction: Any, text: Any) -> dict[str, Any]:
    """What is written of an example.

    Args:
        prediction: of fairseq_entmax's classifiers.
        text: the example.

    Raises:
        ValueError: the model has read something else.
    """
    words = words_of(text)
    if len(words) != len(prediction.tokens):
        raise ValueError(f"the model reads {len(prediction.tokens)} words in '{text}'")
    selected = {
        name: [
            [word, round(weight, 4)]
            for word, weight in zip(words, weights.mean(0).tolist(), strict=True)
            if weight > 0
        ]
        for name, weights in prediction.pooling.items()
    }
    texts = [text] if isinstance(text, str) else text
    sizes = [len(one.split()) for one in texts]
    return {
        "predicted": prediction.label,
        "log_prob": round(prediction.log_probs[prediction.label], 4),
        "words": {
            name: sizes[TEXT_OF[name]] if name in TEXT_OF else sum(sizes) for name in selected
        },
        "pooling": selected,
    }


def predicted(checkpoint: Path, data: Path, texts: Sequence[Any], device: str) -> Iterator[Any]:
    """Yield the rows of texts in their order.

    Args:
        data: the folder with the dictionaries.
        device: cpu or gpu.
    """
    from fairseq_entmax.models.classifier import EntmaxClassifierModel

    classifier = EntmaxClassifierModel.from_pretrained(
        str(checkpoint.parent), checkpoint.name, str(data)
    )
    if device == "gpu":
        classifier = classifier.cuda()
    # Examples of one length side by side are less work
    order = sorted(range(len(texts)), key=lambda number: len(words_of(texts[number])))
    said = classifier.predict([texts[number] for number in order], batch_size=BATCH)
    place = dict(zip(order, said, strict=True))
    for number, text in enumerate(texts):
        yield row_of(place[number], text)


def told(rows: Sequence[dict[str, Any]], labels: Sequence[str]) -> str:
    """How many words each attention selects, and which ones, for each true label.

    Args:
        rows: of all examples, from `row_of`.
        labels: of all examples.

    Raises:
        ValueError: there are not as many.
    """
    if len(rows) != len(labels):
        raise ValueError(f"there are {len(rows)} predictions for {len(labels)} labels: remove them")
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
    return "\n".join(lines) + "\n"


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
        if options.command == "write":
            texts = read_texts(options.prefix, options.inputs)
            for row in predicted(options.checkpoint, options.data, texts, options.device):
                print(json.dumps(row, ensure_ascii=False))
        else:
            rows = [json.loads(line) for line in lines_of(options.predictions)]
            print(told(rows, lines_of(options.labels)), end="")


if __name__ == "__main__":
    main()
