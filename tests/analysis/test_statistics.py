"""The measures of heads over a data set, compared with loops over every weight."""

import pytest
import torch

from fairseq_entmax.analysis.data.batch import Batch, Side
from fairseq_entmax.analysis.data.tokens import TokenTable
from fairseq_entmax.analysis.measures.density import BINS
from fairseq_entmax.analysis.measures.offsets import positional_role
from fairseq_entmax.analysis.passes.statistics import LayerStatistics
from tests.analysis import brute_force

PAD, END = 1, 2
SOURCE = [7, 4, 9, 1, 5]  # lengths, including the end of the sentence
TARGET = [5, 6, 8, 2, 1]
VOCABULARY = 40
ASKING = range(13, 26)
CAUSAL = {"encoder-self": False, "decoder-self": True, "cross": False}


def table(rank_of=lambda token: token - 4):
    """Tokens 4 to 39: every third continues a word, 10 asks, 11 states, and 12 is a quote. Some are
    question words; those that continue a word have no letters."""
    tokens = torch.arange(VOCABULARY)
    ending = torch.zeros(VOCABULARY, dtype=torch.int64)
    ending[10], ending[11] = 1, 2
    ranks = [rank_of(t) if t >= 4 else -1 for t in tokens.tolist()]
    return TokenTable(
        "sentencepiece",
        (tokens % 3 != 0) | (tokens < 4),
        torch.zeros(VOCABULARY, dtype=torch.bool),
        torch.tensor(ranks),
        ending,
        tokens == 12,
        tuple(" " if t % 3 == 0 else "qué" if t in ASKING else "x" for t in tokens.tolist()),
        frozenset({"qué"}),
    )


def padded(sentences, left):
    width = max(map(len, sentences))
    rows = torch.full((len(sentences), width), PAD)
    for row, sentence in zip(rows, sentences, strict=True):
        place = width - len(sentence) if left else 0
        row[place : place + len(sentence)] = torch.tensor(sentence)
    return rows


def texts(lengths, seed, at_end):
    generator = torch.Generator().manual_seed(seed)
    sentences = []
    for length in lengths:
        words = torch.randint(4, VOCABULARY, (length - 1,), generator=generator).tolist()
        if words:
            words[-1] = (10, 11, 12)[length % 3]
        sentences.append([*words, END] if at_end else [END, *words])
    return sentences


SENTENCES = texts(SOURCE, 0, at_end=True), texts(TARGET, 1, at_end=False)


def batch_of(source, target, facts, left_pad_target=False):
    return Batch(
        Side.of(padded(source, left=True), PAD, END, facts),
        Side.of(padded(target, left=left_pad_target), PAD, END, facts),
        facts,
    )


def random_weights(batch, attention, heads=3, seed=0, steps=None):
    """Rows of probabilities, zero at padding and in the future, some exactly zero elsewhere. With
    ``steps``, the weights take only few different values."""
    queries, keys = batch.sides(attention)
    generator = torch.Generator().manual_seed(seed)
    shape = (len(queries.tokens), heads, queries.tokens.size(1), keys.tokens.size(1))
    raw = torch.rand(shape, generator=generator).double()
    if steps is not None:
        raw = (steps * raw).ceil()
    raw[torch.rand(shape, generator=generator) > 0.6] = 0
    places = torch.arange(keys.tokens.size(1)) - keys.start[:, None]
    visible = (places >= 0)[:, None] & (places[:, None] < batch.attendable(attention)[:, :, None])
    visible = visible & keys.real[:, None]
    raw = raw * visible[:, None]
    # A query that lost all its keys attends to its first
    first = (places == 0)[:, None, None].expand_as(raw)
    raw = torch.where((raw.sum(-1, keepdim=True) == 0) & first, 1.0, raw)
    raw = raw * queries.real[:, None, :, None]
    return (raw / raw.sum(-1, keepdim=True).clamp(min=1e-12)).float()


