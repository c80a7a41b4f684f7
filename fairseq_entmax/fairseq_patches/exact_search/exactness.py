"""Whether a search has discarded anything of non-zero probability."""

import torch
from torch import Tensor

IMPOSSIBLE = -torch.inf


class Exactness:
    """Counts what a search could continue with, and what it keeps.

    ``exact`` says of each sentence whether nothing was discarded so far.
    """

    def __init__(self, num_sentences: int, beam_size: int, device: torch.device) -> None:
        self.exact = torch.ones(num_sentences, dtype=torch.bool, device=device)
        self.ended = torch.zeros(num_sentences, dtype=torch.long, device=device)
        self.beam_size = beam_size

    def update(
        self,
        places: Tensor,
        live: Tensor,
        tokens: Tensor,
        lprobs: Tensor,
        beams: Tensor,
        words: Tensor,
        ends: Tensor,
        goes_on: Tensor,
    ) -> None:
        """Note what a step of the sentences that are still searched, at ``places``, keeps.

        ``live`` hypotheses, ``(sentences, beam)``, can go on; at the first step, where all are the
        same, the first alone. Candidates, ``(sentences, candidates)``, continue the hypotheses
        ``beams`` by ``words``; some are finished now (``ends``), some live in the next step.
        """
        room = self.beam_size - self.ended[places]
        ends = ends & (ends.cumsum(dim=1) <= room[:, None])
        self.ended[places] += ends.sum(dim=1)
        if not self.exact[places].any():
            return
        is_full = self.ended[places] >= self.beam_size
        remaining = ends | (goes_on & ~is_full[:, None])
        # Groups of a diverse search may hold the same hypothesis: it counts once
        same = (tokens[:, :, None] == tokens[:, None]).all(dim=-1) & live[:, None]
        first = same.int().argmax(dim=2)  # of the hypotheses with these words
        is_first = first == torch.arange(self.beam_size, device=first.device)
        possible = (lprobs > IMPOSSIBLE).sum(dim=2) * (live & is_first)
        names = first.gather(1, beams) * lprobs.size(2) + words
        is_again = (names[:, :, None] == names[:, None]) & remaining[:, None]
        remaining &= ~is_again.tril(diagonal=-1).any(dim=2)
        self.exact[places] &= possible.sum(dim=1) == remaining.sum(dim=1)
