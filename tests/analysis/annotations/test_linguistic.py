"""Heads against annotations: constructed attention, and loops over words and subwords."""

from __future__ import annotations

import math
import random
from collections import Counter
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from fairseq.data import Dictionary
from torch import Tensor

from fairseq_entmax.analysis.annotations.annotated import Annotations
from fairseq_entmax.analysis.annotations.counts import AnnotationCounts
from fairseq_entmax.analysis.batch import Batch, Side
from fairseq_entmax.analysis.statistics import LayerStatistics
from fairseq_entmax.attentions import CROSS, ENCODER_SELF

RELATIONS = ["nsubj", "obj", "amod", "punct", "nsubj:pass"]
TAGS = ["NOUN", "VERB", "ADJ", "_"]
END = -1


@dataclass
class Example:
    """A sentence, made with what the tests have to find; words are those of the text."""

    conllu: str
    symbols: list[str]  # subwords, without the end
    part_of: list[int]  # the word of each subword
    arcs: list[tuple[int, int, str]]  # dependent, head and relation
    tags: list[list[str]]  # of each word
    entities: list[bool]  # of each word


def random_example(generator: random.Random) -> Example:
    """A random sentence: words of one to three subwords, some that bind two syntactic words."""
    example = Example("", [], [], [], [], [])
    text_words = generator.randint(2, 6)
    bound = [generator.choice([1, 1, 1, 2]) for _ in range(text_words)]
    owner = [number for number, count in enumerate(bound) for _ in range(count)]
    rows, number = [], 0
    for word, count in enumerate(bound):
        subwords = generator.choices(["a", "b", "cd"], k=generator.randint(1, 3))
        example.symbols += ["▁" + subwords[0], *subwords[1:]]
        example.part_of += [word] * len(subwords)
        example.tags.append([])
        example.entities.append(False)
        if count > 1:
            rows.append([f"{number + 1}-{number + count}", "".join(subwords), *"________"])
        for _ in range(count):
            tag, relation = generator.choice(TAGS), generator.choice(RELATIONS)
            head = generator.choice([h for h in range(len(owner)) if h != number])
            entity = generator.random() < 0.3
            misc = "NE=PER" if entity else "NE=O"
            form = "".join(subwords) if count == 1 else "x"
            rows.append(
                [str(number + 1), form, "_", tag, "_", "_", str(head + 1), relation, "_", misc]
            )
            example.tags[-1] += [tag] if tag != "_" else []
            example.entities[-1] |= entity
            if relation != "punct" and owner[head] != word:
                example.arcs.append((word, owner[head], relation.split(":")[0]))
            number += 1
    example.conllu = "\n".join(["\t".join(row) for row in rows]) + "\n\n"
    return example


@pytest.fixture
def dictionary():
    dictionary = Dictionary()
    for symbol in ["▁a", "▁b", "▁cd", "a", "b", "cd", "▁", "▁ab"]:
        dictionary.add_symbol(symbol)
    return dictionary


@pytest.fixture
def annotated(tmp_path, dictionary):
    """Opens annotations from their text."""

    def build(text, sentences=None):
        path = tmp_path / "parses.conllu"
        path.write_text(text, encoding="utf-8")
        return Annotations(str(path), dictionary, sentences)

    return build


def collate(dictionary: Dictionary, sentences: list[str]) -> Tensor:
    """Tokens with an end of sentence each, padded on the left."""
    rows = [
        [dictionary.index(symbol) for symbol in text.split()] + [dictionary.eos()]
        for text in sentences
    ]
    length = max(map(len, rows))
    return torch.tensor([[dictionary.pad()] * (length - len(row)) + row for row in rows])


def row(number: int, form: str, head: int | str = "_", relation: str = "_", **columns: str) -> str:
    """A line of CoNLL-U."""
    upos, misc = columns.get("upos", "_"), columns.get("misc", "_")
    return f"{number}\t{form}\t_\t{upos}\t_\t_\t{head}\t{relation}\t_\t{misc}\n"


