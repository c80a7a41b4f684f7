"""The command ``analyze``, which measures every head."""

import json
import re
import shutil

import pytest
import torch
from fairseq.criterions.cross_entropy import CrossEntropyCriterion
from fairseq.data import Dictionary

from fairseq_entmax import cli, progress
from fairseq_entmax.analysis import (
    decode_weights,
    document,
    load_model,
    load_samples,
    load_task,
    measure,
    record_attention,
)
from fairseq_entmax.analysis.analyze import typical
from fairseq_entmax.analysis.data import loading
from fairseq_entmax.analysis.data.samples import samples
from tests.analysis.data_types.small import built
from tests.analysis.test_models import alphas_of, save
from tests.analysis.test_notebook import chained


@pytest.fixture(scope="module")
def task(data):
    return loading.setup_task(options(data, "x"))


def options(data, path, *more):
    parser = loading.data_parser("test")
    return loading.parse(parser, [f"{data}/bin", f"--path={path}", "--cpu", *more])


def test_the_moses_tokenizer_gets_the_languages_of_the_file_names(data):
    found = loading.configuration(options(data, "x", "--tokenizer=moses")).tokenizer
    assert (found.source_lang, found.target_lang) == ("es", "en")


LONG = {"max_source_positions": 1024, "max_target_positions": 1024, "share_all_embeddings": True}
GATED = {"attn_mapping": "entmax", "head_gates": "cross", "decoder_self_attn_heads": "0,2"}


@pytest.fixture(scope="module")
def models(tmp_path_factory, task):
    """Three checkpoints of small models: stock softmax, 1.5-entmax, alpha-entmax with gates."""
    folder = tmp_path_factory.mktemp("models")
    paths = []
    for name, arch, extra in (
        ("softmax", "transformer", {}),
        ("entmax15", "entmax_transformer", {"attn_mapping": "entmax15"}),
        ("entmax", "entmax_transformer", GATED),
    ):
        (folder / name).mkdir()
        model = built(arch, task, **extra, **LONG)[0]
        paths.append(save(folder / name / "m.pt", model, arch, ("es", "en"), **extra, **LONG))
    # A record of this model's own values, since any other would be left out
    record = [{"update": n, "alpha": alphas_of(model)} for n in range(6)]
    lines = "".join(json.dumps(line) + "\n" for line in record)
    (folder / "entmax" / "alpha.jsonl").write_text(lines)
    return paths


def analyze(data, paths, output, *more):
    path = ":".join(paths) if isinstance(paths, list) else paths
    given = [f"{data}/bin", f"--path={path}", "--cpu", f"--output={output}", "--num-workers=0"]
    return cli.main(["analyze", *given, "--no-progress-bar", "--relevance-sentences=2", *more])


def read(output):
    return document.read(output / "analysis.json")


@pytest.fixture(scope="module")
def analysis(data, models, tmp_path_factory):
    folder = tmp_path_factory.mktemp("analysis")
    assert analyze(data, models, folder) == 0
    return read(folder)


def test_long_work_shows_its_progress(data, models, tmp_path, monkeypatch, capsys):
    for name in ("SHORT", "RAREST"):
        monkeypatch.setattr(progress, name, 0)
    given = [f"{data}/bin", f"--path={models[0]}", "--cpu", "--num-workers=0"]
    more = [f"--output={tmp_path}", "--measures=density,relevance"]
    assert cli.main(["analyze", *given, *more]) == 0
    shown = capsys.readouterr().err
    assert re.search(r"analyse 'valid': (\d+) of \1 batches, less than a minute left\n", shown)
    assert "relevance: 40 of 40 sentences, less than a minute left\n" in shown


def texts_of(data):
    return [(data / f"valid.bpe.{side}").read_text().splitlines() for side in ("es", "en")]


def lengths_of(data):
    """The length of each sentence's longer side, in tokens."""
    return [max(len(one.split()) + 1 for one in pair) for pair in zip(*texts_of(data), strict=True)]


