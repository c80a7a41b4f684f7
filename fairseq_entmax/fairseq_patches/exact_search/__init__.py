"""fairseq's search for models that give words probability zero, and whether it was exact.

A sparse output layer gives most words probability zero. fairseq's search keeps hypotheses with
such words in its beam, with a score of -inf, and fails when no other can end.
:func:`search_with_zeros` ends the search there instead, and says for each sentence whether the
beam held every sequence of non-zero probability.

Without it: fairseq's search fails for such models, or finds fewer sentences.
Remove when: fairseq's search leaves out candidates of probability zero.
"""

from collections.abc import Callable
from typing import Any

from fairseq.search import DiverseBeamSearch

from fairseq_entmax.fairseq_patches.exact_search.batch_search import BatchSearch, Hypotheses
from fairseq_entmax.fairseq_patches.exact_search.counts import SearchCounts, note


def search_with_zeros(
    generate: Callable[..., Hypotheses], generator: Any, *args: Any, **kwargs: Any
) -> Hypotheses:
    """``SequenceGenerator.generate`` for models that give words probability zero.

    A hypothesis that cannot go on leaves the beam. A sentence is done when its beam is empty, with
    fewer hypotheses than asked for if there are no more. Each hypothesis gets

    - ``exact_search``: whether the beam held every sequence of non-zero probability that the
      options allow; always false for ``--sampling``;
    - ``unfinished``: whether its end has probability zero. It was cut off where it could not go
      on, and its score is that of its words. A sentence has such a hypothesis if it has no other,
      or if a sample cannot go on;
    - ``impossible_prefix``: how many of the words that were forced at its beginning have
      probability zero. They add nothing to its score.

    fairseq's own search is used for models that give every word some probability: its own models,
    and those whose ``gives_zeros`` is false. The exceptions are diverse groups, which fail there in
    all but the first batch, and constraints with blocked repetitions, which may leave no hypothesis.
    """
    models = [*generator.model.models, generator.lm_model]
    has_zeros = any(model is not None and _may_give_zeros(model) for model in models)
    has_zeros |= generator.search.supports_constraints and bool(generator.repeat_ngram_blocker)
    if not has_zeros and not isinstance(generator.search, DiverseBeamSearch):
        sentences = generate(generator, *args, **kwargs)
        for hypotheses in sentences:
            for hypothesis in hypotheses:
                hypothesis.update(exact_search=False, unfinished=False, impossible_prefix=0)
        note(generator, SearchCounts(len(sentences)))
        return sentences
    search = BatchSearch(generator)
    sentences = search.finish(generate(search.generator, *args, **kwargs))
    note(generator, search.counts)
    return sentences


def _may_give_zeros(model: Any) -> bool:
    is_fairseqs = type(model).__module__.startswith("fairseq.")
    return bool(getattr(model, "gives_zeros", not is_fairseqs))


def align_with_zeros(
    generate: Callable[..., Hypotheses], generator: Any, *args: Any, **kwargs: Any
) -> Hypotheses:
    """``SequenceGeneratorWithAlignment.generate``: :func:`search_with_zeros`, and alignments."""

    def without_fillers(*args: Any, **kwargs: Any) -> Hypotheses:
        return [
            [hypothesis for hypothesis in hypotheses if "is_filler" not in hypothesis]
            for hypotheses in generate(*args, **kwargs)
        ]

    return search_with_zeros(without_fillers, generator, *args, **kwargs)


def fill_up(prepare: Callable[..., Any], generator: Any, sample: Any, sentences: Hypotheses) -> Any:
    """``_prepare_batch_for_alignment``, which needs as many hypotheses as the beam is wide."""
    for hypotheses in sentences:
        missing = generator.beam_size - len(hypotheses)
        hypotheses += [{**hypotheses[-1], "is_filler": True} for _ in range(missing)]
    return prepare(generator, sample, sentences)
