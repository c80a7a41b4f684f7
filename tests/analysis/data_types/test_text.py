"""Language models: ``analyze``, ``report`` and ``ablate`` on a text alone."""

import json
import math

import pytest
import torch

from fairseq_entmax import cli
from fairseq_entmax.analysis import (
    decode_weights,
    head_relevance,
    head_sensitivity,
    load_model,
    load_samples,
    load_task,
    record_attention,
)
from fairseq_entmax.analysis.data.data_types.language_model import MAP_TOKENS
from fairseq_entmax.mappings import entmax_loss
from tests.analysis.data_types import small
from tests.analysis.data_types.small import LM, model_of
from tests.analysis.importance.test_relevance import lost

TOKENS = sum(small.LENGTHS)
# Measures that depend on the data
DATA = {"final_punctuation", "question_word", "rare_word", "positional"}


@pytest.fixture(scope="module")
def task(texts):
    return load_task(str(texts / "bin"), task=LM, checkpoint=str(texts / "entmax15.pt"))


def loaded(texts, task, name):
    return load_model(str(texts / f"{name}.pt"), task).model


def samples(task, split="valid"):
    task.load_dataset(split)
    return load_samples(task, split, range(len(task.dataset(split))))


def test_a_text_has_one_side_and_the_checkpoints_sample_settings(of_texts):
    data = of_texts["data"]
    assert data["kind"] == "text"
    assert data["samples"] == {"break_mode": "none", "tokens": small.SAMPLE}
    assert data["sentences"] == math.ceil(TOKENS / small.SAMPLE)
    assert data["target_tokens"] == TOKENS
    assert (data["source_tokens"], data["source_lang"], data["target_lang"]) == (None, None, None)


def test_a_beginning_of_text_symbol_is_not_predicted(texts, tmp_path):
    analysis = small.analysed(texts, LM, ["entmax15"], tmp_path, "--add-bos-token", "--sentences=")
    task = load_task(str(texts / "bin"), task=LM, checkpoint=str(texts / "entmax15.pt"))
    task.args.add_bos_token = True
    network, total = loaded(texts, task, "entmax15"), 0.0
    for sample in samples(task):
        with torch.no_grad():
            logs = network(**sample["net_input"])[0].log_softmax(-1)[:, 1:]
        assert bool((sample["target"][:, 0] == 0).all())
        total -= logs.gather(-1, sample["target"][:, 1:, None]).double().sum().item()
    assert analysis["models"][0]["loss"] == pytest.approx(total / TOKENS, rel=1e-5)


@pytest.mark.parametrize("name", ["softmax", "entmax15", "pruned", "adaptive"])
def test_the_loss_is_the_mean_over_tokens_given_the_previous_ones(texts, task, of_texts, name):
    model, total = loaded(texts, task, name), 0.0
    for sample in samples(task):
        with torch.no_grad():
            output = model(**sample["net_input"])[0]
        # fairseq's criterion for an adaptive softmax is no reference, because it treats the second
        # word of each band as padding
        bands = model.decoder.adaptive_softmax
        logs = output.log_softmax(-1) if bands is None else bands.get_log_prob(output, None)
        torch.testing.assert_close(logs.exp().sum(-1), torch.ones(logs.shape[:2]))
        total -= logs.gather(-1, sample["target"][..., None]).double().sum().item()
    assert model_of(of_texts, name)["loss"] == pytest.approx(total / TOKENS, rel=1e-5)


def test_targets_outside_the_support_are_counted_and_left_out_of_the_loss(texts, task, of_texts):
    model, reached, gone, support = loaded(texts, task, "sparse"), [], 0, 0
    for sample in samples(task):
        with torch.no_grad():
            probs = model.get_normalized_probs(model(**sample["net_input"]), False)
        of_target = probs.gather(-1, sample["target"][..., None]).flatten()
        gone += int((of_target == 0).sum())
        reached.append(of_target[of_target > 0].log())
        support += int((probs > 0).sum())
    entry = model_of(of_texts, "sparse")
    assert 0 < gone == entry["output"]["unreachable"]
    assert entry["output"]["support"] == pytest.approx(support / TOKENS, rel=1e-5)
    assert entry["loss"] == pytest.approx(-float(torch.cat(reached).mean()), rel=1e-5)
    assert "output" not in model_of(of_texts, "softmax")


@pytest.mark.parametrize(
    ("kind", "name", "attention", "absent"),
    [
        ("of_texts", "entmax15", "decoder-self", {"relative_position"}),
        ("of_labelled", "sparse", "encoder-self", {"relevance"}),
    ],
)
def test_measures_that_need_a_source_are_left_out(kind, name, attention, absent, request):
    analysis = request.getfixturevalue(kind)
    never = absent | {"copy_agreement"}
    assert not (never - DATA) & set(analysis["settings"]["measures"])
    never |= {"gate", "dependencies", "pos_kl", "pos_shares", "named_entity"}
    for layer in model_of(analysis, name)["attentions"]:
        assert layer["attention"] == attention
        for head in layer["heads"]:
            found = {key for key, value in head.items() if value is None}
            assert found - DATA == never - DATA


