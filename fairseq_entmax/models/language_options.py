"""fairseq's own options of language models, checked before a model is made of them.

fairseq meets most of these in an ``assert``, or in shapes that do not fit each other.
"""

from __future__ import annotations

import ast
from typing import Any

from fairseq.criterions.adaptive_loss import AdaptiveLoss
from fairseq.criterions.composite_loss import CompositeLoss
from fairseq.criterions.cross_entropy import CrossEntropyCriterion
from fairseq.criterions.label_smoothed_cross_entropy import LabelSmoothedCrossEntropyCriterion

from fairseq_entmax.criterions.adaptive_softmax import check_for_cutoffs, criterion_name
from fairseq_entmax.models.config import option_name


def check_language_options(args: Any) -> None:
    """Refuse options of ``transformer_lm`` that are wrong by themselves or do not fit each other.

    Args:
        args: options of the model, with the defaults of the architecture.

    Raises:
        ValueError: names the option, what was given, and what is allowed.
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
        _check_tied(args, of_input, of_output)
    elif args.share_decoder_input_output_embed and not of_output:
        _check_shared(args)


def read_cutoffs(args: Any, option: str) -> list[int]:
    """Where the vectors of words become narrower: numbers of words, most frequent ones first.

    Args:
        args: options of the model.
        option: ``adaptive_input_cutoff`` or ``adaptive_softmax_cutoff``.

    Returns:
        None of them where the option was not given.

    Raises:
        ValueError: they are no whole numbers above 0, each larger than the one before.
    """
    value = getattr(args, option, None)
    if value is None or value == "":
        return []
    try:
        read = ast.literal_eval(value) if isinstance(value, str) else value
        numbers = list(read) if isinstance(read, list | tuple) else [read]
    except (ValueError, SyntaxError):
        numbers = [None]
    is_whole = all(type(number) is int for number in numbers)
    if not is_whole or any(a >= b for a, b in zip([0, *numbers], numbers, strict=False)):
        raise ValueError(
            f"{option_name(option)} must be whole numbers above 0, smallest first, such as "
            f"20000,60000, not {value!r}"
        )
    return numbers


def read_filters(text: Any) -> list[tuple[int, int]]:
    """The convolutions over characters, as ``(width, channels)`` each. Nothing is evaluated.

    Raises:
        ValueError: the text is no list of pairs of whole numbers above 0.
    """
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
    """Refuse cutoffs that a dictionary is too small for.

    Args:
        args: options of the model.
        source, target: fairseq's dictionaries of what is read and what is predicted.

    Raises:
        ValueError: names the option, and how many words there are.
    """
    for option, dictionary in (
        ("adaptive_input_cutoff", source),
        ("adaptive_softmax_cutoff", target),
    ):
        is_used = option != "adaptive_input_cutoff" or args.adaptive_input
        cutoffs = read_cutoffs(args, option)
        if is_used and cutoffs and cutoffs[-1] > len(dictionary):
            raise ValueError(
                f"{option_name(option)} {','.join(map(str, cutoffs))}: the dictionary has "
                f"{len(dictionary):,} words, give numbers below that"
            )


def check_loss(criterion: Any, has_adaptive_softmax: bool, ddp_backend: str | None = None) -> None:
    """Refuse a loss, with a penalty on heads or without, that does not fit a language model.

    Args:
        criterion: the class; None for one that is not known.
        has_adaptive_softmax: whether the model has one.
        ddp_backend: how workers are held together; None where that is not known.

    Raises:
        ValueError: names the loss, and what to give.
    """
    stock = getattr(criterion, "stock", criterion)
    if not isinstance(stock, type):
        return
    name = criterion_name(criterion)
    penalty = "" if stock is criterion else "_with_head_l0"
    check_for_cutoffs(criterion, has_adaptive_softmax, ddp_backend)
    is_fitting = issubclass(
        stock, AdaptiveLoss | CrossEntropyCriterion | LabelSmoothedCrossEntropyCriterion
    )
    if is_fitting or stock is CompositeLoss:
        return
    if stock.__module__.startswith("fairseq.criterions."):
        loss = "adaptive_loss" if has_adaptive_softmax else "cross_entropy"
        raise ValueError(
            f"--criterion {name} is not for --task language_modeling: give --criterion "
            f"{loss}{penalty}"
        )


def check_batches(args: Any) -> None:
    """Refuse batches that no whole sample has a place in, which fairseq leaves out in silence.

    Args:
        args: all options of ``fairseq-train``.

    Raises:
        ValueError: says how many tokens a sample has.
    """
    length = getattr(args, "tokens_per_sample", None)
    # With ``eos`` a sample is a line
    is_filled = str(getattr(args, "sample_break_mode", "eos")) != "eos"
    if (
        not is_filled
        or length is None
        or getattr(args, "skip_invalid_size_inputs_valid_test", False)
    ):
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


def _check_tied(args: Any, of_input: list[int], of_output: list[int]) -> None:
    if not args.adaptive_input or args.character_embeddings:
        raise ValueError("--tie-adaptive-weights needs --adaptive-input, and no characters")
    if of_input != of_output:
        raise ValueError(
            f"--tie-adaptive-weights needs the same --adaptive-input-cutoff "
            f"{args.adaptive_input_cutoff} and --adaptive-softmax-cutoff "
            f"{args.adaptive_softmax_cutoff}"
        )
    if args.adaptive_input_factor != args.adaptive_softmax_factor:
        raise ValueError(
            f"--tie-adaptive-weights needs the same --adaptive-input-factor "
            f"{args.adaptive_input_factor} and --adaptive-softmax-factor "
            f"{args.adaptive_softmax_factor}"
        )
    if args.decoder_input_dim != args.decoder_output_dim:
        raise _two_widths("--tie-adaptive-weights", args)
    if args.decoder_output_dim != args.decoder_embed_dim:
        raise ValueError(
            f"--tie-adaptive-weights leaves no projection from --decoder-embed-dim "
            f"{args.decoder_embed_dim} to --decoder-output-dim {args.decoder_output_dim}: give the "
            f"same number"
        )


def _check_shared(args: Any) -> None:
    if args.character_embeddings or args.adaptive_input:
        option = "--character-embeddings" if args.character_embeddings else "--adaptive-input"
        raise ValueError(
            f"--share-decoder-input-output-embed: {option} has no one vector for each word that "
            f"could be shared: leave one out"
        )
    if args.decoder_input_dim != args.decoder_output_dim:
        raise _two_widths("--share-decoder-input-output-embed", args)


def _two_widths(option: str, args: Any) -> ValueError:
    return ValueError(
        f"{option} needs one width of words: --decoder-input-dim {args.decoder_input_dim} and "
        f"--decoder-output-dim {args.decoder_output_dim} are two"
    )
