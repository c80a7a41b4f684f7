"""Measures with annotations: constructed attention, and loops over words and subwords."""

import math
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
import torch
from fairseq.data import Dictionary, data_utils
from torch import Tensor

from fairseq_entmax.analysis.data.annotations.annotated import AnnotatedBatch, Annotations
from fairseq_entmax.analysis.data.batch import Batch, Side
from fairseq_entmax.analysis.data.tokens import TokenTable
from fairseq_entmax.analysis.passes.collect import AnnotationCounts, _baselines
from fairseq_entmax.analysis.passes.statistics import LayerStatistics
from fairseq_entmax.attentions import CROSS, ENCODER_SELF
from tests.analysis.annotations.test_conllu import line
from tests.analysis.test_tokens import dictionary as of_symbols

RELATIONS = ["nsubj", "obj", "amod", "punct", "nsubj:pass"]
TAGS = ["NOUN", "VERB", "ADJ", "_"]
TABLE = TokenTable.of(of_symbols("a", "b", "cd"))


@dataclass
class Example:
    """A sentence and the values that the tests have to find; words are those of the text."""

    conllu: str
    symbols: list[str]  # subwords without the end
    part_of: list[int]  # the word of each subword
    arcs: list[tuple[int, int, str]]  # dependent, head and relation
    tags: list[list[str]]  # of each word
    entities: list[bool]  # of each word
    weights: dict[str, Tensor]  # of three heads of each attention, (heads, queries, keys)


def random_example(generator: random.Random) -> Example:
    """A random sentence: words have one to three subwords, and some contain two syntactic words."""
    example = Example("", [], [], [], [], [], {})
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
            rows.append([number + 1, form, "_", tag, "_", "_", head + 1, relation, "_", misc])
            example.tags[-1] += [tag] if tag != "_" else []
            example.entities[-1] |= entity
            if relation != "punct" and owner[head] != word:
                example.arcs.append((word, owner[head], relation.split(":")[0]))
            number += 1
    example.conllu = "\n".join("\t".join(map(str, row)) for row in rows) + "\n\n"
    return example


@pytest.fixture
def dictionary():
    return of_symbols("▁a", "▁b", "▁cd", "a", "b", "cd", "▁", "▁ab")


@pytest.fixture
def annotated(tmp_path, dictionary):
    """A function that opens annotations from their text."""

    def build(text, sentences=None, dictionary=dictionary):
        path = tmp_path / "parses.conllu"
        path.write_text(text, encoding="utf-8")
        return Annotations(str(path), dictionary, sentences)

    return build


def collate(dictionary: Dictionary, sentences: list[str]) -> Tensor:
    """Tokens, each sentence with its end, padded on the left."""
    rows = [dictionary.encode_line(text, add_if_not_exist=False).long() for text in sentences]
    return data_utils.collate_tokens(rows, dictionary.pad(), left_pad=True)


def in_batch(attention: str, annotated: AnnotatedBatch, real: Tensor) -> Batch:
    """A batch whose queries are real where ``real`` is true, and padding elsewhere."""
    places, known = torch.zeros(real.shape), torch.ones(annotated.word.shape)
    queries, source = (
        Side(places.long(), own, ~own, torch.zeros(len(own)).long(), own.sum(dim=1), own.long() - 1)
        for places, own in ((places, real), (known, known.bool()))
    )
    return Batch(queries if attention == ENCODER_SELF else source, queries, TABLE, annotated)


def numbers_of(statistics: LayerStatistics) -> list[dict]:
    names = ("dependencies", "pos_kl", "named_entity", "pos_shares")
    return [{name: head[name] for name in names} for head in statistics.results()["heads"]]


def test_measures_without_their_annotations_are_none(annotated, dictionary):
    tokens = collate(dictionary, ["▁a"])
    the_end, every_token = torch.eye(2)[[1, 1]], torch.full((2, 2), 0.5)
    for text, weights in ((line(1, "a", upos="NOUN"), the_end), (line(1, "a"), every_token)):
        annotations = annotated(text + "\n")
        batch = annotations.batch(torch.tensor([0]), tokens)
        statistics = LayerStatistics(ENCODER_SELF, 2, ())
        batch_of_it = in_batch(ENCODER_SELF, batch, tokens != 1)
        statistics.update(weights.expand(1, 2, 2, 2), batch_of_it)
        assert [set(head.values()) for head in numbers_of(statistics)] == [{None}] * 2
    counts = AnnotationCounts(annotations)
    counts.update(batch)
    nothing = dict.fromkeys(("relations", "part_of_speech", "named_entities"))
    assert counts.results() == {"file": annotations.path, "sentences": 1, **nothing}


