"""Whether a head puts words together again that were cut into subwords."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairseq_entmax.analysis.measures.base import Number, WeightMeasure
from fairseq_entmax.analysis.measures.rows import LayerWeights, Sums, weight_at
from fairseq_entmax.attentions import CROSS

if TYPE_CHECKING:
    from torch import Tensor


class SubwordMerging(WeightMeasure):
    """Per word, the largest weight that any of its tokens puts on the rest of it; on itself for a
    word of one token. null in cross."""

    name = "subword_merging"
    source = "Correia et al. 2019, section 5.2"
    numbers = (
        Number(
            "subword-merging",
            "Subword merging",
            "largest weight that any subword of a word puts on the rest of it, mean over the "
            "words; a word of one subword counts by the weight on itself",
            ("subword_merging", "all"),
        ),
        Number(
            "subword-merging-split",
            "Subword merging, split words",
            "the same over words of several subwords only",
            ("subword_merging", "split"),
        ),
    )

    def update(self, weights: LayerWeights, sums: Sums) -> None:
        words = weights.queries.words
        if words is None or weights.attention == CROSS:
            return
        scores, begins, several = merging_by_word(mass_in_word(weights.weights, words), words)
        sums.add_mean("all", scores, begins)
        sums.add_mean("split", scores, several)


def mass_in_word(weights: Tensor, words: Tensor) -> Tensor:
    """The weight that each token puts on the rest of its word; on itself in a word of one token.

    ``words`` has the same number for the tokens of one word, which stand side by side; -1 outside
    of words, where the mass is 0."""
    import torch

    length = words.size(1)
    reach = _longest_run(words) - 1
    shifts = torch.arange(-reach, reach + 1, device=words.device)
    places = torch.arange(length, device=words.device)[:, None] + shifts
    keys = places.clamp(0, length - 1)
    same = (words[:, keys] == words[:, :, None]) & (places == keys) & (words[:, :, None] >= 0)
    is_alone = same.sum(dim=-1, keepdim=True) == 1
    wanted = torch.where(shifts == 0, same & is_alone, same)
    return weight_at(weights, keys.expand(words.size(0), -1, -1), wanted).sum(dim=-1)


def _longest_run(words: Tensor) -> int:
    """The number of tokens of the longest word, 1 or more."""
    length = 1
    while length < words.size(1):
        longer = (words[:, length:] == words[:, :-length]) & (words[:, length:] >= 0)
        if not bool(longer.any()):
            break
        length += 1
    return length


def merging_by_word(mass: Tensor, words: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Subword-merging scores (Correia et al., section 5.2), at the first token of each word.

    The largest weight that any token of the word puts on the rest of it; for a word of one token
    the weight on itself. Also whether a word begins at a token, and whether it has several."""
    import torch

    length = words.size(1)
    begins = words >= 0
    begins[:, 1:] &= words[:, 1:] != words[:, :-1]
    number = begins.cumsum(dim=1) - 1
    number = torch.where(words >= 0, number, length)  # outside of words: a place of its own
    scores = mass.new_zeros((*mass.shape[:2], length + 1))
    index = number[:, None].expand_as(mass)
    scores.scatter_reduce_(2, index, mass, "amax", include_self=True)
    at_begin = scores.gather(2, index.clamp(max=length))
    several = torch.zeros_like(begins)
    several[:, :-1] = begins[:, :-1] & (words[:, 1:] == words[:, :-1])
    return at_begin, begins, several
