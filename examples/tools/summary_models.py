"""The models of the recipes for summaries: from names to options of fairseq-train.

summary_models.py name sparse-tl                             # sparse-tl:sparsemax
summary_models.py known 'the mapping' sparse-tl:entmax15     # fails if the package does not know it
summary_models.py options sparse-tl:entmax15 4 0             # 4 layers each, data without markers

Names, options and mappings are those of Baan et al. (2019), section 6.2, and of Niculae and
Blondel (2017), section 4.3.
"""

from __future__ import annotations

import sys

from environment import require_mapping
from messages import UsageError, one_sentence

COPYING = ("--arch", "entmax_copy_transformer_opennmt", "--criterion", "copy_cross_entropy")
# The same Transformer without copying, spelt out in options
PLAIN = (
    *("--arch", "entmax_transformer", "--share-all-embeddings"),
    *("--encoder-normalize-before", "--decoder-normalize-before"),
    *("--encoder-embed-dim", "512", "--decoder-embed-dim", "512"),
    *("--encoder-ffn-embed-dim", "2048", "--decoder-ffn-embed-dim", "2048"),
    *("--encoder-attention-heads", "8", "--decoder-attention-heads", "8"),
    *("--criterion", "label_smoothed_cross_entropy"),
)
BASELINE, CROSS = "baseline", "cross"
FAMILY = "sparsemax"
SPARSE = ("sparse-enc", "sparse-tl", "sparse-ch", "sparse-all")


def canonical(word: str) -> str:
    """The full name of a model; a sparse one without a mapping in its name uses sparsemax."""
    name, colon, mapping = word.partition(":")
    if (name == BASELINE and not colon) or (name == CROSS and mapping):
        return word
    if name in SPARSE and (mapping or not colon):
        return f"{name}:{mapping or FAMILY}"
    raise UsageError(
        f"the model got '{word}': give {BASELINE}, {', '.join(SPARSE)} (followed by "
        f":MAPPING, if not sparsemax), or {CROSS}:MAPPING"
    )


def mappings_of(name: str, mapping: str, layers: int) -> tuple[str, ...]:
    """The options for the attention in which a model that copies is sparse."""
    if name == BASELINE:
        return "--attn-mapping", "softmax"
    if name == "sparse-enc":
        return "--attn-mapping", "softmax", "--encoder-self-attn-mapping", mapping
    if name == "sparse-ch":
        return "--attn-mapping", mapping, "--copy-mapping", "softmax"
    if name == "sparse-all":
        return "--attn-mapping", mapping
    below_top = f"{mapping}*{layers - 1},softmax" if layers > 1 else "softmax"
    return (
        *("--attn-mapping", "softmax", "--encoder-self-attn-mapping", mapping),
        *("--decoder-self-attn-mapping", below_top, "--cross-attn-mapping", below_top),
    )


def options_of(model: str, layers: int, markers: int) -> tuple[str, ...]:
    """The options of fairseq-train, for data with `markers` for words outside the vocabulary."""
    name, _, mapping = model.partition(":")
    sizes = ("--encoder-layers", f"{layers}", "--decoder-layers", f"{layers}")
    if name != CROSS:
        numbered = ("--source-position-markers", f"{markers}") if markers else ()
        return (*COPYING, *sizes, *numbered, *mappings_of(name, mapping, layers))
    if markers:
        raise UsageError(
            f"the model got '{model}', which does not copy, but the data have words that "
            "only copying can produce: run prepare.sh without VOCABULARY, with another --output"
        )
    return (*PLAIN, *sizes, "--attn-mapping", "softmax", "--cross-attn-mapping", mapping)


def main(arguments: list[str]) -> None:
    command, *words = arguments
    with one_sentence():
        if command == "name":
            print(canonical(words[0]))
        elif command == "options":
            print(*options_of(words[0], int(words[1]), int(words[2])), sep="\n")
        elif mapping := words[1].partition(":")[2]:
            require_mapping(words[0], mapping)


if __name__ == "__main__":
    main(sys.argv[1:])
