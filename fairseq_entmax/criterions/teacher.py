"""Knowledge distillation: learning from the targets and from a trained model's probabilities.

Source: Kim, Rush 2016, *Sequence-Level Knowledge Distillation*, section 3.1 (word-level).
"""

from __future__ import annotations

import copy
import functools
import math
import os
from collections.abc import Callable
from typing import Any
from unittest import mock

import torch
from fairseq import checkpoint_utils, utils
from fairseq.logging import metrics
from torch import Tensor
from torch.nn import functional

from fairseq_entmax import command_errors
from fairseq_entmax.attention.copying import mixture_log_probs
from fairseq_entmax.mappings.functional import entmax, in_full_precision
from fairseq_entmax.mappings.losses import fenchel_young_loss


class Teacher:
    """A trained model whose probabilities another one, the student, learns for each target.

    For a weight w from 0 to 1, the loss is (1 - w) times the criterion's plus w times the
    Kullback-Leibler divergence of the teacher's probabilities from the student's, or, if the
    student's output is sparse, the Fenchel-Young loss of its alpha. A penalty on heads is unscaled;
    validation and the criterion's logs do not change. No checkpoint contains the teacher.

    Raises:
        ValueError: there is no such checkpoint, its dictionaries or classes differ in number
            from the task's, or it is in ``save_dir``.
    """

    def __init__(self, path: str, task: Any, weight: float, save_dir: str = "") -> None:
        if save_dir and os.path.realpath(os.path.dirname(path)) == os.path.realpath(save_dir):
            raise ValueError(
                f"--teacher {path} is in the folder of --save-dir, where checkpoints of this training "
                f"may replace it: give another --save-dir"
            )
        # So that training draws the same random numbers as without a teacher
        with torch.random.fork_rng(devices=[]):
            try:
                # A copy, as a task that builds a model may replace its sequence generator
                teacher_task = copy.copy(task)
                # Errors do not end the command here, as they need the teacher's name
                with mock.patch.object(command_errors, "stop_command"):
                    (self.model,), _ = checkpoint_utils.load_model_ensemble(
                        [path], task=teacher_task
                    )
                self._check_head(path)
            except (OSError, RuntimeError, ValueError, LookupError, AssertionError) as error:
                reason = " ".join(str(error).split())
                raise ValueError(f"--teacher {path} cannot be loaded: {reason}") from error
        self.model.eval().requires_grad_(False)
        # Its heads are not monitored: its record stays as it is, and the log shows the student's
        self.model.monitor = None
        self.path, self.weight = path, weight

    def _check_head(self, path: str) -> None:
        """Refuse a checkpoint without the task's classification head: fairseq makes a random one."""
        shapes = {name: one.shape for name, one in self.model.state_dict().items()}
        heads = {one for one in shapes.items() if one[0].startswith("classification_heads.")}
        if heads:
            trained = checkpoint_utils.load_checkpoint_to_cpu(path)["model"]
            if not heads <= {(name, one.shape) for name, one in trained.items()}:
                raise ValueError(
                    "it has no classification head of this task: train it on this task"
                )

    def teach(self, student: Any, criterion: Any) -> None:
        """Add the teacher to a student's criterion; with a penalty, to its stock criterion."""
        decoders = {one: getattr(one, "decoder", None) for one in (student, self.model)}
        kinds = {
            (hasattr(one, "encoder"), decoder is None, hasattr(decoder, "give_copy_scores"))
            for one, decoder in decoders.items()
        }
        adaptive = [getattr(one, "adaptive_softmax", None) for one in decoders.values()]
        if len(kinds) > 1 or any(one is not None for one in adaptive):
            raise ValueError(
                f"--teacher {self.path}: both models or neither must copy words, have an encoder, and "
                f"have a decoder, and neither may have --adaptive-softmax-cutoff: give another "
                f"teacher, or leave it out"
            )
        criterion = getattr(criterion, "stock_criterion", criterion)
        if getattr(criterion, "regression_target", False):
            raise ValueError(
                f"--teacher {self.path}: a regression predicts no probabilities to learn: leave it out"
            )
        # The class stays the same, as fairseq aggregates the logs by it
        vars(criterion)["forward"] = functools.partial(self._loss, criterion.forward, criterion)

    def _loss(
        self,
        forward: Callable[..., Any],
        criterion: Any,
        model: Any,
        sample: Any,
        reduce: bool = True,
    ) -> tuple[Tensor, Any, dict[str, Any]]:
        """The criterion's ``forward``, with the teacher's loss in training."""
        calls: list[Any] = []
        with model.register_forward_hook(lambda _, *call: calls.append(call), with_kwargs=True):
            loss, size, logged = forward(model, sample, reduce=reduce)
        if not model.training:
            return loss, size, logged
        inputs, options, output = calls[-1]
        if getattr(criterion, "copy_loss_alone", False):
            copied = output[1]["copy"]
            output[1]["copy"] = copied._replace(weights=copied.weights.detach())
        each = self.divergence(model, inputs, options, output)
        if each.dim() == 2 and sample["target"].dim() == 2:
            is_real = sample["target"].ne(criterion.padding_idx)
            is_real[:, : getattr(criterion, "ignore_prefix_size", 0)] = False
            # A criterion may run the batch twice in one call, as fairseq's with R-Drop does
            each = each.view(-1, *is_real.shape) * is_real
        taught = each.sum()
        shown = utils.item(taught.detach()) / size / math.log(2)
        metrics.log_scalar("teacher_loss", shown, size, round=3)
        return (1 - self.weight) * loss + self.weight * taught, size, logged

    def divergence(self, student: Any, inputs: Any, options: Any, output: Any) -> Tensor:
        """For each target, the divergence between the teacher's and the student's output."""
        parameter = next(student.parameters())
        self.model.to(parameter.device, parameter.dtype)
        with torch.no_grad():
            wanted = _scores(self.model, self.model(*inputs, **options), options)
            probs = entmax(wanted, getattr(self.model, "output_alpha", 1.0))
        scores, alpha = _scores(student, output, options), getattr(student, "output_alpha", 1.0)
        # Words that the student cannot produce, such as those that it does not copy
        never = scores == -torch.inf
        probs = probs.masked_fill(never, 0.0)
        if alpha == 1:  # the same loss at less cost
            log_probs = scores.log_softmax(-1).masked_fill(never, 0.0)
            return functional.kl_div(log_probs, probs, reduction="none").sum(-1)
        return fenchel_young_loss(scores, entmax(scores.detach(), alpha), probs, alpha)


def _scores(model: Any, output: Any, options: Any) -> Tensor:
    """The scores of words or classes in a model's output; log probabilities if it copies."""
    if not options.get("mixed", True):
        return mixture_log_probs(output[0], output[1]["copy"], model.decoder.num_words)
    return in_full_precision(output[0])
