"""Whether a head joins the subwords of a word."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairseq_entmax.analysis.measures.base import Number, WeightMeasure
from fairseq_entmax.analysis.measures.rows import LayerWeights, Sums
from fairseq_entmax.attentions import CROSS

if TYPE_CHECKING:
    from torch import Tensor


class SubwordMerging(WeightMeasure):
    """Per word, the largest weight that any of its tokens puts on the rest of the word; for a word
    of one token, the weight on itself. null in cross."""

    name = "subword_merging"
    source = "Correia et al. 2019, section 5.2"
    numbers = (
        Number(
            "subword-merging",
            "Subword merging",
            "largest weight that any subword of a word puts on the rest of it, mean over words; "
            "for a word of one subword, the weight on itself",
            ("subword_merging", "all"),
        ),
        Number(
            "subword-merging-split",
            "Subword merging, split words",
            "subword merging over words of several subwords only",
            ("subword_merging", "split"),
        ),
    )

    def update(self, weights: LayerWeights, sums: Sums) -> None:
        words = weights.queries.words
        if weights.attention == CROSS:
            return
        scores, begins, several = merging_by_word(mass_in_word(weights.weights, words), words)
        sums.add_mean("all", scores, begins)
        sums.add_mean("split", scores, several)


def mass_in_word(weights: Tensor, words: Tensor) -> Tensor:
    """Return the weight that each token puts on the rest of its word; on itself if it is alone.

    ``words`` has the same number for all tokens of a word, which are adjacent, and -1 outside
    words, where the mass is 0."""
    import torch

    same = (words[:, :, None] == words[:, None]) & (words >= 0)[:, :, None]
    others = same & ~torch.eye(words.size(1), dtype=torch.bool, device=words.device)
    wanted = torch.where(same.sum(-1, keepdim=True) == 1, same, others)
    return (weights * wanted[:, None]).sum(-1)


def merging_by_word(mass: Tensor, words: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return subword-merging scores (Correia et al., section 5.2), at the first token of each word.

    A score is the largest weight that any token of the word puts on the rest of it; for a word of
    one token, the weight on itself. Also return where words begin, and where split words do."""
    import torch

    length = words.size(1)
    begins = words >= 0
    begins[:, 1:] &= words[:, 1:] != words[:, :-1]
    number = begins.cumsum(dim=1) - 1
    number = torch.where(words >= 0, number, length)  # tokens outside words share an extra entry
    scores = mass.new_zeros((*mass.shape[:2], length + 1))
    index = number[:, None].expand_as(mass)
    scores.scatter_reduce_(2, index, mass, "amax", include_self=True)
    at_begin = scores.gather(2, index)
    several = torch.zeros_like(begins)
    several[:, :-1] = begins[:, :-1] & (words[:, 1:] == words[:, :-1])
    return at_begin, begins, several
