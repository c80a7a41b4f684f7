"""Classifiers: accuracy, what pools, and the words that it selects."""

from collections import defaultdict

import pytest
import torch
from torch.nn.functional import cross_entropy

from fairseq_entmax.analysis import head_sensitivity, load_model, load_samples, load_task
from fairseq_entmax.analysis.data.data_types.class_results import FEWEST_PLACES, MOST_WORDS
from tests.analysis.data_types import made
from tests.analysis.data_types.made import CLASSES, model_of

pytestmark = pytest.mark.slow

TEXTS = 60


def task_of(folder):
    checkpoint = str(folder / "sparse.pt")
    return load_task(str(folder / "bin"), task=CLASSES, checkpoint=checkpoint)


def passed(folder, name):
    """Each text of the data: its tokens, its class, the model's scores and its pooling weights."""
    task = task_of(folder)
    model = load_model(str(folder / f"{name}.pt"), task).model
    for sample in sorted(load_samples(task, "valid", range(TEXTS)), key=lambda one: int(one["id"])):
        with torch.no_grad():
            logits, extra = model(
                **sample["net_input"], features_only=True, classification_head_name=made.HEAD
            )
        tokens = sample["net_input"]["src_tokens"][0].tolist()
        weights = {key: value[0].double() for key, value in extra["pooling"].items()}
        yield tokens, int(sample["target"]), logits[0], weights


@pytest.mark.parametrize("name", ["softmax", "sparse", "learned"])
def test_loss_accuracy_and_what_pools_are_those_of_the_texts(labelled, of_labelled, name):
    data = of_labelled["data"]
    assert (data["kind"], data["labels"]) == ("labelled", list(made.LABELS))
    assert (data["sentences"], data["target_tokens"]) == (TEXTS, None)
    confusion, loss = torch.zeros(2, 2, dtype=torch.int64), 0.0
    sums = defaultdict(float)
    for tokens, gold, logits, weights in passed(labelled, name):
        confusion[gold, int(logits.argmax())] += 1
        loss += float(cross_entropy(logits[None], torch.tensor([gold])))
        for head, row in enumerate(weights["pooling"]):
            above = row[row > 0]
            sums[head, "support"] += len(above) / TEXTS
            sums[head, "density"] += len(above) / (len(tokens) - 1) / TEXTS  # but </s>
            sums[head, "entropy"] -= float((above * above.log()).sum()) / TEXTS
            sums[head, "confidence"] += float(row.max()) / TEXTS
    entry = model_of(of_labelled, name)
    found = entry["classification"]
    assert found["confusion"] == confusion.tolist()
    assert found["accuracy"] == pytest.approx(int(confusion.diagonal().sum()) / TEXTS)
    assert entry["loss"] == pytest.approx(loss / TEXTS, rel=1e-5)
    (pooling,) = found["pooling"]
    assert len(pooling["heads"]) == (2 if name == "sparse" else 1)
    for (head, number), value in sums.items():
        assert pooling["heads"][head][number] == pytest.approx(value, rel=1e-4, abs=1e-6)


def words_of(folder, name, pooling, part):
    """By class, word to its weight, an even weight, and its places: one token after another."""
    symbols = task_of(folder).source_dictionary.symbols
    found = [defaultdict(lambda: [0.0, 0.0, 0]) for _ in made.LABELS]
    for tokens, gold, _, weights in passed(folder, name):
        end = tokens.index(2)
        places = range(end) if part == 0 else range(end + 1, len(tokens) - 1)
        even, mean = 1 / len(places), weights[pooling].mean(0)
        groups = []
        for place in places:
            if symbols[tokens[place]].startswith("▁") or not groups:
                groups.append([])
            groups[-1].append(place)
        for group in groups:
            word = "".join(symbols[tokens[place]] for place in group).replace("▁", "")
            sums = found[gold][word]
            sums[0] += sum(float(mean[place]) for place in group)
            sums[1] += even * len(group)
            sums[2] += 1
    return found


