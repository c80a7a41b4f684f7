"""fairseq's own options of language models, checked before a model is made of them.

fairseq meets most of these in an ``assert``, or in shapes that do not fit each other.
"""

from __future__ import annotations

import ast
from typing import Any

from fairseq_entmax.models.config import option_name
from fairseq_entmax.models.options import read_cutoffs

# Of tied weights, the options that have to be the same
_TIED = (
    ("adaptive_input_cutoff", "adaptive_softmax_cutoff"),
    ("adaptive_input_factor", "adaptive_softmax_factor"),
    ("decoder_input_dim", "decoder_output_dim"),
    ("decoder_embed_dim", "decoder_output_dim"),
)


def check_language_options(args: Any) -> None:
    """Refuse options of ``transformer_lm`` that are wrong by themselves or do not fit each other.

    Args:
        args: options of the model, with the defaults of the architecture.
    """
    if getattr(args, "base_layers", 0):
        raise ValueError(
            f"--base-layers {args.base_layers}: this model has no layers without attention: leave "
            f"it out, or use fairseq's own transformer_lm"
        )
    of_input = read_cutoffs(args, "adaptive_input_cutoff")
    of_output = read_cutoffs(args, "adaptive_softmax_cutoff")
    if args.character_embeddings:
        read_filters(args.character_filters)
    elif args.adaptive_input and not of_input:
        raise ValueError(
            "--adaptive-input needs --adaptive-input-cutoff: the numbers of words at which a "
            "smaller width begins, such as 20000,60000"
        )
    if args.tie_adaptive_weights:
        if not args.adaptive_input or args.character_embeddings:
            raise ValueError("--tie-adaptive-weights needs --adaptive-input, and no characters")
        for first, second in _TIED:
            _check_same("--tie-adaptive-weights", args, first, second)
    elif args.share_decoder_input_output_embed and not of_output:
        if args.character_embeddings or args.adaptive_input:
            option = "--character-embeddings" if args.character_embeddings else "--adaptive-input"
            raise ValueError(
                f"--share-decoder-input-output-embed: {option} has no one vector for each word "
                f"that could be shared: leave one out"
            )
        names = ("decoder_input_dim", "decoder_output_dim")
        _check_same("--share-decoder-input-output-embed", args, *names)


def _check_same(option: str, args: Any, first: str, second: str) -> None:
    one, other = getattr(args, first), getattr(args, second)
    if one != other:
        raise ValueError(
            f"{option} needs {option_name(first)} {one} and {option_name(second)} {other} to be "
            f"the same"
        )


def read_filters(text: Any) -> list[tuple[int, int]]:
    """The convolutions over characters, as ``(width, channels)`` each. Nothing is evaluated."""
    try:
        read = ast.literal_eval(text) if isinstance(text, str) else text
        pairs = [(width, channels) for width, channels in read]
    except (ValueError, SyntaxError, TypeError):
        pairs = []
    numbers = [number for pair in pairs for number in pair]
    if not pairs or not all(type(number) is int and number > 0 for number in numbers):
        raise ValueError(
            f"--character-filters must be a list of (width, channels), whole numbers above 0, such "
            f"as '[(1, 64), (2, 128)]', not {text!r:.200}"
        )
    return pairs


def check_cutoffs(args: Any, source: Any, target: Any) -> None:
    """Refuse cutoffs that fairseq's dictionaries, of what is read and predicted, are too small for."""
    used = {"adaptive_softmax_cutoff": target}
    if args.adaptive_input:
        used["adaptive_input_cutoff"] = source
    for option, dictionary in used.items():
        cutoffs = read_cutoffs(args, option)
        if cutoffs and cutoffs[-1] > len(dictionary):
            raise ValueError(
                f"{option_name(option)} {','.join(map(str, cutoffs))}: the dictionary has "
                f"{len(dictionary):,} words, give numbers below that"
            )


def check_batches(args: Any) -> None:
    """Refuse batches of ``fairseq-train`` that no whole sample has a place in.

    fairseq leaves such samples out in silence. With ``--sample-break-mode eos`` a sample is a line.
    """
    length = getattr(args, "tokens_per_sample", None)
    is_filled = str(getattr(args, "sample_break_mode", "eos")) != "eos"
    # The settings in a checkpoint have a name, and may be evaluated on other data
    is_training = getattr(args, "save_dir", None) and getattr(args, "_name", None) is None
    is_skipping = getattr(args, "skip_invalid_size_inputs_valid_test", False)
    if not is_training or not is_filled or length is None or is_skipping:
        return
    names = ["max_tokens"]
    if not getattr(args, "disable_validation", False):
        names.append("max_tokens_valid")
    for name in names:
        tokens = getattr(args, name, None)
        if isinstance(tokens, int) and tokens < length:
            raise ValueError(
                f"{option_name(name)} {tokens} is less than the {length} tokens of a sample: give "
                f"{option_name(name)} {length} or more, or a smaller --tokens-per-sample"
            )
