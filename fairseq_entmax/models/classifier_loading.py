"""What a checkpoint has to become before a model that classifies can load it."""

from __future__ import annotations

import logging
from typing import Any

import torch

from fairseq_entmax import compat

logger = logging.getLogger(__name__)

HEADS = "classification_heads."
_POOLING = ("poolings.", "combine.")
_WORDS = "encoder.embed_tokens.weight"


def adapted(model: Any, state_dict: dict[str, Any]) -> dict[str, Any]:
    """The weights of a checkpoint as the model has them.

    Of a model that does not classify, such as one that translates, the encoder is taken, and
    what pools and classifies starts as in a new model. Classification heads of a checkpoint that
    the model does not have are left out; one of another size, or that the checkpoint lacks, starts
    anew where the model is going to be trained.
    """
    state = dict(state_dict)
    is_classifier = any(name.startswith(_POOLING) for name in state)
    if is_classifier:
        _check_pooling(model, state)
    else:
        _take_encoder(model, state)
    for name, pooling in model.poolings.items():
        pooling.mapping.convert(state, f"poolings.{name}.mapping.")
    new = _named(model, _POOLING)
    if is_classifier:
        new = [item for item in new if ".mapping." in item[0]]
    _say_what_is_new(compat.fill_in(state, new))
    _take_heads(model, state, model.is_for_training or not is_classifier)
    return state


def _say_what_is_new(names: list[str]) -> None:
    if names:
        logger.warning(
            "the checkpoint has no value for %s, which start as in a new model", ", ".join(names)
        )


def _check_pooling(model: Any, state: dict[str, Any]) -> None:
    theirs = sorted({name.split(".")[1] for name in state if name.startswith("poolings.")})
    if theirs != sorted(model.poolings):
        raise ValueError(
            f"the checkpoint pools by {' and '.join(theirs)}, the model by "
            f"{' and '.join(sorted(model.poolings))}: --pair-attention has to be as in its training"
        )
    own = model.state_dict()
    queries = [name for name in state if name.startswith(_POOLING) and name.endswith(".query")]
    if any(own[name].shape != state[name].shape for name in queries):
        raise ValueError(
            "the checkpoint pools with another number of heads, or another width, than the "
            "model: give the --pooling-heads that it was trained with"
        )


def _take_encoder(model: Any, state: dict[str, Any]) -> None:
    """Make the state of some other model with an encoder that of one which does not yet pool."""
    for name in [name for name in state if not name.startswith("encoder.")]:
        del state[name]
    own, words = model.state_dict()[_WORDS], state.get(_WORDS)
    if words is not None and words.size(0) == own.size(0) - 1:
        # The task adds <mask> behind the words of the dictionary
        state[_WORDS] = torch.cat([words, own[-1:].to(words)])
    elif words is not None and words.size(0) != own.size(0):
        raise ValueError(
            f"the checkpoint's encoder knows {words.size(0)} words, the data {own.size(0)}: "
            f"binarise input0 and input1 with its dictionary, by fairseq-preprocess --srcdict"
        )
    logger.warning("the checkpoint is of a model that does not classify: its encoder is taken")


def _take_heads(model: Any, state: dict[str, Any], may_start: bool) -> None:
    """Let the heads of checkpoint and model be the same."""
    found = {
        name.split(".")[1]: value.size(0)
        for name, value in state.items()
        if name.startswith(HEADS) and name.endswith(".out_proj.weight")
    }
    wanted = {name: head.out_proj.out_features for name, head in model.classification_heads.items()}
    for name, classes in wanted.items():
        if not may_start and found.get(name) != classes:
            raise ValueError(
                f"the checkpoint has no classification head {name} of {classes} classes, but "
                f"{', '.join(f'{head} of {number}' for head, number in found.items())}: give "
                f"--classification-head-name and --num-classes as in its training, as only "
                f"training can start a head anew"
            )
    for name, classes in sorted(found.items()):
        if wanted.get(name) != classes:
            logger.warning(
                "the classification head %s of the checkpoint, of %d classes, is left out",
                *(name, classes),
            )
            for key in [key for key in state if key.startswith(f"{HEADS}{name}.")]:
                del state[key]
    _say_what_is_new(compat.fill_in(state, _named(model, HEADS)))


def _named(model: Any, prefixes: str | tuple[str, ...]) -> list[tuple[str, Any]]:
    return [item for item in model.named_parameters() if item[0].startswith(prefixes)]
