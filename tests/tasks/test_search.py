"""The search, compared with a plain reference decoder."""

import functools
import math
from argparse import Namespace
from statistics import fmean

import pytest
import torch
from fairseq.token_generation_constraints import pack_constraints

from fairseq_entmax.tasks.search import CoverageEnsemble, RepeatedNgrams
from tests.brute_force_search import Sentence, known_options, search
from tests.sparse_toys import EOS, PAD
from tests.support import batch, build_model, spread_scores, tiny_task
from tests.support import search as by_fairseq
from tests.tasks.test_summarization import make_task

LENGTHS = [9, 7, 4, 2]
TARGETS = [6, 8, 5, 4]
MAX_LEN = 12
FULL_STOP = "w4"
SUMMARIES = {"length_penalty": "wu", "lenpen": 0.9, "coverage_penalty": 5.0}
SUMMARIES |= {"no_repeat_ngram_size": 2, "min_len": 5}
task = functools.cache(make_task)


@functools.cache
def model(mapping="softmax", seed=1):
    """A tiny model with sharp attention and confident outputs, which repeats itself."""
    model = spread_scores(build_model(attn_mapping=mapping, seed=seed), 6.0).double()
    with torch.no_grad():
        model.decoder.output_projection.weight.mul_(4)
        # So that some hypotheses end before the maximum length
        model.decoder.embed_tokens.weight[tiny_task().target_dictionary.eos()].mul_(0.9)
    return model


def sample():
    return batch(LENGTHS, TARGETS)


def search_with_fairseq(models, options, prefix=0, task=task):
    """The hypotheses of each sentence of the batch, in the order of `LENGTHS`."""
    how = {"beam": 5, "max_len_b": MAX_LEN, **options}
    start = sample()["target"][:, :prefix] if prefix else None
    found = by_fairseq(models, sample(), task(), prefix=start, **how)
    return [best[: options.get("nbest", 1)] for best in found]


def whole_passes(model, source):
    """The next word's probabilities and its attention to the source, by a pass over all words."""
    with torch.no_grad():
        encoded = model.encoder(source[None], torch.tensor([len(source)]))

    @functools.cache
    @torch.no_grad()
    def step(words):
        output, extra = model.decoder(torch.tensor([[EOS, *words]]), encoder_out=encoded)
        probs = output[0, -1].double().softmax(-1).tolist()
        return dict(enumerate(probs)), extra["attn"][0][0, -1].tolist()

    return step


def search_plainly(models, options, prefix=0):
    dictionary = tiny_task().target_dictionary
    may_repeat = [*map(dictionary.index, options.get("no_repeat_ngram_except", "").split())]
    found, together = [], sample()
    for source, target in zip(together["net_input"]["src_tokens"], together["target"], strict=True):
        source, start = source[source != PAD], target[:prefix][target[:prefix] != PAD]
        steps = [whole_passes(model, source) for model in models]
        sentence = Sentence(
            [lambda _, words, step=step: step(words)[0] for step in steps],
            tuple(source.tolist()),
            attention=lambda words, steps=steps: [
                fmean(column) for column in zip(*(step(words)[1] for step in steps), strict=True)
            ],
            max_len=MAX_LEN,
            may_repeat=may_repeat,
            prefix=tuple(start.tolist()),
            prefix_steps=prefix,
            **known_options(options),
        )
        hypotheses, *_ = search(sentence, options.get("beam", 5))
        best = hypotheses[: options.get("nbest", 1)]
        found.append([(list(words), score) for words, score in best])
    return found


def assert_same(found, expected):
    texts = [[[words for words, _ in best] for best in each] for each in (found, expected)]
    assert texts[0] == texts[1]
    scores, wanted = (
        torch.tensor([score for best in result for _, score in best], dtype=torch.float64)
        for result in (found, expected)
    )
    # fairseq sums scores in float32
    torch.testing.assert_close(scores, wanted, atol=2e-5, rtol=1e-5)


@pytest.mark.parametrize(("mapping", "beam"), [("softmax", 2), ("entmax15", 1), ("sparsemax", 5)])
def test_a_search_for_summaries_matches_the_plain_decoder(mapping, beam):
    options = {**SUMMARIES, "no_repeat_ngram_except": FULL_STOP, "beam": beam}
    models = [model(mapping)]
    assert_same(search_with_fairseq(models, options), search_plainly(models, options))


