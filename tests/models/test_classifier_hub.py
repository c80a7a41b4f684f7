"""Predictions from Python: sources as the task makes them, ensembles, numbers, words selected."""

import math
from argparse import Namespace

import numpy
import pytest
import torch
from fairseq.data import Dictionary
from fairseq.data.indexed_dataset import MMapIndexedDatasetBuilder
from fairseq.tasks.sentence_prediction import SentencePredictionTask

from fairseq_entmax.models.classifier_hub import ClassifierHubInterface
from tests.support import build_classifier, build_model, classification_task

PAIRS = [("w1 w2 w3", "w4"), ("w5", "w6 unknown"), ("", "w7 w8 w9 w10")]


def interface(task, *models):
    return ClassifierHubInterface(Namespace(tokenizer=None, bpe=None), task, models)


def classifier(task=None, **options):
    task = task or classification_task()
    return interface(task, build_classifier(task=task, **options))


@pytest.mark.parametrize(
    ("initial", "separator", "shortened"),
    [(None, None, {}), (0, 2, {}), (0, 23, {"shorten_method": "truncate", "max_positions": 4})],
)
def test_a_source_is_what_the_task_makes_of_its_data(tmp_path, initial, separator, shortened):
    task = classification_task(
        data=str(tmp_path),
        init_token=initial,
        separator_token=separator,
        regression_target=True,
        seed=1,
        **shortened,
    )
    for name, texts in zip(("input0", "input1"), zip(*PAIRS, strict=True), strict=True):
        (tmp_path / name).mkdir()
        builder = MMapIndexedDatasetBuilder(str(tmp_path / name / "test.bin"), dtype=numpy.int32)
        for text in texts:
            builder.add_item(task.source_dictionary.encode_line(text, add_if_not_exist=False).int())
        builder.finalize(str(tmp_path / name / "test.idx"))
    data = task.load_dataset("test")
    found = classifier(task)
    sources = {
        int(item["id"]): item["net_input.src_tokens"] for item in map(data.__getitem__, range(3))
    }
    for number, pair in enumerate(PAIRS):
        assert found.encode(pair).tolist() == sources[number].tolist()


def test_a_text_that_is_too_long_is_refused():
    with pytest.raises(
        ValueError, match="a text has 71 tokens, and the model reads 64 at the most"
    ):
        classifier().predict(["w1 " * 70])


def test_one_text_in_the_place_of_a_list_is_refused():
    with pytest.raises(ValueError, match="predict takes a list of texts"):
        classifier().predict("w1 w2")


@pytest.mark.parametrize("text", [("w1", "w2", "w3"), ("w1",)])
def test_what_is_neither_a_text_nor_a_pair_is_refused(text):
    with pytest.raises(ValueError, match=r"predict takes texts and pairs \(first, second\) of t"):
        classifier().predict([text])


def test_one_text_is_refused_by_a_model_of_pairs():
    with pytest.raises(ValueError, match=r"give predict a pair .* of the one text 'w1 w2'"):
        classifier(pair_attention=True).predict(["w1 w2"])


def test_a_model_that_does_not_classify_is_refused():
    with pytest.raises(ValueError, match="a model that is no classifier: give one that was train"):
        interface(classification_task(), build_model())


def test_predictions_do_not_depend_on_the_batch_nor_on_dropout():
    hub = classifier(dropout=0.5, pooling_heads=2)
    hub.models.train()
    texts = ["w1 w2 w3", "w4", "", "w5 w5 w5 w5"]
    alone = [hub.predict([text])[0] for text in texts]
    for one, other in zip(hub.predict(texts, batch_size=3), alone, strict=True):
        assert one.label == other.label
        assert one.log_probs == pytest.approx(other.log_probs, abs=1e-5)
        torch.testing.assert_close(one.pooling, other.pooling, atol=1e-5, rtol=0)
        assert list(one.log_probs) == ["class0", "class1", "class2"]
        assert max(one.log_probs, key=one.log_probs.get) == one.label
    assert hub.models[0].training


def test_an_ensemble_averages_probabilities_and_weights():
    task = classification_task()
    models = [build_classifier(seed=seed, task=task) for seed in (1, 2)]
    (both,) = interface(task, *models).predict(["w1 w2 w3"])
    each = [interface(task, model).predict(["w1 w2 w3"])[0] for model in models]
    for label, value in both.log_probs.items():
        expected = sum(math.exp(one.log_probs[label]) for one in each) / 2
        assert math.exp(value) == pytest.approx(expected, abs=1e-6)
    expected = (each[0].pooling["pooling"] + each[1].pooling["pooling"]) / 2
    torch.testing.assert_close(both.pooling["pooling"], expected)


@pytest.mark.parametrize(
    "other",
    [
        lambda: build_classifier(pooling_heads=2),
        lambda: build_classifier(pair_attention=True),
        lambda: build_classifier(task=classification_task(2)),
    ],
)
def test_an_ensemble_of_models_that_differ_is_refused(other):
    with pytest.raises(ValueError, match="the models of an ensemble have the same --pair-att"):
        interface(classification_task(), build_classifier(), other())


def test_words_that_fill_the_dictionary_of_labels_up_name_no_class():
    labels = Dictionary()
    for name, count in (("yes", 5), ("2", 4), ("madeupword0000", 0), ("madeupword0001", 0)):
        labels.add_symbol(name, n=count)
    labels.add_symbol("<mask>")  # as fairseq's task adds it
    own = classification_task(num_classes=5)
    hub = classifier(SentencePredictionTask(own.cfg, own.source_dictionary, labels))
    (found,) = hub.predict(["w1 w2"])
    # A number that is a label's name is not taken for another class
    assert list(found.log_probs) == ["yes", "2", "class 2", "3", "4"]


def test_regression_gives_numbers():
    task = classification_task(num_classes=1, regression_target=True)
    hub = classifier(task)
    (found,) = hub.predict(["w1 w2"])
    scores = hub.models[0](hub.encode("w1 w2")[None], None, True, "sentence_classification_head")[0]
    assert (found.label, found.log_probs) == (None, {})
    assert found.values == pytest.approx(scores[0].tolist())


def test_another_head_has_numbers_for_labels():
    hub = classifier()
    hub.models[0].register_classification_head("other", num_classes=5)
    (found,) = hub.predict(["w1 w2"], head="other")
    assert list(found.log_probs) == ["0", "1", "2", "3", "4"]


def test_selected_words_are_those_with_weight_the_largest_first():
    hub = classifier(pair_attention=True, pooling_mapping="sparsemax", pooling_heads=2)
    (found,) = hub.predict([("w1 w2 w3 w4", "w5 w6 w7")])
    for name in ("hypothesis", "premise"):
        weights = found.pooling[name].mean(0).tolist()
        expected = {token: w for token, w in zip(found.tokens, weights, strict=True) if w > 0}
        selected = found.selected(name)
        assert dict(selected) == expected
        assert [w for _, w in selected] == sorted(expected.values(), reverse=True)
    assert found.selected() == found.selected("hypothesis")