def test_relevance_is_conserved_in_a_decoder_only_model(texts, task):
    sample = samples(task)[0]
    for name in ("softmax", "sparse"):
        relevance = head_relevance(loaded(texts, task, name), sample)
        assert list(relevance.totals) == ["decoder output"] + [
            f"decoder layer {layer} input" for layer in (1, 0)
        ]
        assert lost(relevance) < 1e-4
        assert torch.isfinite(relevance.heads["decoder-self"][0]).all()


def test_the_gradient_of_a_sparse_output_is_that_of_its_loss(texts, task):
    model = loaded(texts, task, "sparse").double()
    sample = max(samples(task), key=lambda one: one["target"].numel())

    def loss():
        logits = model(**sample["net_input"])[0]
        return entmax_loss(logits, sample["target"], 1.5).mean()

    found = head_sensitivity(model, sample)["decoder-self"][0][0, 1]
    expected = small.slope(loss, model.decoder.layers[0].self_attn.out_proj.weight[:, 4:8])
    assert float(found) == pytest.approx(expected, rel=1e-4)


def test_a_map_shows_the_beginning_of_a_long_sample(texts, tmp_path):
    more = ("--gen-subset=long", "--tokens-per-sample=120", "--sentences=0")
    (entry,) = small.analysed(texts, LM, ["entmax15"], tmp_path, *more)["maps"]
    assert (len(entry["queries"]), entry["source"]) == (MAP_TOKENS, [])
    task = load_task(str(texts / "bin"), task=LM)
    task.args.tokens_per_sample = 120
    (sample,) = load_samples(task, "long", [0])
    assert sample["target"].size(1) == 120
    whole = record_attention(loaded(texts, task, "entmax15"), sample)[0]["decoder-self"][1][0]
    shown = decode_weights(next(one for one in entry["models"][0] if one["layer"] == 1))
    torch.testing.assert_close(shown, whole[:, :MAP_TOKENS, :MAP_TOKENS], atol=1e-3, rtol=1e-3)


@pytest.mark.parametrize(
    ("folder", "task", "name", "head", "counted"),
    [
        ("texts", LM, "entmax15", "decoder-self:0.1", TOKENS),
        ("labelled", small.CLASSES, "sparse", "encoder-self:0.1", 60),
    ],
)
def test_a_removed_head_is_scored_with_the_loss_of_the_analysis(
    folder, task, name, head, counted, request, tmp_path
):
    own, analysis = (request.getfixturevalue(one) for one in (folder, f"of_{folder}"))
    assert small.run("ablate", own, task, [name], tmp_path / "x", f"--heads={head}") == 0
    results = json.loads((tmp_path / "x" / "ablation.json").read_text())
    assert results["data"]["target_tokens"] == counted
    assert results["unchanged"]["bleu"] is None
    expected = model_of(analysis, name)["loss"]
    assert results["unchanged"]["loss"] == pytest.approx(expected, rel=1e-5)
    assert math.isfinite(results["removals"][0]["loss"]["change"])


@pytest.mark.parametrize(
    ("command", "folder", "option", "expected"),
    [
        ("analyze", "texts", "--of=generated", "--of got 'generated': language models neither translate"),
        ("analyze", "texts", "--measures=copy_agreement", "which language models do not have"),
        ("analyze", "texts", "--conllu=x", "--conllu got 'x': parses are of source texts"),
        ("ablate", "texts", "--scores=bleu", "--scores got 'bleu'"),
        ("analyze", "labelled", "--num-classes=3", "has 2 classes, but --num-classes is 3"),
    ],
)  # fmt: skip
def test_options_that_do_not_apply_to_texts_or_labels_are_refused(
    command, folder, option, expected, request, tmp_path, capsys
):
    task, name = {"texts": (LM, "entmax15"), "labelled": (small.CLASSES, "sparse")}[folder]
    own = request.getfixturevalue(folder)
    assert small.run(command, own, task, [name], tmp_path / "x", option) == 1
    assert expected in capsys.readouterr().err
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize(
    ("case", "expected"),
    [
        ((small.CLASSES, "labels", "entmax15"), "does not say how many classes"),
        ((LM, "plain", "entmax15"), "give --task translation, or other data"),
        ((LM, "labels", "entmax15"), "give --task sentence_prediction, or other data"),
        ((LM, "bin", "translation"), "of models that translate or summarise, but the data"),
        (("translation", "plain", "entmax15"), "language models, but the data is pairs of texts"),
    ],
)
def test_data_and_models_of_another_task_are_refused_with_the_right_task(
    texts, labelled, tiny, tmp_path, capsys, case, expected
):
    task, data, model = case
    folders = {"bin": texts, "plain": tiny, "labels": labelled}
    path = f"--path={tiny / 'plain.pt' if model == 'translation' else texts / f'{model}.pt'}"
    given = [str(folders[data] / "bin"), f"--task={task}", path, f"--output={tmp_path / 'x'}"]
    assert cli.main(["analyze", *given, "--cpu"]) == 1
    assert expected in capsys.readouterr().err
