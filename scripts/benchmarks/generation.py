"""Times translation by stock fairseq and by each mapping of this package, in one process.

    python scripts/benchmarks/generation.py                          # the size of the quickstart
    python scripts/benchmarks/generation.py --size base --device cuda --fp16

The models are not trained: each writes translations of a fixed length by beam search with
``fairseq-generate``'s generator, so that all do the same work. Stock fairseq's model uses the search
that fairseq has without this package. ``entmax_bisect`` is the same attention with the function of the
package entmax. All take turns in every repeat; the table has the medians, and the ratios to stock
fairseq in the same repeat.
"""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Iterator
from typing import Any

import common
from fairseq.sequence_generator import SequenceGenerator
from pruned_generation import SIZES, Translator, parser, random_batches, rows_of
from synthetic import build, task_of
from training import BISECT, MAPPINGS, STOCK, kernel, use_bisection


def built(name: str, task: Any, options: argparse.Namespace) -> Any:
    """The model of one contender; all use the same seed."""
    if name == STOCK:
        model = build("transformer", task, SIZES[options.size])
    else:
        mapping = "softmax" if name == BISECT else name
        model = build("entmax_transformer", task, SIZES[options.size], attn_mapping=mapping)
    if name == BISECT:
        use_bisection(model)
    return model.half() if options.fp16 else model


@contextlib.contextmanager
def search_of(name: str) -> Iterator[None]:
    """For stock fairseq, restore the search that it has without this package."""
    changed: Any = SequenceGenerator.generate
    if name == STOCK:
        SequenceGenerator.generate = changed.__wrapped__
    try:
        yield
    finally:
        SequenceGenerator.generate = changed


def main() -> None:
    own = parser(__doc__, "generation.json", list(SIZES))
    own.add_argument("--fp16", action="store_true", help="use half precision, on a GPU")
    own.add_argument("--sentences", type=common.positive, default=64)
    own.add_argument("--repeats", type=common.positive, default=9)
    own.add_argument("--no-bisect", action="store_true", help="leave out entmax_bisect")
    options = own.parse_args()
    if options.fp16 and options.device == "cpu":
        own.error("--fp16 needs --device cuda")
    task = task_of()
    batches = random_batches(task.source_dictionary, options)
    names = [STOCK, *MAPPINGS, *([] if options.no_bisect else [BISECT])]
    models = {
        name: Translator(built(name, task, options), task, batches, options) for name in names
    }
    settings = {
        **common.machine(options.device),
        **vars(options),
        "kernel": kernel(options.device),
    }

    def seconds(name: str, turn: int) -> float:
        with search_of(name):
            return models[name].seconds(turn)

    def write(times: dict[str, list[float]]) -> None:
        common.write_json(options.json, settings, models=rows_of(models, times))

    times = common.in_turns(names, options.repeats, seconds, write)
    print(f"alpha-entmax runs on {kernel(options.device)}")
    columns = {"sentences/s": ("sentences_per_second", ".2f"), "ratio": ("ratio", ".2f")}
    print(common.table(rows_of(models, times), {"model": ("model", ""), **columns}))


if __name__ == "__main__":
    main()