def cut(weights, batch, attention):
    spans = [
        list(zip(side.start.tolist(), side.lengths.tolist(), strict=True))
        for side in batch.sides(attention)
    ]
    return brute_force.sentences(weights, *spans)


def word_places(sentence, facts):
    """Lists of positions, one per word, found by walking through the tokens."""
    words = []
    for place, token in enumerate(sentence):
        if token == END:
            continue
        is_first = place == 0 or sentence[place - 1] == END
        if is_first or bool(facts.begins[token]):
            words.append([])
        words[-1].append(place)
    return words


@pytest.fixture(params=["encoder-self", "decoder-self", "cross"])
def attention(request):
    return request.param


def batches(attention, facts, left_pad_target, **options):
    """Batches of two, one and two of the sentences, and the weights of three heads in each."""
    for seed, part in enumerate((slice(2), slice(2, 3), slice(3, 5))):
        batch = batch_of(*(side[part] for side in SENTENCES), facts, left_pad_target)
        yield batch, random_weights(batch, attention, seed=seed, **options)


@pytest.fixture(params=[False, True], ids=["right", "left"])
def case(request, attention):
    """The results of each head over batches, its weights as lists, the sentences of queries and
    keys, the token table, and the diversity of the layer."""
    facts = table(lambda token: 475 + token)
    source, target = SENTENCES
    statistics, found = LayerStatistics(attention, 3), []
    for batch, weights in batches(attention, facts, request.param):
        statistics.update(weights, batch)
        found += cut(weights, batch, attention)
    results = statistics.results()
    queries = source if attention == "encoder-self" else target
    keys = target if attention == "decoder-self" else source
    return results["heads"], found, queries, keys, facts, results["diversity"]


def approx(value):
    if isinstance(value, dict):
        return {key: None if v is None else pytest.approx(v, abs=1e-6) for key, v in value.items()}
    return pytest.approx(value, abs=1e-6)


def test_density_entropy_confidence_offsets_and_diversity_match_loops(case, attention):
    heads, found, _, keys, _, diversity = case
    is_causal = CAUSAL[attention]
    ends = [[place for place, token in enumerate(keys_) if token == END] for keys_ in keys]
    for head, given in enumerate(heads):
        density = brute_force.density(found, head, is_causal)
        assert 0.1 < density < 0.95
        assert given["density"] == approx(density)
        expected = brute_force.density_histogram(found, head, is_causal, BINS)
        assert given["density_histogram"] == expected
        rows = [row for sentence in found for row in sentence[head]]
        assert given["entropy"] == approx(brute_force.mean(map(brute_force.entropy, rows)))
        expected = brute_force.confidence(found, head, is_causal, ends)
        assert given["confidence"] == approx(expected)
        expected = brute_force.offsets(found, head, is_causal)
        for name in ("maximum", "share", "weight"):
            assert given["offsets"][name] == approx(expected[name])
    expected = brute_force.diversity(found, is_causal)
    assert 0.05 < expected <= 1
    assert diversity == approx(expected)


def test_rare_words_punctuation_and_subwords_match_loops(case, attention):
    heads, found, queries, keys, facts, _ = case
    ranks = [[int(facts.rank[token]) for token in sentence] for sentence in keys]
    words = [word_places(sentence, facts) for sentence in queries]
    assert any(len(places) > 2 for sentence in words for places in sentence)
    for head, given in enumerate(heads):
        if attention == "cross":
            assert given["subword_merging"] is None
        else:
            assert given["subword_merging"] == approx(brute_force.merging(found, head, words))
        if attention == "decoder-self":
            assert given["rare_word"] is given["final_punctuation"] is None
            continue
        expected = brute_force.rare_word(found, head, ranks, 500)
        assert 0 < expected["rarest"] < expected["two_rarest"] < 1
        assert given["rare_word"] == approx(expected)
        # Weight on the last token except quotes, if it asks or states, from all other tokens
        values, asking = {10: [], 11: []}, {10: [], 11: []}
        for sentence, tokens in zip(found, keys, strict=True):
            place = max((n for n, token in enumerate(tokens) if token not in (END, 12)), default=0)
            own = (place, len(tokens) - 1) if attention == "encoder-self" else ()
            if tokens[place] in values:
                rows = [(i, row[place]) for i, row in enumerate(sentence[head]) if i not in own]
                values[tokens[place]] += [weight for _, weight in rows]
                if attention == "encoder-self":
                    asks = [token in ASKING and token % 3 > 0 for token in tokens]
                    asking[tokens[place]] += [weight for i, weight in rows if asks[i]]
        for name, expected in (("final_punctuation", values), ("question_word", asking)):
            question, other = map(brute_force.mean, expected.values())
            both = {"interrogative": question, "declarative": other}
            assert given[name] == (None if question is None else approx(both))