class LinguisticStatistics:
    """What the heads of each attention do with annotations."""

    def __init__(self):
        self._layers: dict[str, LayerStatistics] = {}

    def update(self, attention, weights, annotated, real):
        """Add weights ``(batch, heads, queries, keys)``; ``real``: which queries are no padding."""
        statistics = LayerStatistics(attention, weights.size(1), ())
        statistics = self._layers.setdefault(attention, statistics)
        places = torch.zeros(real.shape, dtype=torch.long)
        queries = Side(places, real, ~real, places[:, 0], real.sum(dim=1), None)
        tokens = annotated.word
        known = torch.ones(tokens.shape, dtype=torch.bool)
        keys = Side(tokens, known, ~known, tokens[:, 0], known.sum(dim=1), None)
        source = queries if attention == ENCODER_SELF else keys
        statistics.update(weights, Batch(source, queries, None, annotated))

    def results(self, attention: str) -> list[dict[str, Any]]:
        """What is known of each head."""
        names = ("dependencies", "pos_kl", "named_entity", "pos_shares")
        heads = self._layers[attention].results()["heads"]
        return [{name: head[name] for name in names} for head in heads]


# a ←nsubj– b –obj→ cd: three words, the last of two subwords
SIMPLE = row(1, "a", 2, "nsubj") + row(2, "b", 0, "root") + row(3, "cda", 2, "obj") + "\n"
SIMPLE_TEXT = "▁a ▁b ▁cd a"


def test_a_head_that_looks_at_the_syntactic_head_is_always_right(annotated, dictionary):
    tokens = collate(dictionary, [SIMPLE_TEXT])
    batch = annotated(SIMPLE).batch(torch.arange(1), tokens)
    statistics = LinguisticStatistics()
    # The second head looks at the end of the sentence, which is no word
    weights = torch.stack([torch.eye(5)[[1, 1, 1, 1, 4]], torch.eye(5)[[4] * 5]])[None]
    statistics.update(ENCODER_SELF, weights, batch, tokens != 1)
    first, second = statistics.results(ENCODER_SELF)
    for relation in ("nsubj", "obj"):
        assert first["dependencies"][relation] == {"to_head": 1.0, "to_dependent": 0.0}
        assert second["dependencies"][relation] == {"to_head": 0.0, "to_dependent": 0.0}
    annotations = annotated(row(1, "a", upos="NOUN", misc="NE=B-PER") + "\n")
    batch = annotations.batch(torch.arange(1), collate(dictionary, ["▁a"]))
    real = torch.ones(1, 2, dtype=torch.bool)
    statistics.update(CROSS, torch.eye(2)[[1, 1]][None, None], batch, real)
    (head,) = statistics.results(CROSS)
    assert head["pos_kl"] is head["named_entity"] is None


def test_of_offsets_as_frequent_the_left_one_is_the_baseline(annotated, dictionary):
    text = row(1, "a", 2, "amod") + row(2, "b", 0, "root") + row(3, "cd", 2, "amod") + "\n"
    annotations = annotated(text)
    counts = AnnotationCounts(annotations)
    counts.update(annotations.batch(torch.tensor([0]), collate(dictionary, ["▁a ▁b ▁cd"])))
    amod = counts.results()["relations"]["amod"]
    assert amod["to_head"]["offset"] == amod["to_dependent"]["offset"] == -1


def test_what_the_file_does_not_have_is_none(annotated, dictionary):
    annotations = annotated(row(1, "a") + "\n")
    tokens = collate(dictionary, ["▁a"])
    batch = annotations.batch(torch.tensor([0]), tokens)
    statistics = LinguisticStatistics()
    statistics.update(ENCODER_SELF, torch.full((1, 2, 2, 2), 0.5), batch, tokens != 1)
    for head in statistics.results(ENCODER_SELF):
        assert set(head.values()) == {None}
    counts = AnnotationCounts(annotations)
    counts.update(batch)
    nothing = dict.fromkeys(("relations", "part_of_speech", "named_entities"))
    assert counts.results() == {"file": annotations.path, "sentences": 1, **nothing}


@dataclass
class Data:
    """Random sentences, with random weights of three heads for each."""

    examples: list[Example]
    self_attention: list[Tensor]  # (heads, tokens, tokens)
    cross: list[Tensor]  # (heads, target tokens, tokens)


