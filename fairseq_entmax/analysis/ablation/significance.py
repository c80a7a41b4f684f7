"""Whether a model differs from another on the same sentences by more than chance."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from fairseq_entmax.paired_tests import check_lengths
from fairseq_entmax.progress import said_if_long


@dataclass(frozen=True)
class BleuComparison:
    """BLEU of systems in percent, p of those after the first, and sacreBLEU's signature."""

    scores: list[float]
    p_values: list[float]
    signature: str


def bleu_metric(tokenize: str | None, language: str) -> Any:
    """sacreBLEU's BLEU."""
    from sacrebleu.metrics import BLEU

    allowed = sorted(name for name in BLEU.TOKENIZERS if name)
    if tokenize is not None and tokenize not in allowed:
        raise ValueError(f"--sacrebleu-tokenize got {tokenize!r}: it can be {', '.join(allowed)}")
    try:
        # Words that stay cut are what 'none' is for; else sacreBLEU warns of them
        return BLEU(tokenize=tokenize, trg_lang=language, force=tokenize == "none")
    except (RuntimeError, ImportError) as error:
        reason = " ".join(str(error).split())
        raise ValueError(
            f"sacreBLEU's tokenizer {tokenize or 'for ' + language!r} cannot be used: install what "
            f"it needs, or choose another with --sacrebleu-tokenize ({reason})"
        ) from error


def paired_bootstrap(
    systems: Sequence[Sequence[str]],
    references: Sequence[str],
    metric: Any,
    samples: int,
    seed: int,
) -> BleuComparison:
    """sacreBLEU's paired bootstrap: how often so large a difference in BLEU is chance.

    Source: Koehn 2004, *Statistical Significance Tests for Machine Translation Evaluation*.
    """
    from sacrebleu.significance import PairedTest

    check_lengths(len(references), [len(system) for system in systems])
    named: list[Any] = [(str(number), system) for number, system in enumerate(systems)]
    with _sacrebleu_seed(seed):
        test = PairedTest(
            named, {"BLEU": metric}, [list(references)], test_type="bs", n_samples=samples
        )
    with said_if_long(f"BLEU of {len(systems)} systems in {samples} resamples is computed"):
        signatures, results = test()
    tests: list[Any] = list(results["BLEU"])
    scores = [float(result.score) for result in tests]
    p_values = [1.0 if r.score == scores[0] else float(r.p_value) for r in tests[1:]]
    return BleuComparison(scores, p_values, str(signatures["BLEU"]))


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's correction of p-values of tests that were made together.

    Source: Holm 1979, *A Simple Sequentially Rejective Multiple Test Procedure*."""
    corrected = [0.0] * len(p_values)
    largest = 0.0
    for rank, place in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[place]))
        corrected[place] = largest
    return corrected


@contextmanager
def _sacrebleu_seed(seed: int) -> Iterator[None]:
    """sacreBLEU takes its seed from the environment alone."""
    name = "SACREBLEU_SEED"
    before = os.environ.get(name)
    os.environ[name] = str(seed)
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before
