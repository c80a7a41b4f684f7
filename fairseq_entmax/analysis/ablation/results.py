"""The results of an ablation: changes of scores with significance tests, as JSON and as tables.

``ablation.json`` lists all removals, the most harmful first, with the change in each score::

    {"heads": ["encoder-self:0.1"],
     "loss": {"value": 2.5, "change": 0.09, "p": 0.001, "p_holm": 0.024},
     "bleu": {"value": 29.8, "change": -0.4, "p": 0.02, "p_holm": 0.4}}

``loss`` is in nats per target token over the whole data set, or per text for a classifier. For a
model with a sparse output it is the Fenchel-Young loss; ``loss_unit`` says which. Its p is from a
two-sided paired t-test over sentences, on their mean loss per token. ``bleu`` is in percent; its p
is from sacreBLEU's two-sided approximate randomization. ``rouge1``, ``rouge2`` and ``rougeL`` are
the mean F1 of the documents in percent, or recall with ``--rouge-bytes``; p is from a paired t-test
over documents, as in Baan et al. 2019. ``p_holm`` is p corrected for all removals in the file by
Holm's method.
"""

from __future__ import annotations

import os
from collections.abc import Mapping as Dictionary
from collections.abc import Sequence
from typing import Any
from unittest import mock

from fairseq_entmax.analysis.ablation.removal import Names, Scorer, SentenceScores, text_of
from fairseq_entmax.analysis.arguments import BLEU, LOSS
from fairseq_entmax.paired_tests import holm, paired_t_test
from fairseq_entmax.progress import message_if_long
from fairseq_entmax.summaries.oov import MARKER
from fairseq_entmax.summaries.rouge import NAMES, ROUGE_1, TYPES, Rouge, score_documents
from fairseq_entmax.text_table import text_table

FORMAT, VERSION = "fairseq-entmax-ablation", 1
# The usual level of significance
LEVEL = 0.05
_FIELDS = ("value", "change", "p", "p_holm")
NATS, NATS_OF_TEXT, ENTMAX = "nats a token", "nats a text", "entmax loss a token"
_HEADINGS = {LOSS: "loss", BLEU: "BLEU", **NAMES}
_DIGITS = {LOSS: 4, BLEU: 2, **dict.fromkeys(TYPES, 2)}
# Removals are sorted by the first of these that was scored; 1 if a higher score is worse
_HARM = {LOSS: 1, BLEU: -1, ROUGE_1: -1}


def compare(
    finished: Dictionary[Names, SentenceScores],
    scorer: Scorer,
    metric: Any,
    trials: int,
    seed: int,
    rouge: Rouge | None = None,
) -> dict[str, Any]:
    """Compare every removal with the unchanged model and test the differences."""
    names = sorted(name for name in finished if name)
    systems = [finished[name] for name in [(), *names]]
    unchanged: dict[str, float | None] = dict.fromkeys((LOSS, BLEU, *(TYPES if rouge else ())))
    removals: list[dict[str, Any]] = [{"heads": list(name), **unchanged} for name in names]
    # The scores of all systems, and p of each compared with the first, the unchanged model
    scores: dict[str, tuple[list[float], list[float]]] = {}
    tests: dict[str, Any] = {}
    if finished[()].nll is not None:
        scores[LOSS] = _losses([system.nll or [] for system in systems], scorer.target_tokens)
    texts = [system.translations or [] for system in systems]
    if metric is not None:
        values, p_values, signature = bleu_test(texts, scorer.references, metric, trials, seed)
        scores[BLEU] = values, p_values
        tests = {"trials": trials, "seed": seed, "bleu_signature": signature}
    if rouge is not None:
        scores |= _rouge(rouge, texts, scorer.references)
        how = rouge.options
        tests["rouge"] = {"stem": how.stem, "bytes": how.max_bytes, "sentences": how.sentences}
        tests["rouge"]["statistic"] = how.statistic
    for score, ((first, *others), p_values) in scores.items():
        unchanged[score] = first
        tested = zip(removals, others, p_values, holm(p_values), strict=True)
        for removal, value, p, corrected in tested:
            removal[score] = dict(zip(_FIELDS, (value, value - first, p, corrected), strict=True))
    score, sign = next(harm for harm in _HARM.items() if harm[0] in scores)
    removals.sort(key=lambda removal: sign * removal[score]["change"], reverse=True)
    return {"significance": tests, "unchanged": unchanged, "removals": removals}


def _losses(nll: list[list[float]], tokens: list[int]) -> tuple[list[float], list[float]]:
    """The loss per token of each system, and p of all but the first."""
    first, *others = ([loss / n for loss, n in zip(row, tokens, strict=True) if n] for row in nll)
    p_values = [paired_t_test(first, other) for other in others]
    return [sum(row) / sum(tokens) for row in nll], p_values


