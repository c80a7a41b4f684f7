"""What fairseq's search strategies need where words have probability exactly zero.

Each acts on sentences alone in which the model has given some word probability zero.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

import torch
from torch import Tensor

from fairseq_entmax.exact_search.exactness import IMPOSSIBLE


def cut_at_source_length(
    search: Any, step: int, lprobs: Tensor, has_zeros: Tensor, eos: int
) -> None:
    """Let ``--match-source-len`` make no hypothesis longer than its source, in place.

    fairseq makes them, in the places of others, and gives them a score of -inf.
    """
    longest = search.max_len_a * search.src_lengths + search.max_len_b
    at_end = (step >= longest) & has_zeros
    lprobs[at_end, :, :eos] = IMPOSSIBLE
    lprobs[at_end, :, eos + 1 :] = IMPOSSIBLE


def name_dead_candidates(
    choose: Callable[..., tuple[Tensor, Tensor, Tensor]],
    has_zeros: Callable[[], Tensor],
    pad: int,
    *args: Any,
    **kwargs: Any,
) -> tuple[Tensor, Tensor, Tensor]:
    """The step of one group of a diverse search, whose impossible candidates are padding.

    Without it the next group is kept from words that no hypothesis of this one has.
    """
    scores, words, beams = choose(*args, **kwargs)
    words[(scores == IMPOSSIBLE) & has_zeros()[:, None]] = pad
    return scores, words, beams


def forget_dead_overlap(search: Any, places: Tensor, scores: Tensor, has_zeros: Tensor) -> None:
    """Take out of a diverse search that two groups have an impossible candidate in common.

    Args:
        search: fairseq's.
        places: of the sentences in its state, ``(sentences,)``.
        scores: of the candidates, ``(sentences, candidates)``, group after group in turn.
        has_zeros: which sentences to act on, ``(sentences,)``.
    """
    dead = (scores == IMPOSSIBLE).view(len(scores), -1, search.num_groups)
    both = (dead[:, :, :, None] & dead[:, :, None]).sum(dim=1) * has_zeros[:, None, None]
    search.group_overlap[places] -= search.diversity_discount * both


class _Possible:
    """A state of fairseq's constraints that offers possible words alone."""

    def __init__(self, state: Any, lprobs: Tensor) -> None:
        self._state, self._lprobs = state, lprobs
        self.tokens = state.tokens

    def next_tokens(self) -> Collection[int]:
        words = self._state.next_tokens()
        return {word for word in words if self._lprobs[word] > IMPOSSIBLE}

    def advance(self, word: Any) -> Any:
        return self._state.advance(word)


def choose_among_possible(
    choose: Callable[..., Any],
    search: Any,
    has_zeros: Callable[[], Tensor],
    step: int,
    sentence: int,
    lprobs: Tensor,
    states: list[Any],
    beams: Tensor,
    words: Tensor,
    scores: Tensor,
) -> tuple[Tensor, Tensor, Tensor, list[Any]]:
    """``step_sentence`` of the search with lexical constraints, for possible candidates alone.

    fairseq sorts candidates by the number of constraints that they have met, and impossible ones
    would take the places of others. Arguments are fairseq's.
    """
    if not has_zeros()[sentence]:
        return choose(step, sentence, lprobs, states, beams, words, scores)
    wanted = 2 * len(states)
    rows = [lprobs[min(beam, len(lprobs) - 1)] for beam in range(len(states))]
    possible = [_Possible(state, row) for state, row in zip(states, rows, strict=True)]
    live = scores > IMPOSSIBLE
    # One impossible candidate, which comes last: without it fairseq takes a candidate that is
    # alone for a duplicate
    last = (beams.new_zeros(1), words.new_full((1,), search.pad), scores.new_full((1,), IMPOSSIBLE))
    given = [
        torch.cat((all[live], one)) for all, one in zip((beams, words, scores), last, strict=True)
    ]
    num_cands, search.num_cands = search.num_cands, wanted + 1
    try:
        scores, words, beams, chosen = choose(step, sentence, lprobs, possible, *given)
    finally:
        search.num_cands = num_cands
    kept = (scores > IMPOSSIBLE).nonzero().flatten().tolist()[:wanted]
    missing = wanted - len(kept)
    beams, words, scores = (
        torch.cat((value[kept], one.expand(missing)))
        for value, one in zip((beams, words, scores), last, strict=True)
    )
    return scores, words, beams, [chosen[place] for place in kept] + [states[0]] * missing