def random_data(count: int = 12) -> Data:
    """Sparse weights, some rows of them with the same weight on several tokens."""
    examples = [random_example(random.Random(seed)) for seed in range(count)]
    generator = torch.Generator().manual_seed(0)
    data = Data(examples, [], [])
    for number, example in enumerate(examples):
        keys = len(example.symbols) + 1
        for target, queries in ((data.self_attention, keys), (data.cross, 2 + number % 5)):
            scores = torch.randint(0, 4, (3, queries, keys), generator=generator).float()
            scores[..., -1] += 1.0
            target.append(scores / scores.sum(dim=-1, keepdim=True))
    return data


def run(annotations, dictionary, data, order, size):
    """Statistics over the data in batches of a size; padding gets no weight as key."""
    statistics, counts = LinguisticStatistics(), AnnotationCounts(annotations)
    for begin in range(0, len(order), size):
        ids = order[begin : begin + size]
        tokens = collate(dictionary, [" ".join(data.examples[i].symbols) for i in ids])
        batch = annotations.batch(torch.tensor(ids), tokens)
        counts.update(batch)
        keys, queries = tokens.size(1), max(data.cross[i].size(1) for i in ids)
        # Rows of padding have weights too, which must not count
        own, cross = torch.zeros(len(ids), 3, keys, keys), torch.zeros(len(ids), 3, queries, keys)
        own[..., -1] = cross[..., -2] = 1.0
        real = torch.zeros(len(ids), queries, dtype=torch.bool)
        for index, i in enumerate(ids):
            length = data.self_attention[i].size(-1)
            own[index, :, -length:] = 0.0
            own[index, :, -length:, -length:] = data.self_attention[i]
            cross[index, :, : data.cross[i].size(1)] = 0.0
            cross[index, :, : data.cross[i].size(1), -length:] = data.cross[i]
            real[index, : data.cross[i].size(1)] = True
        statistics.update(ENCODER_SELF, own, batch, tokens != dictionary.pad())
        statistics.update(CROSS, cross, batch, real)
    return statistics, counts


def looked_at(weights: Tensor, example: Example, word: int) -> int | None:
    """The word that a word looks at, by loops; None if it has no weight on any."""
    queries = [i for i, part in enumerate(example.part_of) if part == word]
    best, largest = None, 0.0
    for key_word in range(len(example.tags)):
        keys = [i for i, part in enumerate(example.part_of) if part == key_word]
        weight = sum(sum(float(weights[q, k]) for k in keys) for q in queries) / len(queries)
        if weight > largest + 1e-9:
            best, largest = key_word, weight
    return best


def loop_accuracy(data: Data, head: int) -> dict[str, dict[str, float]]:
    hits: dict[str, list[tuple[bool, bool]]] = {}
    for example, weights in zip(data.examples, data.self_attention, strict=True):
        for dependent, governor, relation in example.arcs:
            to_head = looked_at(weights[head], example, dependent) == governor
            to_dependent = looked_at(weights[head], example, governor) == dependent
            hits.setdefault(relation, []).append((to_head, to_dependent))
    ways = ("to_head", "to_dependent")
    return {
        relation: {
            way: sum(column) / len(pairs)
            for way, column in zip(ways, zip(*pairs, strict=True), strict=True)
        }
        for relation, pairs in hits.items()
    }


def loop_weights(data: Data, attention: list[Tensor], head: int) -> tuple[float, dict, float]:
    """The divergence of tags, their shares, and the weight on entities: means over sentences."""
    divergences, shares, on_entities = [], Counter(), []
    for example, weights in zip(data.examples, attention, strict=True):
        mass = [sum(float(q[key]) for q in weights[head]) for key in range(weights.size(-1))]
        on_tag, of_tag = Counter(), Counter()
        for key, word in enumerate(example.part_of):
            for tag in example.tags[word]:
                of_tag[tag] += 1 / len(example.tags[word])
                on_tag[tag] += mass[key] / len(example.tags[word])
        total, tokens = sum(on_tag.values()), sum(of_tag.values())
        if total > 0:
            own = {tag: on / total for tag, on in on_tag.items()}
            shares.update(own)
            ratios = [(p, p / (of_tag[tag] / tokens)) for tag, p in own.items() if p > 0]
            divergences.append(sum(p * math.log(ratio) for p, ratio in ratios))
        named = sum(mass[key] for key, word in enumerate(example.part_of) if example.entities[word])
        on_entities.append(named / sum(mass[:-1]))
    number = len(divergences)
    means = {tag: value / number for tag, value in shares.items()}
    return sum(divergences) / number, means, sum(on_entities) / len(on_entities)


