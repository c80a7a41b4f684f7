"""The models of the recipes for summaries: a name to the options of fairseq-train that make it.

summary_models.py name sparse-tl --family entmax15           # sparse-tl:entmax15
summary_models.py options sparse-tl:entmax15 --layers 4 --markers 0

Names, options and mappings are those of Baan et al. (2019), section 6.2, and of Niculae and
Blondel (2017), section 4.3.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

from environment import require_mapping
from messages import UsageError, one_sentence

SPARSEMAX = "sparsemax"  # the paper's own
COPYING = ("--arch", "entmax_copy_transformer_opennmt", "--criterion", "copy_cross_entropy")
# The same Transformer, as fairseq's without copying has to be told to be
PLAIN = (
    *("--arch", "entmax_transformer", "--share-all-embeddings"),
    *("--encoder-normalize-before", "--decoder-normalize-before"),
    *("--encoder-embed-dim", "512", "--decoder-embed-dim", "512"),
    *("--encoder-ffn-embed-dim", "2048", "--decoder-ffn-embed-dim", "2048"),
    *("--encoder-attention-heads", "8", "--decoder-attention-heads", "8"),
    *("--criterion", "label_smoothed_cross_entropy"),
)
Mapped = Callable[[str, int], tuple[str, ...]]


def _below_top(family: str, layers: int) -> str:
    return f"{family}*{layers - 1},softmax" if layers > 1 else "softmax"


def _sparse_tl(family: str, layers: int) -> tuple[str, ...]:
    lists = _below_top(family, layers)
    return (
        *("--attn-mapping", "softmax", "--encoder-self-attn-mapping", family),
        *("--decoder-self-attn-mapping", lists, "--cross-attn-mapping", lists),
    )


# Where a model that copies is sparse
SPARSE: dict[str, Mapped] = {
    "sparse-enc": lambda family, _: (
        *("--attn-mapping", "softmax", "--encoder-self-attn-mapping", family),
    ),
    "sparse-tl": _sparse_tl,
    "sparse-ch": lambda family, _: ("--attn-mapping", family, "--copy-mapping", "softmax"),
    "sparse-all": lambda family, _: ("--attn-mapping", family),
}
BASELINE, CROSS = "baseline", "cross"
KNOWN = (
    f"{BASELINE}, {', '.join(SPARSE)} (with :MAPPING behind it for another one than "
    f"{SPARSEMAX}), or {CROSS}:MAPPING"
)


def canonical(word: str, family: str) -> str:
    """The whole name of a model, such as ``sparse-tl:sparsemax`` of ``sparse-tl``.

    Args:
        family: the mapping of a sparse model whose name has none.

    Raises:
        UsageError: there is no such model.
    """
    name, colon, mapping = word.partition(":")
    if name == BASELINE and not colon:
        return word
    if name in SPARSE and (mapping or not colon):
        return f"{name}:{mapping or family}"
    if name == CROSS and mapping:
        return word
    raise UsageError(f"the model got '{word}': give {KNOWN}")


def options_of(model: str, layers: int, markers: int) -> tuple[str, ...]:
    """The options of fairseq-train for a model.

    Args:
        model: its whole name.
        layers: of encoder and decoder each.
        markers: numbers for words outside the vocabulary that the data have; 0 where there are
            subwords.

    Raises:
        UsageError: the model copies nothing, and the data have numbers for words to copy.
    """
    name, _, mapping = model.partition(":")
    sizes = ("--encoder-layers", f"{layers}", "--decoder-layers", f"{layers}")
    if name == CROSS:
        if markers:
            raise UsageError(
                f"the model got '{model}', which does not copy, and the data have words that "
                "only copying can write: run prepare.sh without VOCABULARY, to another --output"
            )
        return (*PLAIN, *sizes, "--attn-mapping", "softmax", "--cross-attn-mapping", mapping)
    numbered = ("--source-position-markers", f"{markers}") if markers else ()
    if name == BASELINE:
        return (*COPYING, *sizes, *numbered, "--attn-mapping", "softmax")
    return (*COPYING, *sizes, *numbered, *SPARSE[name](mapping, layers))


def require_model(what: str, model: str) -> None:
    """Ask the package whether it knows a model's mapping.

    Raises:
        UsageError: it does not.
    """
    _, colon, mapping = model.partition(":")
    if colon:
        require_mapping(what, mapping)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    name = commands.add_parser("name", help="print the whole name of a model")
    name.add_argument("model")
    name.add_argument("--family", required=True, help="mapping of a sparse model")
    known = commands.add_parser("known", help="fail where the package does not know its mapping")
    known.add_argument("what", help="how a message names it")
    known.add_argument("model")
    options_parser = commands.add_parser(
        "options", help="print options of fairseq-train, a line each"
    )
    options_parser.add_argument("model")
    options_parser.add_argument("--layers", type=int, required=True)
    options_parser.add_argument("--markers", type=int, required=True)
    options = parser.parse_args(arguments)
    with one_sentence():
        if options.command == "name":
            print(canonical(options.model, options.family))
        elif options.command == "known":
            require_model(options.what, options.model)
        else:
            print(*options_of(options.model, options.layers, options.markers), sep="\n")


if __name__ == "__main__":
    main()