def _rouge(
    rouge: Rouge, texts: list[list[str]], references: list[str]
) -> dict[str, tuple[list[float], list[float]]]:
    """ROUGE of each system, and p of all but the first."""
    statistic = rouge.options.statistic
    single_words = [_markers_as_words(text) for text in references]
    systems = [
        score_documents(rouge, [_markers_as_words(text) for text in system], [single_words])
        for system in texts
    ]
    results = {}
    for kind in TYPES:
        first, *others = (
            [getattr(document[kind], statistic) for document in system] for system in systems
        )
        p_values = [paired_t_test(first, other) for other in others]
        results[kind] = [sum(row) / len(row) for row in (first, *others)], p_values
    return results


def _markers_as_words(text: str) -> str:
    """Rewrite markers such as ``<unk-0>``, which ROUGE would split into the words unk and 0."""
    return MARKER.sub(r"unkmarker\1", text)


def as_table(document: Dictionary[str, Any]) -> str:
    """Format the content of ``ablation.json`` as a text table."""
    unchanged = document["unchanged"]
    scores = [score for score in _HEADINGS if unchanged.get(score) is not None]
    titles = {**_HEADINGS, LOSS: f"loss ({document.get('loss_unit', NATS)})"}
    rows = [["removed"], ["nothing"]]
    for score in scores:
        rows[0] += [titles[score], "change", "p", "p (Holm)"]
        rows[1] += [f"{unchanged[score]:.{_DIGITS[score]}f}", "", "", ""]
    for removal in document["removals"]:
        cells = [text_of(removal["heads"])]
        for score in scores:
            entry, digits = removal[score], _DIGITS[score]
            cells += [f"{entry['value']:.{digits}f}", f"{entry['change']:+.{digits}f}"]
            cells += [_p_text(entry["p"]), _p_text(entry["p_holm"])]
        rows.append(cells)
    removals, trials = len(document["removals"]), document["significance"].get("trials")
    table = text_table(rows)
    if trials is None or removals / (trials + 1) < LEVEL:
        return table
    return (
        f"{table}\np (Holm) of BLEU is never below {removals / (trials + 1):.3f} with "
        f"{removals} removals and {trials} trials: --trials "
        f"{round(removals / LEVEL)} can bring it below {LEVEL} without scoring anything again"
    )


def _p_text(p: float) -> str:
    return "<0.001" if p < 0.001 else f"{p:.3f}"


def bleu_metric(tokenize: str | None, language: str) -> Any:
    """Return sacreBLEU's BLEU with a tokenizer; None is its default for the language."""
    from sacrebleu.metrics import BLEU

    allowed = sorted(name for name in BLEU.TOKENIZERS if name)
    if tokenize is not None and tokenize not in allowed:
        raise ValueError(f"--sacrebleu-tokenize got {tokenize!r}: give one of {', '.join(allowed)}")
    try:
        # With 'none', tokenized text is intended; ``force`` stops sacreBLEU's warning about it
        return BLEU(tokenize=tokenize, trg_lang=language, force=tokenize == "none")
    except (RuntimeError, ImportError) as error:
        reason = " ".join(str(error).split())
        raise ValueError(
            f"sacreBLEU's tokenizer {tokenize or f'for {language}'} cannot be used: install what "
            f"it needs, or choose another with --sacrebleu-tokenize ({reason})"
        ) from error


def bleu_test(
    systems: Sequence[Sequence[str]],
    references: Sequence[str],
    metric: Any,
    trials: int,
    seed: int,
) -> tuple[list[float], list[float], str]:
    """Return each system's BLEU in percent, p of all but the first, and sacreBLEU's signature.

    Source: Riezler and Maxwell 2005, *On Some Pitfalls in Automatic Evaluation and Significance
    Testing for MT*."""
    from sacrebleu.significance import PairedTest

    named: list[Any] = [(str(number), system) for number, system in enumerate(systems)]
    # sacreBLEU reads its seed only from the environment
    with mock.patch.dict(os.environ, SACREBLEU_SEED=str(seed)):
        test = PairedTest(
            named, {"BLEU": metric}, [list(references)], test_type="ar", n_samples=trials
        )
    with message_if_long(f"computing BLEU of {len(systems)} systems in {trials} trials"):
        signatures, results = test()
    tests: list[Any] = list(results["BLEU"])
    scores = [float(result.score) for result in tests]
    p_values = [1.0 if r.score == scores[0] else float(r.p_value) for r in tests[1:]]
    return scores, p_values, str(signatures["BLEU"])
