"""Hundreds of random combinations of search options, on models with probabilities of zero."""

import math
import random
from argparse import Namespace
from contextlib import contextmanager

import pytest
import torch
from fairseq.sequence_generator import SequenceGenerator, SequenceGeneratorWithAlignment
from fairseq.token_generation_constraints import pack_constraints

from tests.brute_force_search import Sentence, every_sequence, known_options, search
from tests.sparse_toys import EOS, PAD, UNK, WORDS, Toy, ToyLanguageModel, toy_batch, toy_task

NUM_DRAWN = 200
# Keys of a hypothesis that fairseq does not have
FACTS = {"exact_search", "unfinished", "impossible_prefix"}
# Strategies that search like `tests.brute_force_search.search`
PLAIN = {"beam", "match_source_len"}
STRATEGIES = [
    *["beam"] * 6,
    *("match_source_len", "sampling", "topk", "topp", "diverse", "siblings"),
    *("ordered", "unordered", "allowed_words"),
]


def draw(number):
    """Draw a search: strategy, options, models, language model, sources, prefixes, constraints."""
    draw = random.Random(number)
    strategy = draw.choice(STRATEGIES)
    options = {
        "beam": draw.choice([1, 2, 3, 5, 8, 20]),
        "max_len_a": draw.choice([0, 0, 0.5, 1]),
        "max_len_b": draw.choice([2, 3, 4, 6]),
        "min_len": draw.choice([1, 1, 1, 2]),
        "lenpen": draw.choice([1.0, 1.0, 0.5, 1.7, 0.0]),
        "unnormalized": draw.random() < 0.3,
        "unkpen": draw.choice([0.0, 0.0, 1.5, -0.7, math.inf]),
        "temperature": draw.choice([1.0, 1.0, 0.6, 1.8]),
        "no_repeat_ngram_size": draw.choice([0, 0, 0, 1, 2]),
    }
    if strategy == "beam" and not options["unnormalized"] and draw.random() < 0.3:
        options |= {"length_penalty": "wu", "coverage_penalty": draw.choice([0.0, 0.8])}
    options |= {
        "match_source_len": {"match_source_len": True},
        "sampling": {"sampling": True},
        "topk": {"sampling": True, "sampling_topk": 2},
        "topp": {"sampling": True, "sampling_topp": 0.7},
        "diverse": {
            "diverse_beam_groups": draw.choice([2, 4]),
            "diverse_beam_strength": draw.choice([0.0, 0.5]),
            "beam": draw.choice([4, 8]),
        },
        "siblings": {"diversity_rate": draw.choice([0.0, 0.4])},
        "ordered": {"constraints": "ordered"},
        "unordered": {"constraints": "unordered"},
    }.get(strategy, {})
    if draw.random() < 0.1:
        options["print_alignment"] = "hard"
    num_models = draw.choice([1, 1, 2])
    longest, ending = draw.choice([3, 5, 99]), draw.choice([0.2, 0.5])
    models = [
        Toy(seed, longest, ending, fewest=num_models) for seed in range(number, number + num_models)
    ]
    lm = ToyLanguageModel(number) if draw.random() < 0.2 else None
    weight = draw.choice([0.0, 0.4, -0.2])
    sources = [tuple(draw.choice(WORDS) for _ in range(draw.randrange(1, 5))) for _ in range(3)]
    prefix = None
    if draw.random() < 0.3:
        ends = [] if strategy in ("ordered", "unordered", "match_source_len") else [EOS]
        prefix = [[draw.choice([*WORDS, UNK]) for _ in range(draw.randrange(3))] for _ in sources]
        prefix = [[*words, *ends] if draw.random() < 0.2 else words for words in prefix]
    constraints = [draw.sample(WORDS, draw.randrange(3)) for _ in sources]
    return strategy, options, models, (lm, weight), sources, prefix, constraints


def allowed_words(_, tokens):
    """Words that may follow: no word twice in a row."""
    return [EOS, UNK, *(word for word in WORDS if word != int(tokens[-1]))]


class Drawn:
    """A random search: what fairseq finds, and the brute-force input of each sentence."""

    def __init__(self, number, make_models=lambda models: models):
        drawn = draw(number)
        self.strategy, self.options, models, (lm, weight), sources, prefix, constraints = drawn
        self.models = make_models(models)
        is_lexical = self.strategy in ("ordered", "unordered")
        widest = max(map(len, prefix)) if prefix else 0
        batch = toy_batch(sources)
        limit = int(self.options["max_len_a"] * batch["net_input"]["src_tokens"].size(1))
        limit = min(limit + self.options["max_len_b"], 99)
        if self.strategy == "match_source_len":
            limit = max(map(len, sources)) + 1
        extra = {} if lm is None else {"lm_model": lm, "lm_weight": weight}
        only = {"prefix_allowed_tokens_fn": allowed_words}
        own = only if self.strategy == "allowed_words" else {}
        self.generator = toy_task().build_generator(
            self.models, Namespace(**self.options), extra_gen_cls_kwargs=extra, **own
        )
        self.call = {"sample": batch}
        if widest:
            rows = [[*words, *[PAD] * (widest - len(words))] for words in prefix]
            self.call["prefix_tokens"] = torch.tensor(rows)
        if is_lexical:
            given = [[torch.tensor([word]) for word in words] for words in constraints]
            self.call["constraints"] = pack_constraints(given)
        common = known_options(self.options)
        common |= {"max_len": limit, "prefix_steps": widest, "lm_weight": weight}
        common |= {"language_model": lm and lm.table, "in_order": self.strategy == "ordered"}
        if self.strategy == "allowed_words":
            common["only"] = lambda words: allowed_words(0, (0, *words))
        self.toys = [
            Sentence(
                [model.table for model in models],
                (*source, EOS),
                prefix=tuple(prefix[place]) if prefix else (),
                required=tuple(constraints[place]) if is_lexical else (),
                **common,
            )
            for place, source in enumerate(sources)
        ]

    def find(self):
        torch.manual_seed(7)
        return self.generator.generate(self.models, **self.call)