def test_the_data_is_counted_and_typical_sentences_are_shown(analysis, data):
    shown = [entry["sentence"] for entry in analysis["maps"]]
    assert shown == typical(dict(enumerate(lengths_of(data))))
    source, target = texts_of(data)
    given = analysis["data"]
    assert given["sentences"] == len(source) == 40
    assert given["source_tokens"] == sum(len(line.split()) + 1 for line in source)
    assert given["target_tokens"] == sum(len(line.split()) + 1 for line in target)
    text = (data / "valid.es").read_text().splitlines()
    ends = [line.strip().rstrip("\"'”’»)")[-1:] for line in text]
    assert given["interrogative_sentences"] == ends.count("?") > 0
    assert given["declarative_sentences"] == ends.count(".") > 10
    assert (given["source_lang"], given["target_lang"]) == ("es", "en")


def test_every_head_has_all_numbers_that_its_attention_can_have(analysis):
    assert [m["name"] for m in analysis["models"]] == ["softmax", "entmax15", "entmax"]
    layers = analysis["models"][2]["attentions"]
    assert [(one["attention"], one["layer"], len(one["heads"])) for one in layers] == [
        *(("encoder-self", 0, 4), ("encoder-self", 1, 4), ("decoder-self", 0, 0)),
        *(("decoder-self", 1, 2), ("cross", 0, 4), ("cross", 1, 4)),
    ]
    never = {"dependencies", "pos_kl", "pos_shares", "named_entity"}
    of_the_source = {"rare_word", "final_punctuation", "relative_position", "copy_agreement"}
    of_the_source.add("question_word")
    absent = {
        "encoder-self": never | {"gate", "copy_agreement"},
        "decoder-self": never | {"gate"} | of_the_source,
        "cross": never | {"subword_merging", "question_word"},
    }
    for model in analysis["models"]:
        # All sentences are used if no fewer are precise enough
        assert model["importance_sentences"] == {"relevance": 2, "gradient": 40}
        for layer in model["attentions"]:
            gone = absent[layer["attention"]] | ({"gate"} if model["name"] != "entmax" else set())
            for head in layer["heads"]:
                empty = {name for name, value in head.items() if value is None}
                assert empty - {"positional", "rare_word"} == gone - {"positional", "rare_word"}
                assert 0 <= head["standard_errors"]["relevance"] < 0.5
    # The record ends at the checkpoint's update
    assert analysis["models"][0]["records"] == {}
    record = analysis["models"][2]["records"]["alpha"]
    assert [line["update"] for line in record] == [0, 1, 2, 3]
    alphas = [head["values"]["alpha"] for head in layer["heads"]]
    assert record[3]["values"]["cross"]["1"] == pytest.approx(alphas, abs=1e-5)


def test_loss_and_measures_match_fairseq_and_one_pass_over_all_sentences(analysis, models, task):
    loaded = load_model(models[1], task)
    dataset = loading.load_dataset(task, "valid")
    (sample,) = samples(dataset, range(len(dataset)), torch.device("cpu"), at_once=100)
    attention, _ = record_attention(loaded.model, sample)
    with torch.no_grad():
        loss, tokens, _ = CrossEntropyCriterion(task, sentence_avg=False)(loaded.model, sample)
    assert analysis["models"][1]["loss"] == pytest.approx(float(loss) / tokens, rel=1e-5)
    expected = document.rounded(measure(attention, sample, task))
    for layer in analysis["models"][1]["attentions"]:
        found = expected[layer["attention"]][layer["layer"]]
        assert layer["diversity"] == pytest.approx(found["diversity"], rel=1e-4)
        for given, head in zip(layer["heads"], found["heads"], strict=True):
            for name in ("density", "entropy", "confidence"):
                assert given[name] == pytest.approx(head[name], rel=1e-4)
            for name in ("rare_word", "subword_merging", "final_punctuation"):
                assert given[name] == (head[name] and pytest.approx(head[name], rel=1e-3))
            for name in ("maximum", "weight"):
                for offset, value in head["offsets"][name].items():
                    near = value and pytest.approx(value, rel=1e-2, abs=1e-4)
                    assert given["offsets"][name][offset] == near


