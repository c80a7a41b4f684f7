"""``fairseq-eval-lm`` for models that give words probability exactly zero.

Without it: the perplexity leaves out words of probability zero, each sample logs a traceback, and
``--output-word-probs`` is out of step.
Remove when: ``fairseq-eval-lm`` counts them.
"""

import logging
import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

logger = logging.getLogger(__name__)


def evaluate_with_zeros(eval_lm: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """fairseq's ``eval_lm``, but the loss is infinite if a word has probability zero.

    Logs the number of these tokens and the others' perplexity; lists of words show NaN for them."""
    namespace: dict[str, Any] = eval_lm.__globals__
    scores: list[Tensor] = []
    first = int(kwargs.get("remove_bos_token", False))
    make = namespace["SequenceScorer"]

    def scorer_that_notes(*args: Any, **kwargs: Any) -> Any:
        scorer = make(*args, **kwargs)
        generate = scorer.generate

        def generate_and_note(*args: Any, **kwargs: Any) -> Any:
            hypotheses = generate(*args, **kwargs)
            for hypothesis, *_ in hypotheses:
                log_probs = hypothesis["positional_scores"]
                scores.append(log_probs[first:].double().cpu())
                # NaN passes through fairseq's sums; for -inf it logs a message, which fails
                hypothesis["positional_scores"] = log_probs.masked_fill(
                    log_probs == -math.inf, math.nan
                )
            return hypotheses

        scorer.generate = generate_and_note
        return scorer

    namespace["SequenceScorer"] = scorer_that_notes
    try:
        results = eval_lm(*args, **kwargs)
    finally:
        namespace["SequenceScorer"] = make
    logs = torch.cat(scores) if scores else torch.zeros(0)
    possible = logs[logs > -math.inf]
    impossible = int((logs == -math.inf).sum())
    if not impossible:
        return results
    logger.warning(
        f"{impossible:,} of {len(logs):,} tokens ({100 * impossible / len(logs):.1f} %) have "
        f"probability 0, so the perplexity is infinite; that of the others is "
        f"{math.exp(-float(possible.mean())):.2f}"
    )
    return {**results, "loss": math.inf, "perplexity": math.inf}