def random_data(count: int = 12) -> Iterator[Example]:
    """Sentences with sparse weights; in some rows several tokens have the same weight."""
    generator = torch.Generator().manual_seed(0)
    for number in range(count):
        example = random_example(random.Random(number))
        keys = len(example.symbols) + 1
        for attention, queries in ((ENCODER_SELF, keys), (CROSS, 2 + number % 5)):
            scores = torch.randint(0, 4, (3, queries, keys), generator=generator).float()
            scores[..., -1] += 1.0
            scores[0, :: 2 if number else 1, :-1] = 0.0  # queries with weight only on the end
            example.weights[attention] = scores / scores.sum(dim=-1, keepdim=True)
        yield example


def run(annotations, dictionary, examples, order, size):
    """Each head's values in batches of a given size, and those of the file."""
    statistics = {one: LayerStatistics(one, 3, ()) for one in (ENCODER_SELF, CROSS)}
    counts = AnnotationCounts(annotations)
    for begin in range(0, len(order), size):
        ids = order[begin : begin + size]
        tokens = collate(dictionary, [" ".join(examples[i].symbols) for i in ids])
        batch = annotations.batch(torch.tensor(ids), tokens)
        counts.update(batch)
        for attention, own in statistics.items():
            pads_left = attention == ENCODER_SELF  # this attention is padded on the left
            queries = max(examples[i].weights[attention].size(1) for i in ids)
            weights = torch.zeros(len(ids), 3, queries, tokens.size(1))
            weights[..., -2] = 1.0  # padding rows have weights too, which must not count
            real = torch.zeros(len(ids), queries, dtype=torch.bool)
            for index, i in enumerate(ids):
                found = examples[i].weights[attention]
                rows, keys = found.shape[1:]
                places = slice(queries - rows, None) if pads_left else slice(rows)
                weights[index, :, places] = 0.0
                weights[index, :, places, -keys:] = found
                real[index, places] = True
            own.update(weights, in_batch(attention, batch, real))
    return {attention: numbers_of(own) for attention, own in statistics.items()}, counts.results()


def looked_at(weights: Tensor, example: Example, word: int) -> int | None:
    """The word with most of a word's weight, by loops; None without weight on any word."""
    queries = [i for i, part in enumerate(example.part_of) if part == word]
    best, largest = None, 0.0
    for key_word in range(len(example.tags)):
        keys = [i for i, part in enumerate(example.part_of) if part == key_word]
        weight = sum(sum(float(weights[q, k]) for k in keys) for q in queries) / len(queries)
        if weight > largest + 1e-9:
            best, largest = key_word, weight
    return best


def loop_accuracy(examples: list[Example], head: int) -> dict[str, dict[str, float]]:
    hits: dict[str, list[tuple[bool, bool]]] = {}
    for example in examples:
        weights = example.weights[ENCODER_SELF][head]
        for dependent, governor, relation in example.arcs:
            to_head = looked_at(weights, example, dependent) == governor
            to_dependent = looked_at(weights, example, governor) == dependent
            hits.setdefault(relation, []).append((to_head, to_dependent))
    sides = {name: zip(*pairs, strict=True) for name, pairs in hits.items()}
    means = {name: [sum(one) / len(one) for one in own] for name, own in sides.items()}
    return {name: {"to_head": one, "to_dependent": two} for name, (one, two) in means.items()}


def loop_weights(examples: list[Example], attention: str, head: int) -> dict:
    """Tag divergence, tag shares and weight on entities as means over sentences."""
    divergences, shares, on_entities = [], Counter(), []
    for example in examples:
        weights = example.weights[attention][head].double().sum(dim=0).tolist()
        on_tag, of_tag = Counter(), Counter()
        for weight, word in zip(weights, example.part_of, strict=False):
            for tag in example.tags[word]:
                of_tag[tag] += 1 / len(example.tags[word])
                on_tag[tag] += weight / len(example.tags[word])
        total, tokens = sum(on_tag.values()), sum(of_tag.values())
        if total > 0:
            own = {tag: on / total for tag, on in on_tag.items()}
            shares.update(own)
            ratios = [(p, p / (of_tag[tag] / tokens)) for tag, p in own.items() if p > 0]
            divergences.append(sum(p * math.log(ratio) for p, ratio in ratios))
        words = zip(weights, example.part_of, strict=False)
        named = sum(weight for weight, word in words if example.entities[word])
        if any(weights[:-1]):
            on_entities.append(named / sum(weights[:-1]))
    number = len(divergences)
    return {
        "pos_kl": pytest.approx(sum(divergences) / number, rel=1e-6),
        "pos_shares": pytest.approx({tag: value / number for tag, value in shares.items()}),
        "named_entity": pytest.approx(sum(on_entities) / len(on_entities), rel=1e-6),
    }


