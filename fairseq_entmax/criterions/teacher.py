"""Learning from a teacher: what any criterion asks for, and the probabilities of a trained model.

Source: Kim, Rush 2016, *Sequence-Level Knowledge Distillation*, section 3.1 (word-level).
"""

from __future__ import annotations

import functools
import math
import os
from collections.abc import Callable
from typing import Any

import torch
from fairseq import checkpoint_utils, utils
from fairseq.logging import metrics
from torch import Tensor

from fairseq_entmax.attention.copying import mixture_log_probs
from fairseq_entmax.mappings.functional import entmax
from fairseq_entmax.mappings.losses import fenchel_young_loss


class Teacher:
    """A trained model, whose probabilities another one learns for each target in training.

    For a weight w the loss is (1 - w) times the criterion's, and w times the divergence of the
    student's probabilities p from the teacher's q: Kullback and Leibler's of q from p, or where the
    student's output is sparse the Fenchel-Young loss of its alpha, for which words may have no
    probability. A penalty on heads stays whole, and so do validation and what the criterion logs.

    Args:
        path: its checkpoint. It is evaluated, learns nothing and is in no checkpoint.
        task: fairseq's, which has its dictionaries.
        weight: w, above 0 and up to 1.

    Raises:
        OSError, ValueError: there is no such checkpoint, or it is of another task.
    """

    def __init__(self, path: str, task: Any, weight: float) -> None:
        if not os.path.isfile(path):
            raise FileNotFoundError(f"--teacher: there is no checkpoint {path}")
        # The training draws what it would without a teacher
        with torch.random.fork_rng(devices=[]):
            try:
                (self.model,), _ = checkpoint_utils.load_model_ensemble([path], task=task)
            except RuntimeError as error:
                raise ValueError(f"--teacher {path} does not fit the task: {error}") from error
        self.model.eval().requires_grad_(False)
        self.path, self.weight = path, weight

    def check(self, student: Any) -> None:
        """Refuse models without one score for each word, and pairs of which one alone copies."""
        decoders = [getattr(model, "decoder", None) for model in (student, self.model)]
        if any(getattr(decoder, "adaptive_softmax", None) is not None for decoder in decoders):
            raise ValueError(
                f"--teacher {self.path}: --adaptive-softmax-cutoff, of the model or the teacher, has "
                f"no one score for each word: leave one of the two options out"
            )
        if len({hasattr(decoder, "give_copy_scores") for decoder in decoders}) > 1:
            raise ValueError(
                f"--teacher {self.path}: a model that copies learns from one that copies, and others "
                f"from others: give a teacher of the same --arch"
            )

    def teach(self, criterion: Any) -> None:
        """Let a criterion ask for the teacher's probabilities too; of one with a penalty, its stock."""
        criterion = getattr(criterion, "stock_criterion", criterion)
        # Not of its class, by which fairseq knows its metrics
        vars(criterion)["forward"] = functools.partial(self._loss, criterion.forward, criterion)

    def _loss(
        self,
        forward: Callable[..., Any],
        criterion: Any,
        model: Any,
        sample: Any,
        reduce: bool = True,
    ) -> tuple[Tensor, Any, dict[str, Any]]:
        """``forward`` of a criterion."""
        if not model.training:
            return forward(model, sample, reduce=reduce)
        calls: list[Any] = []
        hook = model.register_forward_hook(lambda _, *call: calls.append(call), with_kwargs=True)
        try:
            loss, size, logged = forward(model, sample, reduce=reduce)
        finally:
            hook.remove()
        args, options, output = calls[-1]
        each = self.divergence(model, output, args, options)
        target = sample["target"]
        if each.dim() == 2 and target.shape == each.shape:
            is_real = target.ne(criterion.padding_idx)
            is_real[:, : getattr(criterion, "ignore_prefix_size", 0)] = False
            each = each * is_real
        taught = each.sum()
        shown = utils.item(taught.detach()) / size / math.log(2)
        metrics.log_scalar("teacher_loss", shown, size, round=3)
        taught = taught if reduce else taught / loss.numel()
        return (1 - self.weight) * loss + self.weight * taught, size, logged

    def divergence(self, student: Any, output: Any, args: Any, options: Any) -> Tensor:
        """For each target, how far a student's output is from what the teacher says to the same."""
        parameter = next(student.parameters())
        own = next(self.model.parameters())
        if (own.device, own.dtype) != (parameter.device, parameter.dtype):
            self.model.to(parameter.device, parameter.dtype)
        with torch.no_grad():
            wanted = _scores(self.model, self.model(*args, **options), options)
            probs = entmax(wanted, getattr(self.model, "output_alpha", 1.0))
        scores, alpha = _scores(student, output, options), getattr(student, "output_alpha", 1.0)
        # Words that a student cannot say, such as those that it does not copy
        probs = probs.masked_fill(scores == -torch.inf, 0.0)
        return fenchel_young_loss(scores, entmax(scores.detach(), alpha), probs, alpha)


def _scores(model: Any, output: Any, options: Any) -> Tensor:
    """Of each word or class, from a model's output; logarithms of probabilities where it copies."""
    if options.get("mixed", True):
        scores: Tensor = output[0]
        return scores if scores.dtype == torch.float64 else scores.float()
    return mixture_log_probs(output[0], output[1]["copy"], model.decoder.num_words)
