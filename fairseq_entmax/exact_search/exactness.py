"""Whether a search has discarded anything of non-zero probability."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

IMPOSSIBLE = -torch.inf


@dataclass
class Step:
    """One step of the sentences that are still searched.

    Attributes:
        places: where the sentences are in the batch, ``(sentences,)``.
        live: which hypotheses can go on, ``(sentences, beam)``; at the first step, where all are
            the same, the first alone.
        tokens: a start symbol and their words, ``(sentences, beam, length)``.
        lprobs: of their next words, ``(sentences, beam, words)``, -inf for what is not allowed.
        beams: the hypotheses that the candidates continue, ``(sentences, candidates)``.
        words: by which word, the same shape.
        ends: which candidates are finished hypotheses now, the same shape.
        goes_on: which are hypotheses of the next step, the same shape.
    """

    places: Tensor
    live: Tensor
    tokens: Tensor
    lprobs: Tensor
    beams: Tensor
    words: Tensor
    ends: Tensor
    goes_on: Tensor


class Exactness:
    """Counts what a search could continue with, and what it keeps.

    ``exact`` says of each sentence whether nothing was discarded so far.
    """

    def __init__(self, num_sentences: int, beam_size: int, device: torch.device) -> None:
        self.exact = torch.ones(num_sentences, dtype=torch.bool, device=device)
        self.ended = torch.zeros(num_sentences, dtype=torch.long, device=device)
        self.beam_size = beam_size

    def update(self, step: Step) -> None:
        """Note what a step keeps."""
        room = self.beam_size - self.ended[step.places]
        ends = step.ends & (step.ends.cumsum(dim=1) <= room[:, None])
        self.ended[step.places] += ends.sum(dim=1)
        if not self.exact[step.places].any():
            return
        is_full = self.ended[step.places] >= self.beam_size
        kept = ends | (step.goes_on & ~is_full[:, None])
        # Groups of a diverse search may hold the same hypothesis: it counts once
        same = (step.tokens[:, :, None] == step.tokens[:, None]).all(dim=-1) & step.live[:, None]
        first = same.int().argmax(dim=2)  # of the hypotheses with these words
        is_first = first == torch.arange(self.beam_size, device=first.device)
        possible = (step.lprobs > IMPOSSIBLE).sum(dim=2) * (step.live & is_first)
        names = first.gather(1, step.beams) * step.lprobs.size(2) + step.words
        is_again = (names[:, :, None] == names[:, None]) & kept[:, None]
        kept &= ~is_again.tril(diagonal=-1).any(dim=2)
        self.exact[step.places] &= possible.sum(dim=1) == kept.sum(dim=1)
