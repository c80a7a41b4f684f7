"""Encoder-only models on masked words, on labelled texts, and on a text given by the user."""

import pytest
import torch
from torch.nn.functional import cross_entropy

from fairseq_entmax.analysis import head_sensitivity, load_model, load_samples, load_task
from fairseq_entmax.analysis.data.loading import load_dataset
from fairseq_entmax.analysis.data.samples import samples
from fairseq_entmax.analysis.looks.look import look
from tests.analysis.data_types import small
from tests.analysis.data_types.small import CLASSES, MASKED, model_of

pytestmark = pytest.mark.slow

TEXTS = 60
PASS = {"features_only": True, "classification_head_name": small.HEAD}


def loaded(folder, name, task=CLASSES):
    checkpoint = str(folder / f"{name}.pt")
    own = load_task(str(folder / "bin"), task=task, checkpoint=checkpoint)
    return own, load_model(checkpoint, own).model


@pytest.mark.parametrize("name", ["softmax", "sparse", "learned"])
@pytest.mark.parametrize("data", ["labelled", "pairs"])
def test_loss_and_accuracy_match_those_of_the_texts(request, data, name):
    analysis = request.getfixturevalue(f"of_{data}")
    assert analysis["data"]["kind"] == "labelled"
    assert (analysis["data"]["sentences"], analysis["data"]["target_tokens"]) == (TEXTS, None)
    task, model = loaded(request.getfixturevalue(data), name)
    right = loss = 0.0
    with torch.no_grad():
        for sample in load_samples(task, "valid", range(TEXTS)):
            logits, gold = model(**sample["net_input"], **PASS)[0], sample["target"].view(-1)
            right += int(logits.argmax()) == int(gold)
            loss += float(cross_entropy(logits, gold))
    entry = model_of(analysis, name)
    assert entry["accuracy"]["share"] == pytest.approx(right / TEXTS)
    assert entry["loss"] == pytest.approx(loss / TEXTS, rel=1e-5)
    assert {layer["attention"] for layer in entry["attentions"]} == {"encoder-self"}
    assert [one["source"][0] for one in analysis["maps"]] == ["<s>"] * 3
    assert (analysis["maps"][0]["source"].count("</s>") == 3) == (data == "pairs")


@pytest.mark.parametrize("name", ["softmax", "learned"])
def test_loss_and_accuracy_match_those_of_the_masked_words(masked, of_masked, name):
    assert of_masked["data"]["kind"] == "masked"
    task, model = loaded(masked, name, MASKED)
    right = words = loss = 0.0
    with torch.no_grad():
        dataset = load_dataset(task, "valid")
        dataset.set_epoch(1)  # it determines which words are masked
        for sample in samples(dataset, range(len(small.LENGTHS)), torch.device("cpu")):
            is_masked = sample["target"] != 1
            logits = model(**sample["net_input"])[0][is_masked]
            gold = sample["target"][is_masked]
            words += len(gold)
            right += int((logits.argmax(-1) == gold).sum())
            loss += float(cross_entropy(logits, gold, reduction="sum")) if len(gold) else 0.0
    entry = model_of(of_masked, name)
    assert 0 < words < sum(small.LENGTHS)
    assert entry["accuracy"]["share"] == pytest.approx(right / words)
    assert entry["loss"] == pytest.approx(loss / words, rel=1e-5)


def test_the_gradient_is_that_of_the_classification_loss(labelled):
    task, model = loaded(labelled, "learned")
    (sample,) = load_samples(task, "valid", [4])
    model.double()

    def loss():
        return cross_entropy(model(**sample["net_input"], **PASS)[0], sample["target"].view(-1))

    found = head_sensitivity(model, sample)["encoder-self"][1][0, 2]
    columns = model.encoder.sentence_encoder.layers[1].self_attn.out_proj.weight[:, 8:12]
    assert float(found) == pytest.approx(small.slope(loss, columns), rel=1e-4)


@pytest.mark.parametrize("data", ["labelled", "masked"])
def test_look_shows_the_attention_of_the_first_token(request, data):
    folder = request.getfixturevalue(data)
    found = look(str(folder / "sparse.pt"), "▁w1 w2 ▁w3", data=str(folder / "bin"))
    assert found.first_attention == "encoder-self"
    assert (found.tokens[0], found.tokens[-1]) == ("<s>", "</s>")
    assert any("classified as" in note for note in found.notes) == (data == "labelled")
    task, model = loaded(folder, "sparse", CLASSES if data == "labelled" else MASKED)
    tokens = [task.source_dictionary.index(token) for token in found.tokens]
    states = model.encoder.sentence_encoder.embed_tokens(torch.tensor([tokens]))
    assert states.size(1) == found.weights(layer=1).size(1)
    first = found.links(layer=1)[0]
    assert first.token == "<s>"
    assert sum(found.weights(layer=1)[0]) == pytest.approx(1)
    with pytest.raises(ValueError, match="a text has 65 tokens, but the model takes at most 64"):
        look(str(folder / "sparse.pt"), "▁w1 " * 63, data=str(folder / "bin"))


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda s: s["task"].pop("num_classes"), "--num-classes got -1, and "),
        (lambda s: s["task"].update(regression_target=True), "predicts numbers (--regression-"),
        (
            lambda s: s["criterion"].update(classification_head_name="other"),
            "has no classification head other: it has sentence_classification_head",
        ),
    ],
)
def test_a_checkpoint_that_lacks_settings_is_refused(labelled, tmp_path, capsys, change, expected):
    state = torch.load(labelled / "sparse.pt", weights_only=False)
    change(state["cfg"])
    torch.save(state, tmp_path / "m.pt")
    (tmp_path / "bin").symlink_to(labelled / "bin")
    assert small.run("analyze", tmp_path, CLASSES, ["m"], tmp_path / "x") == 1
    assert expected in capsys.readouterr().err