def test_maps_contain_the_weights_of_their_sentences(analysis, data, models, task):
    dataset = loading.load_dataset(task, "valid")
    entry = analysis["maps"][3]
    (sample,) = samples(dataset, [entry["sentence"]], torch.device("cpu"))
    known = Dictionary.load(str(data / "bin" / "dict.en.txt"))
    source, target = (
        [token if token in known.indices else "<unk>" for token in text[entry["sentence"]].split()]
        for text in texts_of(data)
    )
    assert entry["source"] == [*source, "</s>"]
    assert entry["queries"] == ["</s>", *target]
    assert entry["targets"] == [*target, "</s>"]
    for path, layers in zip(models, entry["models"], strict=True):
        attention, _ = record_attention(load_model(path, task).model, sample)
        for layer in layers:
            exact = attention[layer["attention"]][layer["layer"]][0]
            decoded = decode_weights(layer)
            assert torch.equal(decoded == 0, exact == 0)
            assert torch.allclose(decoded, exact, rtol=1e-3, atol=1e-7)


def test_chosen_sentences_and_measures_are_used(data, models, tmp_path, capsys):
    chosen = ("--sentences=5,0,5", "--measures=density,gradient")
    assert analyze(data, models[1], tmp_path / "a", *chosen) == 0
    found = read(tmp_path / "a")
    assert [entry["sentence"] for entry in found["maps"]] == [5, 0]
    assert found["settings"]["measures"] == ["density", "gradient"]
    assert found["settings"]["relevance_sentences"] == 0
    head = found["models"][0]["attentions"][0]["heads"][0]
    assert None not in (head["density"], head["gradient"])
    assert head["entropy"] is head["offsets"] is head["relevance"] is None
    assert "a/analysis.json" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--path="], "give --path CHECKPOINT"),
        (["--output="], "give --output DIR"),
        (["--measures=density,mood"], "--measures got 'density,mood': 'mood' is not one of dens"),
        (["--sentences=3,x"], "--sentences got 'x': give comma-separated numbers from 0 to 39"),
        (["--sentences=40"], "--sentences got '40'"),
        (["--gen-subset=nothing"], "--gen-subset got 'nothing', which cannot be read from"),
        (["--max-tokens=4"], "--max-tokens got 4, which a sentence exceeds: give more (Sente"),
        (["--names=a,b"], "--names got 'a,b': give 1 different names"),
        (["--names="], "--names got '': give 1 different names"),
        (["--task=translation_lev"], "--task got 'translation_lev': only models of"),
        (["--model-overrides={'dropout': 1}"], "--model-overrides got"),
        (["--relevance-sentences=0"], "--relevance-sentences got 0"),
        (["--source-lang=fr", "--target-lang=en"], "give --source-lang and --target-lang"),
    ],
)
def test_wrong_options_are_named_and_nothing_written(data, models, tmp_path, capsys, more, message):
    assert analyze(data, models[1], tmp_path / "new", *more) == 1
    error = capsys.readouterr().err.strip().splitlines()[-1]
    assert error.startswith("fairseq-entmax analyze: ")
    assert message in error
    assert not (tmp_path / "new").exists()