@pytest.mark.parametrize("size", [1, 5, 12])
def test_batches_of_any_size_match_the_loops(annotated, dictionary, size):
    examples = list(random_data())
    annotations = annotated("".join(example.conllu for example in examples), 12)
    order = sorted(range(12), key=lambda i: len(examples[i].symbols))
    heads, counts = run(annotations, dictionary, examples, order, size)
    for attention, own in heads.items():
        for head, found in enumerate(own):
            accuracy = found.pop("dependencies")
            assert found == loop_weights(examples, attention, head)
            if attention == CROSS:
                assert accuracy is None
                continue
            expected = loop_accuracy(examples, head).items()
            assert accuracy == {name: pytest.approx(own) for name, own in expected}
    assert counts["sentences"] == 12
    for relation, found in counts["relations"].items():
        arcs = (arc for example in examples for arc in example.arcs if arc[2] == relation)
        offsets = Counter(head - dependent for dependent, head, _ in arcs)
        assert found["count"] == offsets.total()
        places = {str(-offset): count / offsets.total() for offset, count in offsets.items()}
        assert found["offsets"] == places
        assert found["to_head"]["baseline"] == max(offsets.values()) / offsets.total()
        assert offsets[found["to_head"]["offset"]] == max(offsets.values())
        assert offsets[-found["to_dependent"]["offset"]] == max(offsets.values())
    entities = [
        sum(example.entities[word] for word in example.part_of) / len(example.part_of)
        for example in examples
    ]
    assert counts["named_entities"] == pytest.approx(sum(entities) / 12)
    shares = Counter()
    for example in examples:
        tags = Counter()
        for own in (example.tags[word] for word in example.part_of):
            tags.update({tag: own.count(tag) / len(own) for tag in own})
        shares.update({tag: weight / tags.total() for tag, weight in tags.items()})
    assert counts["part_of_speech"] == {tag: pytest.approx(shares[tag] / 12) for tag in shares}


def test_the_baseline_of_equally_frequent_offsets_is_the_nearest_then_the_one_to_the_left():
    found = _baselines(Counter([-8, -1, 1, 9]))
    baseline = {"baseline": 1 / 4, "offset": -1}
    assert found["to_head"] == found["to_dependent"] == baseline
    assert found["offsets"] == {"-1": 1 / 4, "1": 1 / 4, "8": 1 / 4}  # at most 8 words apart


@pytest.mark.parametrize("kind", ["Int", "Rel"])
def test_interrogative_words_are_those_marked_in_the_parse(annotated, dictionary, kind):
    asking = line(1, "ab").replace("_\t_\t0", f"_\tNumber=Sing|PronType={kind}\t0")
    tokens = collate(dictionary, ["▁a b ▁cd"])
    batch = annotated(asking + line(2, "cd") + "\n").batch(torch.tensor([0]), tokens)
    found = batch.interrogative
    if kind == "Rel":  # otherwise a list of words decides
        assert found is None
    else:
        assert found.tolist() == [[True, True, False, False]]
        side = Side.of(tokens, 1, 2, TokenTable.of(dictionary))
        assert Batch(side, side, TABLE, batch).interrogative is found


def test_a_marker_matches_a_word_as_the_unknown_word_does(annotated):
    dictionary = of_symbols("a", "b", "<unk-0>", "<unk-1>")
    text = line(1, "a") + line(2, "Xylo") + line(3, "b") + line(4, "phon") + "\n"
    annotations = annotated(text, dictionary=dictionary)
    tokens = collate(dictionary, ["a <unk-0> b <unk-1>"])
    assert annotations.batch(torch.tensor([0]), tokens).word.tolist() == [[0, 1, 2, 3, -1]]
    # A word in which no token begins has no arcs
    text = line(1, "a", head=2) + line(2, "Xylo", head=3) + line(3, "phon")
    annotations = annotated(text.replace("_\t_\t_\n", "obj\t_\t_\n") + "\n", dictionary=dictionary)
    batch = annotations.batch(torch.tensor([0]), collate(dictionary, ["a <unk-0>"]))
    assert (batch.arc_dependent.tolist(), batch.arc_head.tolist()) == ([0], [1])


def test_a_text_that_differs_or_another_number_of_sentences_is_refused(annotated, dictionary):
    annotations = annotated(line(1, "a") + "\n" + line(1, "b") + line(2, "cd") + "\n")
    tokens = collate(dictionary, ["▁b ▁a ▁b"])
    with pytest.raises(
        ValueError,
        match=r"parses\.conllu does not match the source text in sentence 1, counted "
        r"from 0: it has 'b cd', the data has '▁b ▁a ▁b'\. It must have a parse of each line",
    ):
        annotations.batch(torch.tensor([1]), tokens)
    with pytest.raises(ValueError, match="conllu has 1 sentences, but the data set has 2: it"):
        annotated(line(1, "a") + "\n", sentences=2)
