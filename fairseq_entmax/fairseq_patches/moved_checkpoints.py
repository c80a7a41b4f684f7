"""Removes from loaded checkpoints the name of the folder that their training wrote to.

Without it: a model that was moved out of that folder, or teaches a training that now writes there,
gets the heads of the checkpoint that the folder has now, and its own weights do not fit.
Remove when: fairseq tells a model whether it is built for training or from a checkpoint.
"""

from argparse import Namespace
from collections.abc import Callable
from typing import Any


def forget_folder(load: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """``load_checkpoint_to_cpu``, but the model's settings have no ``save_dir``."""
    state = load(*args, **kwargs)
    for settings in (state.get("args"), (state.get("cfg") or {}).get("model")):
        if isinstance(settings, Namespace):
            vars(settings).pop("save_dir", None)
    return state
