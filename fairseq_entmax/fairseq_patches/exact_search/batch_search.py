"""fairseq's search for one batch, whose steps are observed and corrected."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable
from typing import Any

import torch
from fairseq.search import DiverseBeamSearch, LengthConstrainedBeamSearch, Sampling
from torch import Tensor, nn
from torch.nn import functional

from fairseq_entmax.fairseq_patches.exact_search.counts import SearchCounts
from fairseq_entmax.fairseq_patches.exact_search.exactness import IMPOSSIBLE, Exactness

Hypotheses = list[list[dict[str, Any]]]


def _copy(module: nn.Module) -> Any:
    """A shallow copy of a module, in which submodules can be replaced."""
    copied = copy.copy(module)
    copied._modules = dict(module._modules)
    return copied


def _shadow(owner: Any, name: str, change: Callable[..., Any], *context: Any) -> None:
    """Replace a method of one object by ``change``, which gets it first, then the context."""
    setattr(owner, name, functools.partial(change, getattr(owner, name), *context))


class BatchSearch:
    """A copy of a generator for one batch.

    It keeps its state for all sentences of the batch; ``places`` are the indices of those still
    searched, as fairseq removes finished ones. A sentence is corrected from the step on at which
    the model gives some word probability zero. The original generator does not change.
    """

    def __init__(self, generator: Any) -> None:
        copied = self.generator = _copy(generator)
        search = copied.search = self.search = _copy(copied.search)
        copied.model = _copy(copied.model)
        self.is_sampling = isinstance(search, Sampling)
        self.counts = SearchCounts()
        self.places: Tensor | None = None
        _shadow(copied.model, "forward_decoder", self._look)
        if copied.lm_model is not None:
            copied.lm_model = _copy(copied.lm_model)
            _shadow(copied.lm_model, "get_normalized_probs", self._look_at_language_model)
        _shadow(copied, "_prefix_tokens", self._force)
        _shadow(copied, "is_finished", self._is_finished)
        _shadow(search, "step", self._step)
        _shadow(search, "prune_sentences", self._prune)
        _shadow(search, "update_constraints", self._go_on)

    def _begin(self, num_sentences: int, device: torch.device) -> None:
        beam = self.generator.beam_size
        self.places = torch.arange(num_sentences, device=device)
        self.zeros = torch.zeros(num_sentences, dtype=torch.bool, device=device)
        self.no_end = torch.zeros_like(self.zeros)
        self.forced = torch.zeros(num_sentences, dtype=torch.long, device=device)
        self.ignored = torch.zeros(num_sentences, beam, dtype=torch.bool, device=device)
        self.exactness = Exactness(num_sentences, beam, device)
        # Words of the hypotheses that were cut off
        self.cut: list[set[tuple[int, ...]]] = [set() for _ in range(num_sentences)]

    def _has_zeros(self) -> Tensor:
        """For each sentence still searched, whether the model gave some word probability zero."""
        return self.zeros[self.places]

    def _look(self, forward: Callable[..., Any], *args: Any) -> Any:
        """``forward_decoder``, but it notes which words are impossible, ``(hypotheses, words)``."""
        lprobs, attention = forward(*args)
        if self.places is None:
            self._begin(len(lprobs) // self.generator.beam_size, lprobs.device)
        self.impossible = lprobs == IMPOSSIBLE
        return lprobs, attention

    def _look_at_language_model(
        self, normalize: Callable[..., Tensor], *args: Any, **kwargs: Any
    ) -> Tensor:
        """``get_normalized_probs``, but zeros stay impossible with any weight other than 0.

        fairseq multiplies by the weight, and -inf times one below 0 would be infinitely good.
        """
        lprobs = normalize(*args, **kwargs)
        weight = self.generator.lm_weight
        is_zero = lprobs == IMPOSSIBLE
        if weight == 0:
            return lprobs.masked_fill(is_zero, 0.0)
        self.impossible |= is_zero[:, -1]
        return lprobs.masked_fill(is_zero, IMPOSSIBLE if weight > 0 else -IMPOSSIBLE)

    def _force(
        self,
        force: Callable[..., Any],
        step: int,
        lprobs: Tensor,
        scores: Tensor,
        tokens: Tensor,
        prefix_tokens: Tensor,
        beam_size: int,
    ) -> Any:
        """``_prefix_tokens``, but a word of probability zero is kept, and counts as certain."""
        words = prefix_tokens[:, step].repeat_interleave(beam_size)[:, None]
        lprob = lprobs.gather(1, words)
        is_zero = (lprob == IMPOSSIBLE) & (words != self.generator.pad)
        lprobs.scatter_(1, words, lprob.masked_fill(is_zero, 0.0))
        self.forced[self.places] += is_zero.view(-1, beam_size)[:, 0]
        return force(step, lprobs, scores, tokens, prefix_tokens, beam_size)

    def _step(
        self,
        choose: Callable[..., tuple[Tensor, Tensor, Tensor]],
        step: int,
        lprobs: Tensor,
        scores: Tensor,
        prev_output_tokens: Tensor,
        ids: Tensor,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """``search.step``, but it continues no dead hypothesis, and notes what it keeps."""
        assert self.places is not None
        eos = self.generator.eos
        tokens = prev_output_tokens.view(*lprobs.shape[:2], -1)
        self.impossible[:, self.generator.pad] = False  # which fairseq never chooses
        impossible = self.impossible.view(lprobs.shape)
        self.zeros[self.places] |= impossible.any(dim=2).any(dim=1)
        self.no_end[self.places] |= impossible[:, :, eos].any(dim=1)
        zeros = self._has_zeros()
        # In searches without spare candidates, fairseq lets hypotheses go on after their end
        ended = tokens[:, :, 1:].eq(eos).any(dim=2) & zeros[:, None]
        total = self._totals(step, scores).masked_fill(ended, IMPOSSIBLE)
        self._allow(step, lprobs, tokens, total, ended)
        if isinstance(self.search, DiverseBeamSearch):
            # fairseq keeps what groups share in a table of the batch, but by data set numbers
            ids = self.places
        chosen, words, beams = choose(step, lprobs, scores, prev_output_tokens, ids)
        chosen = chosen.masked_fill(ended.gather(1, beams), IMPOSSIBLE)
        self.tokens, self.live = tokens, total > IMPOSSIBLE
        self._sort_out(chosen, words, beams, total, lprobs)
        return chosen, words, beams

    def _totals(self, step: int, scores: Tensor) -> Tensor:
        """Scores of the hypotheses so far; at the first step, where all are the same, of one."""
        if step:
            return scores[:, :, step - 1]
        total = scores.new_full(scores.shape[:2], IMPOSSIBLE)
        total[:, 0] = 0.0
        return total

    def _allow(
        self, step: int, lprobs: Tensor, tokens: Tensor, total: Tensor, ended: Tensor
    ) -> None:
        """Change the log probabilities of the next words, in place, as the search needs them."""
        eos = self.generator.eos
        if isinstance(self.search, LengthConstrainedBeamSearch):
            # fairseq would make hypotheses longer than the source, with a score of -inf
            longest = self.search.max_len_a * self.search.src_lengths + self.search.max_len_b
            at_end = (step >= longest) & self._has_zeros()
            lprobs[at_end, :, :eos] = IMPOSSIBLE
            lprobs[at_end, :, eos + 1 :] = IMPOSSIBLE
        if not self.is_sampling:
            lprobs[ended] = IMPOSSIBLE
            return
        # torch cannot draw from a row of zeros, so a sample that cannot go on ends
        is_stuck = lprobs.amax(dim=2) == IMPOSSIBLE
        lprobs[:, :, eos].masked_fill_(is_stuck, 0.0)
        for sentence, beam in (is_stuck & (total > IMPOSSIBLE)).nonzero().tolist():
            self._note_cut(sentence, tokens[sentence, beam])

    def _note_cut(self, sentence: int, tokens: Tensor) -> None:
        assert self.places is not None
        self.cut[int(self.places[sentence])].add(tuple(tokens[1:].tolist()))

    def _sort_out(
        self, chosen: Tensor, words: Tensor, beams: Tensor, total: Tensor, lprobs: Tensor
    ) -> None:
        """Find the candidates that end and those that go on; if there are none, end hypotheses."""
        assert self.places is not None
        num_candidates, beam = chosen.size(1), self.generator.beam_size
        ignored = functional.pad(self.ignored, (0, num_candidates - beam))
        is_end = (words == self.generator.eos) & (chosen > IMPOSSIBLE)
        self.taken = is_end | ignored
        # As in fairseq, only the first ``beam`` candidates can end, and the others fill the beam
        ends = is_end & ~ignored
        ends[:, beam:] = False
        fills_beam = ~self.taken & ((~self.taken).cumsum(dim=1) <= beam)
        goes_on = fills_beam & (chosen > IMPOSSIBLE)
        if not self.is_sampling:
            self.exactness.update(
                self.places, self.live, self.tokens, lprobs, beams, words, ends, goes_on
            )
        # If a beam is not full, fairseq lets ended hypotheses go on; only zeros stop them
        is_full = fills_beam.sum(dim=1) == beam
        exhausted = ~goes_on.any(dim=1) & (self._has_zeros() | is_full)
        for sentence in (exhausted & ~ends.any(dim=1)).nonzero().flatten().tolist():
            slots = (~ignored[sentence, :beam]).nonzero().flatten()
            order = total[sentence].argsort(descending=True)
            rows = order[: int(self.live[sentence].sum())][: len(slots)]
            slots = slots[: len(rows)]
            chosen[sentence, slots] = total[sentence, rows]
            words[sentence, slots] = self.generator.eos
            beams[sentence, slots] = rows
            for row in rows.tolist():
                self._note_cut(sentence, self.tokens[sentence, row])
        self.exhausted = exhausted.tolist()

    def _prune(self, prune: Callable[..., None], batch_idxs: Tensor) -> None:
        """``prune_sentences``, but it notes which sentences are left."""
        assert self.places is not None
        self.places, self.taken = self.places[batch_idxs], self.taken[batch_idxs]
        prune(batch_idxs)

    def _go_on(self, update: Callable[..., None], active_hypos: Tensor) -> None:
        """``update_constraints``, but it notes which candidates go on.

        Places of the beam without one stay empty: fairseq ignores what it would choose there.
        """
        self.ignored = self.taken.gather(1, active_hypos)
        update(active_hypos)

    def _is_finished(
        self, is_finished: Callable[..., bool], step: int, sentence: int, max_len: int, *args: Any
    ) -> bool:
        """``is_finished``, but also true if nothing can go on."""
        assert self.places is not None
        if step == max_len and not self.generator.match_source_len:
            self.exactness.exact[self.places[sentence]] &= ~self._could_go_on(step, sentence)
        return is_finished(step, sentence, max_len, *args) or self.exhausted[sentence]

    def _could_go_on(self, step: int, sentence: int) -> Tensor:
        """Whether a greater maximum length would let some hypothesis of a sentence go on."""
        generator, tokens = self.generator, self.tokens[sentence]
        lprobs = self.live.new_zeros(len(tokens), generator.vocab_size, dtype=torch.float32)
        impossible = self.impossible.view(*self.live.shape, -1)[sentence]
        lprobs.masked_fill_(impossible, IMPOSSIBLE)
        lprobs[:, generator.pad] = IMPOSSIBLE
        lprobs[:, generator.unk] -= generator.unk_penalty
        if generator.token_indices_to_suppress is not None:
            lprobs[:, generator.token_indices_to_suppress] = IMPOSSIBLE
        if generator.repeat_ngram_blocker is not None:
            # With padding at the end, where fairseq's own blocker looks
            padded = functional.pad(tokens, (0, 1), value=generator.pad)
            lprobs = generator.repeat_ngram_blocker(padded, lprobs, 1, len(tokens), step)
        lprobs[:, generator.eos] = IMPOSSIBLE
        return (lprobs[self.live[sentence]] > IMPOSSIBLE).any()

    def finish(self, sentences: Hypotheses) -> Hypotheses:
        """Keep the valid hypotheses, add to each what is known of it, and count the searches."""
        if self.places is None:
            return sentences
        exact, zeros, no_end, forced = (
            each.tolist() for each in (self.exactness.exact, self.zeros, self.no_end, self.forced)
        )
        finished = []
        for place, hypotheses in enumerate(sentences):
            chosen = (
                self._choose(place, hypotheses) if zeros[place] or self.cut[place] else hypotheses
            )
            is_cut = all(hypothesis.get("unfinished", False) for hypothesis in chosen)
            is_exact = exact[place] and not is_cut and not self.is_sampling
            for hypothesis in chosen:
                hypothesis.setdefault("unfinished", False)
                hypothesis.update(exact_search=is_exact, impossible_prefix=forced[place])
            finished.append(chosen)
            is_sparse = zeros[place] and (no_end[place] or is_exact)
            self.counts.add(SearchCounts(1, is_exact, is_sparse, is_cut, forced[place] > 0))
        return finished

    def _choose(self, place: int, hypotheses: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """The valid hypotheses, each once: finished ones if there are any, else unfinished ones."""
        for hypothesis in hypotheses:
            words = tuple(hypothesis["tokens"][:-1].tolist())
            hypothesis["unfinished"] = words in self.cut[place]
        if self.is_sampling:
            return hypotheses
        some = [hypothesis for hypothesis in hypotheses if not hypothesis["unfinished"]]
        once: dict[tuple[int, ...], dict[str, Any]] = {}
        for hypothesis in some or hypotheses:
            once.setdefault(tuple(hypothesis["tokens"].tolist()), hypothesis)
        return list(once.values())
