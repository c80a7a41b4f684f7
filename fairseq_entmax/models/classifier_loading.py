"""What a checkpoint has to become before a model that classifies can load it."""

from __future__ import annotations

import logging
from typing import Any

import torch
from torch import Tensor, nn

from fairseq_entmax import compat

logger = logging.getLogger(__name__)

HEADS = "classification_heads."
_POOLING = ("poolings.", "combine.")
_WORDS = "encoder.embed_tokens.weight"


def adapted(model: Any, state_dict: dict[str, Any]) -> dict[str, Any]:
    """The weights of a checkpoint as the model has them.

    Of a model that does not classify, such as one that translates, the encoder is taken, and
    what pools and classifies starts as in a new model. Classification heads of a checkpoint that
    the model does not have come along, unchanged by training; one of another size, or that the
    checkpoint lacks, starts anew where the model is going to be trained.

    Args:
        model: that will load them; gets the heads that it lacks. Its ``is_for_training`` says
            whether heads may start anew.
        state_dict: of the checkpoint; stays as it is.

    Raises:
        ValueError: the checkpoint pools in another way, or knows other words; or it has been
            trained, not for these classes, and the model is not going to be.
    """
    state = dict(state_dict)
    if any(name.startswith(_POOLING) for name in state):
        _check_pooling(model, state)
        if not model.is_for_training:
            _check_heads(model, state)
    else:
        _take_encoder(model, state)
    _take_heads(model, state)
    return state


def _check_pooling(model: nn.Module, state: dict[str, Any]) -> None:
    own = {name: v for name, v in model.state_dict().items() if name.startswith(_POOLING)}
    theirs = {name: v for name, v in state.items() if name.startswith(_POOLING)}
    if _poolings(own) != _poolings(theirs):
        raise ValueError(
            f"the checkpoint pools by {' and '.join(_poolings(theirs))}, the model by "
            f"{' and '.join(_poolings(own))}: --pair-attention has to be as in its training"
        )
    if any(own[name].shape != v.shape for name, v in theirs.items() if name.endswith(".query")):
        raise ValueError(
            "the checkpoint pools with another number of heads, or another width, than the "
            "model: give the --pooling-heads that it was trained with"
        )
    _convert_mappings(model, state)
    learned = [item for item in _named(model, _POOLING) if ".mapping." in item[0]]
    new = compat.fill_in(state, learned)
    if new:
        logger.warning(
            "the checkpoint has no value for %s, which start as in a new model", ", ".join(new)
        )


def _convert_mappings(model: Any, state: dict[str, Any]) -> None:
    """Store what mappings have learned as the model does, so that it can fill in what is missing."""
    for name, pooling in model.poolings.items():
        pooling.mapping.convert(state, f"poolings.{name}.mapping.")


def _poolings(names: Any) -> list[str]:
    return sorted({name.split(".")[1] for name in names if name.startswith("poolings.")})


def _take_encoder(model: nn.Module, state: dict[str, Any]) -> None:
    """Make the state of some other model with an encoder that of one which does not yet pool."""
    for name in [name for name in state if not name.startswith("encoder.")]:
        del state[name]
    own = model.state_dict()
    words = state.get(_WORDS)
    if words is not None and words.size(0) == own[_WORDS].size(0) - 1:
        # The task adds <mask> behind the words of the dictionary
        new: Tensor = own[_WORDS][-1:].to(words)
        state[_WORDS] = torch.cat([words, new])
    elif words is not None and words.size(0) != own[_WORDS].size(0):
        raise ValueError(
            f"the checkpoint's encoder knows {words.size(0)} words, the data {own[_WORDS].size(0)}: "
            f"binarise input0 and input1 with its dictionary, by fairseq-preprocess --srcdict"
        )
    _convert_mappings(model, state)
    compat.fill_in(state, _named(model, _POOLING))
    logger.warning(
        "the checkpoint is of a model that does not classify: its encoder is taken, what pools and "
        "classifies starts as in a new model"
    )


def _check_heads(model: Any, state: dict[str, Any]) -> None:
    """Refuse classification heads that nobody has trained, where nobody is going to."""
    found = {
        name.split(".")[1]: value.size(0)
        for name, value in state.items()
        if name.startswith(HEADS) and name.endswith(".out_proj.weight")
    }
    for name, head in model.classification_heads.items():
        if name not in found:
            raise ValueError(
                f"the checkpoint has no classification head {name}, but "
                f"{', '.join(sorted(found)) or 'none'}: give --classification-head-name as in its "
                f"training"
            )
        classes = head.out_proj.out_features
        if found[name] != classes:
            raise ValueError(
                f"the checkpoint tells {found[name]} classes apart, by its classification head "
                f"{name}, and the model is to tell {classes}: leave --num-classes out, and let the "
                f"models of an ensemble have the same number, as only training can start a head anew"
            )


def _take_heads(model: Any, state: dict[str, Any]) -> None:
    """Let the heads of checkpoint and model be the same."""
    own = model.state_dict()
    names = {name.split(".")[1] for name in state if name.startswith(HEADS)}
    for name in sorted(names):
        weight = state[f"{HEADS}{name}.out_proj.weight"]
        if name not in model.classification_heads:
            logger.info("the classification head %s of the checkpoint is kept as it is", name)
            model.register_classification_head(name, weight.size(0))
            # Of no use in this training, and workers wait for every gradient
            model.classification_heads[name].to(own[_WORDS]).requires_grad_(False)
        elif own[f"{HEADS}{name}.out_proj.weight"].shape != weight.shape:
            logger.warning(
                "the classification head %s of the checkpoint has %d classes, the model's %d: it "
                "starts as in a new model",
                name,
                weight.size(0),
                own[f"{HEADS}{name}.out_proj.weight"].size(0),
            )
            for key in [key for key in state if key.startswith(f"{HEADS}{name}.")]:
                del state[key]
    new = compat.fill_in(state, _named(model, HEADS))
    if new:
        logger.info("the checkpoint has no %s, which start as in a new model", ", ".join(new))


def _named(model: nn.Module, prefixes: str | tuple[str, ...]) -> list[tuple[str, Any]]:
    return [item for item in model.named_parameters() if item[0].startswith(prefixes)]