@pytest.mark.parametrize("size", [1, 5, 12])
def test_batches_of_any_size_give_the_numbers_of_loops(annotated, dictionary, size):
    data = random_data()
    annotations = annotated("".join(example.conllu for example in data.examples), 12)
    order = sorted(range(12), key=lambda i: len(data.examples[i].symbols))
    statistics, counts = run(annotations, dictionary, data, order, size)
    for attention, weights in ((ENCODER_SELF, data.self_attention), (CROSS, data.cross)):
        for head, found in enumerate(statistics.results(attention)):
            divergence, shares, on_entities = loop_weights(data, weights, head)
            assert found["pos_kl"] == pytest.approx(divergence, rel=1e-6)
            assert found["pos_shares"] == pytest.approx(shares, rel=1e-6)
            assert found["named_entity"] == pytest.approx(on_entities, rel=1e-6)
            if attention == CROSS:
                assert found["dependencies"] is None
                continue
            expected = loop_accuracy(data, head)
            assert found["dependencies"].keys() == expected.keys()
            for relation, accuracy in expected.items():
                assert found["dependencies"][relation] == pytest.approx(accuracy)
    assert counts.results()["sentences"] == 12


def test_counts_are_those_of_loops(annotated, dictionary):
    data = random_data()
    annotations = annotated("".join(example.conllu for example in data.examples))
    results = run(annotations, dictionary, data, list(range(12)), 5)[1].results()
    for relation, found in results["relations"].items():
        arcs = (arc for example in data.examples for arc in example.arcs if arc[2] == relation)
        offsets = Counter(head - dependent for dependent, head, _ in arcs)
        assert found["count"] == offsets.total()
        assert found["to_head"]["baseline"] == max(offsets.values()) / offsets.total()
        assert offsets[found["to_head"]["offset"]] == max(offsets.values())
        assert offsets[-found["to_dependent"]["offset"]] == max(offsets.values())
    entities = [
        sum(example.entities[word] for word in example.part_of) / len(example.part_of)
        for example in data.examples
    ]
    assert results["named_entities"] == pytest.approx(sum(entities) / 12)
    assert sum(results["part_of_speech"].values()) == pytest.approx(1.0)


def test_a_marker_stands_for_a_word_as_the_unknown_word_does(tmp_path):
    dictionary = Dictionary()
    for symbol in ["a", "b", "<unk-0>", "<unk-1>"]:
        dictionary.add_symbol(symbol)
    (tmp_path / "parses.conllu").write_text(
        row(1, "a", 0) + row(2, "Xylo") + row(3, "b") + row(4, "phon") + "\n", encoding="utf-8"
    )
    annotations = Annotations(str(tmp_path / "parses.conllu"), dictionary)
    tokens = collate(dictionary, ["a <unk-0> b <unk-1>"])
    assert annotations.batch(torch.tensor([0]), tokens).word.tolist() == [[0, 1, 2, 3, -1]]


def test_a_text_that_differs_or_another_number_of_sentences_is_refused(annotated, dictionary):
    annotations = annotated(SIMPLE + row(1, "b") + row(2, "cd") + "\n")
    tokens = collate(dictionary, ["▁b ▁a ▁b"])
    with pytest.raises(
        ValueError,
        match=r"parses\.conllu does not match the source text in sentence 1, from 0: "
        r"it has 'b cd', the data has '▁b ▁a ▁b'\. It must hold a parse of every line",
    ):
        annotations.batch(torch.tensor([1]), tokens)
    with pytest.raises(ValueError, match=r"conllu has 1 sentences, the data set 2: one for each"):
        annotated(SIMPLE, sentences=2)
