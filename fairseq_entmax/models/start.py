"""Where a training starts: its options as plain ones, and the heads of its first checkpoint."""

from __future__ import annotations

import logging
import os
from argparse import Namespace
from typing import Any

from omegaconf import OmegaConf, open_dict

from fairseq_entmax.checkpoints import UnsafeCheckpointError
from fairseq_entmax.models.config import HEADS_OPTIONS, option_name, refuse_unknown
from fairseq_entmax.models.saved import read_model

logger = logging.getLogger(__name__)


def namespace(cfg: Any) -> Namespace:
    """The ``model`` section of a configuration as options, with where training saves and starts.

    Raises:
        ValueError: a name looks like an option of this package, and is none.
    """
    refuse_unknown(cfg)
    names = ("save_dir", "no_save", "restore_file", "finetune_from_model")
    borrowed = [name for name in names if name not in cfg]
    with open_dict(cfg):
        for name in borrowed:
            cfg[name] = f"${{oc.select:checkpoint.{name},null}}"
        values = OmegaConf.to_container(cfg, resolve=True)
        for name in borrowed:
            del cfg[name]
    return Namespace(**values)


def heads_of_start(args: Any) -> dict[str, str]:
    """The heads of the pruned checkpoint from which training starts, as options.

    Nothing where options say how many heads there are, and where training starts from
    nothing, from a checkpoint that was not pruned, or from one that cannot be read (fairseq
    says so when it loads it).
    """
    path = _start_of(args)
    options = HEADS_OPTIONS.values()
    if path is None or any(getattr(args, option, None) is not None for option in options):
        return {}
    try:
        start = read_model(path)
    except (OSError, ValueError, UnsafeCheckpointError):
        return {}
    if not start.is_pruned:
        return {}
    heads = {
        HEADS_OPTIONS[attention]: ",".join(map(str, counts))
        for attention, counts in start.options.heads.items()
    }
    given = " ".join(f"{option_name(option)} {counts}" for option, counts in heads.items())
    logger.info("the heads of each layer are those of %s: %s", path, given)
    return heads


def _start_of(args: Any) -> str | None:
    """The checkpoint that fairseq will load first, if there is one: its own rules."""
    if getattr(args, "save_dir", None) is None:  # no training
        return None
    restore = getattr(args, "restore_file", None) or "checkpoint_last.pt"
    last = os.path.join(args.save_dir, restore)
    for path in (last, getattr(args, "finetune_from_model", None), restore):
        if path and os.path.isfile(path):
            return str(path)
    return None
