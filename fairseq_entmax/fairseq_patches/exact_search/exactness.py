"""Whether a search has discarded anything of non-zero probability."""

import torch
from torch import Tensor

IMPOSSIBLE = -torch.inf


class Exactness:
    """Counts the continuations that a search could choose, and those that it keeps.

    ``exact`` says for each sentence whether nothing has been discarded so far.
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
        """Note what a step keeps for the sentences still searched, at ``places``.

        ``live`` hypotheses, ``(sentences, beam)``, can go on; at the first step, where all are the
        same, only the first can. Candidates, ``(sentences, candidates)``, continue the hypotheses
        ``beams`` by ``words``; some end now (``ends``), and some go on (``goes_on``).
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
        first = same.int().argmax(dim=2)  # the first hypothesis with the same words
        is_first = first == torch.arange(self.beam_size, device=first.device)
        possible = (lprobs > IMPOSSIBLE).sum(dim=2) * (live & is_first)
        names = first.gather(1, beams) * lprobs.size(2) + words
        is_again = (names[:, :, None] == names[:, None]) & remaining[:, None]
        remaining &= ~is_again.tril(diagonal=-1).any(dim=2)
        self.exact[places] &= possible.sum(dim=1) == remaining.sum(dim=1)
