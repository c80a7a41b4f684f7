"""Ends commands with one sentence on an error of options, kernels or checkpoints.

Without it: the error is the last line of a traceback, through the first batch if it is a kernel's.
Remove when: fairseq's commands print a ``ValueError`` without its traceback.
"""

import logging
import sys
from collections.abc import Callable
from typing import Any

from torch.multiprocessing import ProcessExitedException

from fairseq_entmax import command_errors, kernels
from fairseq_entmax.fairseq_patches import literals


def check_options(parse: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """``parse_args_and_arch``, but an error in the options ends a command with one sentence."""
    if not command_errors.running_command() or kwargs.get("suppress_defaults"):
        return parse(*args, **kwargs)
    with command_errors.stopping_command():
        try:
            return parse(*args, **kwargs)
        except RuntimeError as error:
            if str(error):
                raise
            # fairseq's own, which has no message
            raise ValueError("give --arch, such as --arch entmax_transformer") from error
        except KeyError as error:
            if error.args != (None,):
                raise
            # From the registry of tasks: the command has no default task, and none was given
            remedy = "give the --task of the training, such as --task translation"
            raise ValueError(remedy) from error


def end_processes(run: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """``call_main``, but it exits as its processes do if :func:`command_errors.stop_command` ends them.

    Without it, a traceback of torch's follows their one sentence.
    """
    # This logger warns that it ends the other processes
    logging.getLogger("torch.multiprocessing.spawn").setLevel(logging.ERROR)
    try:
        return stop_without_kernel(run, *args, **kwargs)
    except ProcessExitedException as error:
        if error.exit_code != command_errors.STOPPED:
            raise
        sys.exit(command_errors.STOPPED)


def stop_without_kernel(run: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """A function of fairseq's, but an unavailable kernel ends a command with one sentence."""
    try:
        return run(*args, **kwargs)
    except kernels.ERRORS as error:
        command_errors.stop_command(error)
        raise


def refuse_checkpoint(load: Callable[..., Any], path: str, *args: Any, **kwargs: Any) -> Any:
    """``load_checkpoint_to_cpu``, but a refusal ends a command with one sentence."""
    literals.restrict_eval()  # also in modules imported since, in whatever way
    with command_errors.stopping_command():
        return load(path, *args, **kwargs)