def check_hypotheses(drawn, toys, hypotheses):
    """Check what holds for every search."""
    scores = [hypothesis["score"].item() for hypothesis in hypotheses]
    assert scores
    assert all(map(math.isfinite, scores))
    assert scores == sorted(scores, reverse=True)
    is_sampling = "sampling" in drawn.options
    found = [tuple(hypothesis["tokens"].tolist()) for hypothesis in hypotheses]
    assert len(found) <= drawn.generator.beam_size
    assert is_sampling or len(set(found)) == len(found)
    for hypothesis, words, score in zip(hypotheses, found, scores, strict=True):
        is_cut = hypothesis["unfinished"]
        assert EOS not in words[:-1]
        assert words[-1] == EOS
        assert len(words) <= toys.max_len + 1
        assert hypothesis["attention"].shape[-1] == len(words)
        forced = toys.prefix[: len(words) - is_cut][: toys.max_len]
        assert words[: len(forced)] == forced
        total = score * toys.divisor(len(words))
        places = hypothesis["positional_scores"]
        assert places.sum().item() == pytest.approx(total, abs=1e-3)
        expected = toys.log_prob(words, is_cut)
        if drawn.options.get("diverse_beam_strength") or drawn.options.get("diversity_rate"):
            assert total < expected + 1e-3  # the score includes a penalty
        else:
            assert total == pytest.approx(expected, abs=1e-3)
    assert is_sampling or len({hypothesis["unfinished"] for hypothesis in hypotheses}) == 1


def check_against_brute_force(drawn, toys, hypotheses):
    """Check that the search matches a plain one, and finds everything if it says so."""
    is_exact, is_cut = (hypotheses[0][name] for name in ("exact_search", "unfinished"))
    found = {
        tuple(hypothesis["tokens"].tolist()): hypothesis["score"].item()
        for hypothesis in hypotheses
    }
    if drawn.strategy in PLAIN:
        expected, *flags = search(toys, drawn.generator.beam_size)
        assert [is_exact, is_cut] == flags
        assert set(found) == {words for words, _ in expected}
        assert list(found.values()) == pytest.approx([score for _, score in expected], abs=1e-3)
    if is_exact:
        assert set(found) == {words for words, _ in every_sequence(toys)}
    return is_exact, is_cut


@pytest.mark.parametrize("part", range(2))
def test_random_searches_are_valid_and_match_brute_force(part):
    seen = []
    for number in range(part, NUM_DRAWN, 2):
        drawn = Drawn(number)
        for toys, hypotheses in zip(drawn.toys, drawn.find(), strict=True):
            try:
                check_hypotheses(drawn, toys, hypotheses)
                seen.append(check_against_brute_force(drawn, toys, hypotheses))
            except AssertionError as error:
                raise AssertionError(f"search {number}, {drawn.options}") from error
    assert len(seen) == 3 * NUM_DRAWN // 2
    # The searches include exact, inexact and cut-off ones
    assert {(True, False), (False, False), (False, True)} == set(seen)


@contextmanager
def stock_search():
    """fairseq's search without this package's changes."""
    aligned = SequenceGeneratorWithAlignment
    changed = [
        *((SequenceGenerator, "generate"), (aligned, "generate")),
        (aligned, "_prepare_batch_for_alignment"),
    ]
    with pytest.MonkeyPatch.context() as patch:
        for owner, name in changed:
            patch.setattr(owner, name, vars(owner)[name].__wrapped__)
        yield


def test_searches_of_models_without_zeros_are_bitwise_unchanged():
    def dense(models):
        return [Toy(place, dense=True) for place, _ in enumerate(models)]

    num_compared = 0
    for number in range(80):
        drawn = Drawn(number, dense)
        if drawn.options["unkpen"] == math.inf or drawn.generator.lm_model is not None:
            continue  # these have zeros
        found = drawn.find()
        try:
            with stock_search():
                stock = drawn.find()
        except (AssertionError, IndexError):
            continue  # fairseq fails if a prefix ends at once, or there is too little to align
        num_compared += 1
        for ours, theirs in zip(found, stock, strict=True):
            assert len(ours) == len(theirs)
            for hypothesis, other in zip(ours, theirs, strict=True):
                assert not hypothesis["unfinished"]
                assert hypothesis.keys() - other.keys() == FACTS
                for name, value in other.items():
                    assert torch.equal(torch.as_tensor(hypothesis[name]), torch.as_tensor(value))
    assert num_compared > 30