@pytest.mark.parametrize("left", [False, True], ids=["right", "left"])
def test_runs_and_clusters_match_loops(attention, left):
    statistics, found = LayerStatistics(attention, 3, {"equal_weights"}), []
    for batch, weights in batches(attention, table(), left, steps=2):
        # Padding rows have equal weights too, which must not count
        queries, keys = batch.sides(attention)
        weights += 0.25 * (~queries.real[:, None, :, None] & keys.real[:, None, None])
        statistics.update(weights, batch)
        found += cut(weights, batch, attention)
    for head, given in enumerate(statistics.results()["heads"]):
        expected = brute_force.equal_weights(found, head)
        assert given["equal_weights"] == pytest.approx(expected, abs=1e-6)
        assert 1.1 < expected["run_length"] < expected["cluster_size"]
        assert 0.05 < expected["run_weight"] < expected["cluster_weight"] <= 1


def one_sentence(length):
    words = [[4 + i for i in range(length - 1)] + [END]]
    return batch_of(words, words, table())


def measured(weights, batch):
    statistics = LayerStatistics("encoder-self", weights.size(1))
    statistics.update(weights, batch)
    return statistics


@pytest.mark.parametrize(
    ("share", "of_all", "role"),
    [
        (0.9, 0.8, {"offset": -1, "share": 0.9, "confidence": 0.7}),
        (0.899, 0.8, None),
        (1.0, 0.51, {"offset": -1, "share": 1.0, "confidence": 0.7}),
        (1.0, 0.5, None),
        (None, 0.8, None),
    ],
)
def test_a_role_needs_nine_tenths_of_its_queries_and_half_of_all(share, of_all, role):
    shares = {"maximum": of_all, "share": share, "weight": 0.7}
    assert positional_role({name: {"-1": value} for name, value in shares.items()}) == role


@pytest.mark.parametrize("offset", [-2, 1])
def test_a_head_that_attends_to_one_offset_has_a_positional_role(offset):
    places = [place + offset if 0 <= place + offset < 12 else place for place in range(12)]
    weights = torch.eye(12)[places][None, None]
    head = measured(weights, one_sentence(12)).results()["heads"][0]
    assert head["positional"] == {"offset": offset, "share": 1.0, "confidence": 1.0}


def test_only_requested_measures_are_computed_and_one_head_has_no_diversity():
    n = 6
    weights = torch.full((1, 2, n, n), 1 / n)
    statistics = LayerStatistics("encoder-self", 2, {"density"})
    statistics.update(weights, one_sentence(n))
    head = statistics.results()["heads"][0]
    assert (head.pop("head"), head.pop("density"), sum(head.pop("density_histogram"))) == (0, 1, 1)
    assert set(head.values()) == {None}
    assert statistics.results()["diversity"] is None
    for other, length in ((weights[:, :1], n), (torch.ones(1, 2, 1, 1), 1)):  # a head, or a key
        assert measured(other, one_sentence(length)).results()["diversity"] is None
    assert measured(weights, one_sentence(n)).results()["diversity"] == pytest.approx(0, abs=1e-6)
