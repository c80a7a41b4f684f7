"""Writes the queries, keys and values of a trained model, for cpu_attention.py --dumped.

    python scripts/benchmarks/dump_attention.py quickstart/data-bin --path CHECKPOINT --output quickstart.pt
    python scripts/benchmarks/dump_attention.py DATA --path CHECKPOINT --join 16 --output long.pt

The model, of this package, reads the first sentences of a split with teacher forcing, as in training.
For each attention in each layer, the file has queries, keys and values of all heads, epsilon =
alpha - 1 of each head, the scale of the scores, and which keys are padding. --join N joins N
successive sentences, and their translations, for rows as long as those of documents.
"""

from __future__ import annotations

import argparse
from typing import Any

import torch
from fairseq import checkpoint_utils
from torch import Tensor

import fairseq_entmax.models  # noqa: F401 - checkpoints are loaded safely from here on
from fairseq_entmax.attention import MultiheadAttention
from fairseq_entmax.attention.masks import is_marked_future_mask
from fairseq_entmax.kernels.inputs import split_heads
from fairseq_entmax.mappings import Mapping, PerHeadMapping


def epsilon_of(mapping: Mapping | PerHeadMapping, heads: int) -> Tensor | None:
    """Alpha - 1 of each head; None if the mapping is more than alpha-entmax."""
    epsilon = mapping.epsilon()
    if epsilon is None:
        return None
    return torch.as_tensor(epsilon).detach().float().expand(heads).clone()


def watched(model: Any, layers: list[dict[str, Any]]) -> None:
    """Append the inputs of each attention to `layers` whenever the model runs."""
    for name, module in model.named_modules():
        if not isinstance(module, MultiheadAttention) or module.mapping is None:
            continue

        def note(
            module: Any, args: tuple[Any, ...], options: dict[str, Any], name: str = name
        ) -> None:
            epsilon = epsilon_of(module.mapping, module.num_heads)
            if epsilon is None:
                return
            given = dict(zip(("query", "key", "value"), args, strict=False)) | options
            query, key = given["query"], given["key"]
            projected = (module.q_proj(query), module.k_proj(key), module.v_proj(given["value"]))
            split = (split_heads(one, module.num_heads).contiguous() for one in projected)
            padding = given.get("key_padding_mask")
            layers.append(
                {
                    "name": name,
                    **dict(zip(("query", "key", "value"), split, strict=True)),
                    "epsilon": epsilon,
                    "scale": float(module.scaling),
                    "padding": padding.bool() if padding is not None and padding.any() else None,
                    "causal": is_marked_future_mask(given.get("attn_mask")),
                }
            )

        module.register_forward_pre_hook(note, with_kwargs=True)


def joined(dataset: Any, sentences: int, join: int) -> Any:
    """A batch of the first `sentences`, each joined from `join` sentences of the dataset."""
    samples = []
    for place in range(min(sentences, len(dataset) // join)):
        parts = [dataset[place * join + number] for number in range(join)]
        sides = {
            # Only the last part keeps its end-of-sentence token
            side: torch.cat([*(part[side][:-1] for part in parts[:-1]), parts[-1][side]])
            for side in ("source", "target")
        }
        samples.append({"id": place, **sides})
    return dataset.collater(samples)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", metavar="DATA", help="folder of binarised data")
    parser.add_argument("--path", required=True, metavar="CHECKPOINT")
    parser.add_argument("--split", default="valid")
    parser.add_argument("--sentences", type=int, default=8, help="sentences after joining")
    parser.add_argument("--join", type=int, default=1, metavar="N", help="join N sentences each")
    parser.add_argument("--output", required=True, metavar="FILE")
    options = parser.parse_args()
    [model], _, task = checkpoint_utils.load_model_ensemble_and_task(
        [options.path], arg_overrides={"data": options.data}
    )
    task.load_dataset(options.split)
    dataset = task.dataset(options.split)
    layers: list[dict[str, Any]] = []
    watched(model, layers)
    with torch.no_grad():
        model.eval()(**joined(dataset, options.sentences, options.join)["net_input"])
    if not layers:
        raise SystemExit(f"--path {options.path}: no attention of that model is alpha-entmax")
    torch.save(layers, options.output)
    for layer in layers:
        print(layer["name"], *layer["query"].shape, *layer["key"].shape[2:3])


if __name__ == "__main__":
    main()