def test_sentences_that_are_too_long_are_skipped_everywhere(data, task, tmp_path, capsys):
    extra = {"max_source_positions": 40, "max_target_positions": 40, "encoder_learned_pos": True}
    extra |= {"decoder_learned_pos": True, "share_all_embeddings": True, "attn_mapping": "entmax15"}
    model = built("entmax_transformer", task, **extra)[0]
    path = save(tmp_path / "m.pt", model, "entmax_transformer", ("es", "en"), **extra)
    skip = "--skip-invalid-size-inputs-valid-test"
    assert analyze(data, path, tmp_path / "a", "--gradient-sentences=40") == 1
    assert skip in capsys.readouterr().err
    assert analyze(data, path, tmp_path / "a", "--gradient-sentences=40", skip) == 0
    found, lengths = read(tmp_path / "a"), lengths_of(data)
    short = sum(length <= 40 for length in lengths)
    assert 5 < short < 40
    assert found["data"]["sentences"] == found["settings"]["gradient_sentences"] == short
    long = max(range(40), key=lengths.__getitem__)
    assert analyze(data, path, tmp_path / "b", f"--sentences={long}", skip) == 1
    assert f"--sentences got {long}, which is too long" in capsys.readouterr().err


def test_numbers_that_are_not_finite_are_an_error(data, task, tmp_path, capsys):
    model = built("transformer", task, **LONG)[0]
    with torch.no_grad():
        model.encoder.layers[0].fc1.weight[0, 0] = torch.nan
    path = save(tmp_path / "m.pt", model, "transformer", ("es", "en"), **LONG)
    assert analyze(data, path, tmp_path / "a") == 1
    error = capsys.readouterr().err
    assert "m.pt gives non-finite numbers in one of the sentences" in error


def test_tasks_models_and_samples_can_be_loaded_in_a_notebook(data, models):
    task = load_task(f"{data}/bin")
    assert (task.cfg.source_lang, task.cfg.target_lang) == ("es", "en")
    batches = load_samples(task, "valid", range(5), at_once=2)
    assert [len(sample["id"]) for sample in batches] == [2, 2, 1]
    assert sorted(n for sample in batches for n in sample["id"].tolist()) == list(range(5))
    with pytest.raises(ValueError, match="there is no folder 'nowhere'"):
        load_task("nowhere")


def test_heads_are_compared_with_parses(data, models, tmp_path, caplog):
    lines = (data / "valid.es").read_text().splitlines()
    parses = "".join(chained(line.split()) for line in lines)
    (tmp_path / "valid.conllu").write_text(parses, encoding="utf-8")
    # A damaged record is left out with a warning
    shutil.copy(models[2], tmp_path / "m.pt")
    (tmp_path / "alpha.jsonl").write_text("no record\n\n")
    more = (f"--conllu={tmp_path / 'valid.conllu'}", "--measures=density")
    assert analyze(data, str(tmp_path / "m.pt"), tmp_path / "a", *more) == 0
    found = read(tmp_path / "a")
    assert found["models"][0]["records"] == {}
    assert "no usable record of alpha for this model" in caplog.text
    relation = found["annotations"]["relations"]["obj"]
    assert relation["count"] == sum(len(line.split()) - 1 for line in lines)
    assert relation["to_head"] == {"baseline": 1.0, "offset": -1}
    assert set(found["annotations"]["part_of_speech"]) == {"NOUN", "VERB"}
    for layer in found["models"][0]["attentions"]:
        for head in layer["heads"]:
            is_encoder = layer["attention"] == "encoder-self"
            assert (head["dependencies"] is not None) == is_encoder
            assert (head["pos_kl"] is not None) == (layer["attention"] != "decoder-self")
            assert not is_encoder or 0 <= head["dependencies"]["obj"]["to_head"] < 1


@pytest.mark.parametrize(
    ("command", "own"),
    [("analyze", "--sentences"), ("ablate", "--scores"), ("look", "--translation")],
)
def test_help_fits_on_a_screen(command, own, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "100")
    with pytest.raises(SystemExit) as stop:
        cli.main([command, "--help"])
    assert stop.value.code == 0
    text = capsys.readouterr().out
    assert len(text.splitlines()) < 60
    assert own in text
    assert "--no-repeat-ngram-size" not in text