@pytest.mark.parametrize(
    "options",
    [
        *({"length_penalty": "wu", "lenpen": lenpen} for lenpen in (0.9, 0.0)),
        {"coverage_penalty": 0.3},
        {"coverage_penalty": 5.0, "lenpen": 0.7},
        *({"no_repeat_ngram_size": size} for size in (1, 3)),
        {"no_repeat_ngram_size": 2, "no_repeat_ngram_except": f"{FULL_STOP} w1"},
        {**SUMMARIES, "temperature": 0.6},
        {**SUMMARIES, "temperature": 1.7, "unkpen": 2.0},
        {**SUMMARIES, "min_len": MAX_LEN},
    ],
    ids=lambda options: ",".join(f"{name}={value}" for name, value in options.items()),
)
def test_each_option_acts_as_in_the_plain_decoder(options):
    options = {"nbest": 5, **options}
    models = [model()]
    found = search_with_fairseq(models, options)
    assert_same(found, search_plainly(models, options))
    # the options change this model's result
    assert found != search_with_fairseq(models, {"nbest": 5})


@pytest.mark.parametrize("beam", [1, 5])
def test_two_models_search_with_the_mean_of_their_attention(beam):
    models = [model(), model("sparsemax", seed=2)]
    options = {**SUMMARIES, "beam": beam, "temperature": 1.3}
    found = search_with_fairseq(models, options)
    assert_same(found, search_plainly(models, options))
    assert found != search_with_fairseq(models[:1], options)


@pytest.mark.parametrize(("prefix", "nbest"), [(1, 3), (3, 3), (6, 1)])
def test_a_prefix_is_kept_and_its_attention_counts(prefix, nbest):
    # The longest prefix contains some whole references, with their end
    models, options = [model()], {**SUMMARIES, "beam": 3, "nbest": nbest}
    found = search_with_fairseq(models, options, prefix)
    assert_same(found, search_plainly(models, options, prefix))


def test_a_prefix_that_repeats_itself_is_kept():
    options = {"no_repeat_ngram_size": 1, "beam": 2, "max_len_b": MAX_LEN}
    prefix = torch.full((len(LENGTHS), 4), 7)
    found = by_fairseq(model(), sample(), task(), prefix=prefix, **options)
    assert [tokens[:4] for (tokens, _), *_ in found] == prefix.tolist()
    assert all(math.isfinite(score) for (_, score), *_ in found)


@pytest.mark.parametrize(
    "options", [{}, {"lenpen": 0.6, "min_len": 3, "temperature": 1.2}, {"unnormalized": True}]
)
def test_without_options_the_search_is_bitwise_fairseqs_and_matches_the_plain_decoder(options):
    models = [model("entmax15")]
    options = {"nbest": 5, **options}
    generator = task().build_generator(models, Namespace(**options))
    assert type(generator) is type(tiny_task().build_generator(models, Namespace(**options)))
    stock = search_with_fairseq(models, options, task=tiny_task)
    assert search_with_fairseq(models, options) == stock
    assert_same(stock, search_plainly(models, options))


def test_half_precision_steps_accumulate_coverage_in_float32():
    ensemble = CoverageEnsemble([model()], 5.0)
    attention = torch.rand(2, 3).half()
    lprobs = torch.zeros(2, 4)
    base = type(ensemble).__mro__[2]  # fairseq's ensemble
    states = [{}]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(base, "forward_decoder", lambda *_: (lprobs.clone(), attention))
        first, _ = ensemble.forward_decoder(None, [], states)
        second, _ = ensemble.forward_decoder(None, [], states)
    assert {value.dtype for value in states[0].values()} == {torch.float32}
    growth = 5 * (2 * attention.float() - 1).clamp(min=0).sum(dim=1)
    torch.testing.assert_close(first, lprobs)
    torch.testing.assert_close(second, -growth[:, None].expand_as(lprobs))


def test_a_repetition_is_allowed_where_nothing_else_is_possible():
    tokens = torch.tensor([[2, 4, 4], [2, 4, 4]])
    lprobs = torch.full((2, 6), -torch.inf)
    lprobs[0, 4] = lprobs[1, 4] = -1.0
    lprobs[1, 5] = -2.0
    blocked = RepeatedNgrams(1)(tokens, lprobs, 1, 2, step=2)
    assert blocked.isfinite().nonzero().tolist() == [[0, 4], [1, 5]]


@pytest.mark.parametrize("size", [1, 2])
def test_words_that_must_occur_twice_end_no_search_that_forbids_it(size):
    word, twice = torch.tensor([5]), torch.tensor([7, 7])
    required = pack_constraints([[word, word], [twice, twice], [], [word]])
    options = {"max_len_b": MAX_LEN, "constraints": "ordered", "no_repeat_ngram_size": size}
    generator = task().build_generator([model()], Namespace(beam=3, max_len_a=0, **options))
    found = task().inference_step(generator, [model()], sample(), constraints=required)
    assert all(len(hypotheses) > 0 for hypotheses in found)