@pytest.mark.parametrize(
    ("folder", "name", "part"),
    [("labelled", "pooling", 0), ("pairs", "premise", 0), ("pairs", "hypothesis", 1)],
)
def test_the_words_of_a_class_are_those_with_the_most_weight_for_their_number(
    folder, name, part, request
):
    expected = words_of(request.getfixturevalue(folder), "sparse", name, part)
    analysis = request.getfixturevalue(f"of_{folder}")
    poolings = model_of(analysis, "sparse")["classification"]["pooling"]
    (found,) = (one["words"] for one in poolings if one["name"] == name)
    assert sum(map(len, found)) > 3
    for of_class, rows in zip(expected, found, strict=True):
        listed = {
            word: sums for word, sums in of_class.items()
            if sums[2] >= FEWEST_PLACES and sums[0] > 0
        }  # fmt: skip
        assert len(rows) == min(len(listed), MOST_WORDS)
        ratios = [row["ratio"] for row in rows]
        assert ratios == sorted(ratios, reverse=True)
        for row in rows:
            weight, even, count = listed[row["word"]]
            assert row["count"] == count
            assert row["ratio"] == pytest.approx(weight / even, rel=1e-4)
            assert row["weight"] == pytest.approx(weight / count, rel=1e-4)


def test_each_text_with_a_map_has_its_weights_its_label_and_what_models_say(labelled, of_labelled):
    texts = list(passed(labelled, "sparse"))
    place = [model["name"] for model in of_labelled["models"]].index("sparse")
    assert [entry["sentence"] for entry in of_labelled["maps"]] == [3, 0, 7]
    for entry in of_labelled["maps"]:
        tokens, gold, logits, weights = texts[entry["sentence"]]
        said = entry["classified"][place]
        assert (len(entry["source"]), entry["label"]) == (len(tokens), gold)
        assert entry["queries"] == entry["targets"] == []
        assert said["label"] == int(logits.argmax())
        assert said["probability"] == pytest.approx(float(logits.softmax(0).max()), rel=1e-5)
        found = torch.tensor(said["pooling"]["pooling"], dtype=torch.float64)
        assert torch.equal(found == 0, weights["pooling"] == 0)
        torch.testing.assert_close(found, weights["pooling"], atol=1e-5, rtol=1e-5)


def test_texts_that_nobody_chose_are_of_all_labels_and_some_of_them_are_wrong(labelled, tmp_path):
    analysis = made.analysed(labelled, CLASSES, ["sparse"], tmp_path, "--measures=density")
    texts = list(passed(labelled, "sparse"))
    shown = [texts[entry["sentence"]][1:3] for entry in analysis["maps"]]
    assert sorted(gold for gold, _ in shown) == [0] * 5 + [1] * 5
    # Of three wrong texts the first label has two
    wrong = [[int(logits.argmax()) != gold for gold, logits in shown if gold == n] for n in (0, 1)]
    assert [sum(own) for own in wrong] == [2, 1]


def test_the_gradient_is_that_of_the_loss_of_the_class(labelled):
    task = task_of(labelled)
    model = load_model(str(labelled / "learned.pt"), task).model.double()
    (sample,) = load_samples(task, "valid", [4])

    def loss():
        head = {"features_only": True, "classification_head_name": made.HEAD}
        return cross_entropy(model(**sample["net_input"], **head)[0], sample["target"].view(-1))

    found = head_sensitivity(model, sample)["encoder-self"][1][0, 2]
    expected = made.slope(loss, model.encoder.layers[1].self_attn.out_proj.weight[:, 8:12])
    assert float(found) == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda s: s["task"].pop("num_classes"), "--num-classes got -1, and "),
        (lambda s: s["task"].update(regression_target=True), "predicts numbers, by --regression-"),
        (
            lambda s: s["criterion"].update(classification_head_name="other"),
            "has no classification head other, but sentence_classification_head",
        ),
    ],
)
def test_a_checkpoint_that_says_too_little_is_refused(labelled, tmp_path, capsys, change, expected):
    state = torch.load(labelled / "sparse.pt", weights_only=False)
    change(state["cfg"])
    torch.save(state, tmp_path / "m.pt")
    (tmp_path / "bin").symlink_to(labelled / "bin")
    assert made.run("analyze", tmp_path, CLASSES, ["m"], tmp_path / "x") == 1
    assert expected in capsys.readouterr().err
