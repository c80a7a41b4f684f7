"""The whole pipeline with fairseq's own commands, on a slice of the shipped corpus."""

import json
import re
import struct

import pytest
import torch
from tensorboardX.proto import event_pb2

from fairseq_entmax.head_records import read_record
from fairseq_entmax.models import EntmaxTransformerModel
from tests.commands import (
    SIZES,
    USER_DIR,
    generate,
    hub,
    hydra_train,
    hypotheses,
    logged,
    run,
    train,
    training,
    weights,
)

ATTENTIONS = ("encoder_self", "decoder_self", "cross")


def board_values(folder):
    """The scalars in TensorBoard's event files, as a dict from tag to values in order."""
    values = {}
    for path in sorted(folder.glob("*events*")):
        content = path.read_bytes()
        while content:
            (length,) = struct.unpack("<Q", content[:8])
            event = event_pb2.Event.FromString(content[12 : 12 + length])
            for value in event.summary.value:
                values.setdefault(value.tag, []).append(value.simple_value)
            content = content[12 + length + 4 :]
    return values


def lines(folder, name="alpha"):
    return read_record(folder / f"{name}.jsonl", name)


def test_training_lowers_the_loss_and_logs_alpha(trained):
    epochs = logged(trained, "train")
    assert len(epochs) == 2
    assert float(epochs[1]["train_loss"]) < float(epochs[0]["train_loss"])
    for split, record in (("train", epochs[1]), ("valid", logged(trained, "valid")[1])):
        board = board_values(trained / "boards" / split)
        for attention in ATTENTIONS:
            names = [f"alpha_{attention}_{name}" for name in ("min", "mean", "max")]
            low, mean, high = (float(record[f"{split}_{name}"]) for name in names)
            assert 1 < low < mean < high < 2
            assert all(1 < value < 2 for name in names for value in board[name])


def test_a_training_resumed_within_an_epoch_ends_like_an_uninterrupted_one(data, tmp_path):
    options = [
        *("--update-freq=2", "--validate-interval-updates=4", "--save-interval-updates=3"),
        *("--alpha-log-interval=2", "--max-tokens=400"),
    ]
    straight, broken = tmp_path / "straight", tmp_path / "broken"
    train(data, straight, *options, "--max-update=9")
    train(data, broken, *options, "--max-update=5")
    (broken / "checkpoint_1_3.pt").replace(broken / "checkpoint_last.pt")
    train(data, broken, *options, "--max-update=9")
    states = [weights(folder / "checkpoint_last.pt") for folder in (straight, broken)]
    assert all(torch.equal(states[1][name], value) for name, value in states[0].items())
    assert (broken / "alpha.jsonl").read_text() == (straight / "alpha.jsonl").read_text()
    updates = [record["update"] for record in lines(straight)]
    assert updates == [0, 2, 3, 4, 6, 8, 9]
    # A finished training makes no further update
    again = train(data, broken, *options, "--max-update=9")
    assert "the checkpoint already has 9 updates: nothing is left" in again.stdout + again.stderr
    assert logged(again, "train_inner") == []
    assert (broken / "alpha.jsonl").read_text() == (straight / "alpha.jsonl").read_text()


def test_generate_score_and_interactive_work_on_the_checkpoint(data, trained, tmp_path):
    checkpoint = trained / "checkpoint_best.pt"
    options = ["--remove-bpe=sentencepiece", "--print-alignment=soft"]
    result = generate(data, checkpoint, *options)
    translated = hypotheses(result.stdout)
    assert len(translated) == SIZES["test"]
    assert re.search(r"Generate test with beam=3: BLEU4 = [\d.]+", result.stdout + result.stderr)
    # Alignments have exact zeros, and sum to one for each word
    rows = [line.partition("\t")[2] for line in result.stdout.splitlines() if line[:2] == "A-"]
    shares = [float(number) for row in rows for number in re.split(r"[ ,]", row)]
    assert min(shares) == 0.0
    assert sum(shares) == pytest.approx(sum(len(row.split()) for row in rows), rel=1e-3)

    system, reference = tmp_path / "system", tmp_path / "reference"
    system.write_text("\n".join(translated.values()) + "\n", encoding="utf-8")
    reference.write_text((data / "test.en").read_text(encoding="utf-8"), encoding="utf-8")
    assert "BLEU4" in run("fairseq-score", "--sys", system, "--ref", reference).stdout

    first = (data / "test.bpe.es").read_text(encoding="utf-8").splitlines()[0]
    given = [f"--path={checkpoint}", "--beam=3", "--max-len-b=30", "--remove-bpe=sentencepiece"]
    interactive = run(
        "fairseq-interactive", data / "bin", f"--user-dir={USER_DIR}", *given, stdin=first + "\n"
    )
    assert list(hypotheses(interactive.stdout).values()) == [translated["H-0"]]


def test_softmax_trains_and_translates_like_fairseq(data, tmp_path):
    results = []
    for arch, options in (("transformer", []), ("entmax_transformer", ["--attn-mapping=softmax"])):
        folder = tmp_path / arch
        result = train(data, folder, *options, "--max-epoch=1", "--dropout=0.1", arch=arch)
        losses = [record["loss"] for record in logged(result, "train_inner")]
        assert len(losses) > 3
        valid = logged(result, "valid")[-1]["valid_loss"]
        translated = hypotheses(generate(data, folder / "checkpoint_best.pt").stdout)
        results.append((losses, valid, translated))
    assert results[0] == results[1]


def test_a_stock_model_trains_and_resumes_with_this_package_as_without(data, tmp_path):
    without, beside = (tmp_path / name / "checkpoint_last.pt" for name in ("without", "beside"))
    options = ["--max-tokens=400", "--store-ema", "--ema-decay=0.9"]
    words = training(data, without.parent, *options, "--max-update=6", arch="transformer")
    run(*(word for word in words if word != f"--user-dir={USER_DIR}"))
    for updates in (3, 6):
        train(data, beside.parent, *options, f"--max-update={updates}", arch="transformer")
    expected, found = (torch.load(path) for path in (without, beside))
    for place in (lambda state: state["model"], lambda state: state["extra_state"]["ema"]):
        values = place(found)
        assert all(torch.equal(values[name], value) for name, value in place(expected).items())
    moments, others = (state["last_optimizer_state"]["state"] for state in (found, expected))
    assert all(torch.equal(moments[n]["exp_avg"], others[n]["exp_avg"]) for n in others)


def test_hydra_trains_from_the_yaml_file_of_the_recipe(data, tmp_path):
    options = ["model.attn_mapping='entmax,entmax15'", "model.alpha_lr_factor=30"]
    options += ["model.alpha_warmup_updates=1000", "optimization.max_epoch=1"]
    loss = ["criterion._name=entmax_loss", "+criterion.loss_alpha=1.7"]
    hydra_train(data, tmp_path / "hydra", "bible_es_en", "entmax", *options, *loss)
    layers = {name: list(heads) for name, heads in lines(tmp_path / "hydra")[-1]["alpha"].items()}
    # The second layer learns nothing, but its alpha rises
    assert layers == {name: ["0", "1"] for name in ("encoder-self", "decoder-self", "cross")}
    checkpoint = tmp_path / "hydra" / "checkpoint_best.pt"
    assert len(hypotheses(generate(data, checkpoint).stdout)) == SIZES["test"]
    model = hub(EntmaxTransformerModel, checkpoint, data / "bin", source_lang="es").models[0]
    mapping = model.encoder.layers[0].self_attn.mapping
    assert mapping.lr_factor == 30
    assert mapping.risen == lines(tmp_path / "hydra")[-1]["update"] / 1000
    assert model.output_alpha == 1.7


# -- structured and per-head mappings -----------------------------------------------------------

PER_HEAD = "entmax:tv=learned|softmax|sqpnormmax:p=learned|fusedmax"
STRUCTURED = [
    f"--encoder-self-attn-mapping=({PER_HEAD})*2",
    "--decoder-self-attn-mapping=fusedmax:tv=learned,oscarmax:temperature=learned",
    "--cross-attn-mapping=entmax:oscar=learned,sqpnormmax:p=learned",
    "--tv-init=0.05",
    "--p-init=1.7",
]


def test_structured_models_learn_their_strengths_and_can_be_pruned(data, tmp_path):
    train(data, tmp_path, *STRUCTURED, "--max-update=8", "--alpha-log-interval=4")
    checkpoint, small = tmp_path / "checkpoint_last.pt", tmp_path / "small.pt"
    for name, attention, layer, missing in (
        ("alpha", "encoder-self", "1", [False, False, True, False]),
        ("tv", "encoder-self", "0", [False, True, True, False]),
        ("tv", "decoder-self", "0", [False] * 4),
        ("temperature", "decoder-self", "1", [False] * 4),
        ("oscar", "cross", "0", [False] * 4),
        ("p", "cross", "1", [False] * 4),
        ("p", "encoder-self", "0", [True, True, False, True]),
    ):
        records = lines(tmp_path, name)
        assert [record["update"] for record in records] == [0, 4, 8]
        first, last = (record[name][attention][layer] for record in (records[0], records[-1]))
        assert [value is None for value in last] == missing
        assert first != last
    (row, *_) = json.loads(run("fairseq-entmax", "alpha", "--json", checkpoint).stdout)
    assert (row["attention"], row["mapping"]) == ("encoder-self", PER_HEAD)
    expected = lines(tmp_path, "tv")[-1]["tv"]["encoder-self"]["0"]
    assert row["tv"] == [value and pytest.approx(value, abs=1e-5) for value in expected]
    gone = "encoder-self:0.0,0.3;cross:1.2"
    run("fairseq-entmax", "prune", checkpoint, "--heads", gone, "--output", small)
    for path in (checkpoint, small):
        assert len(hypotheses(generate(data, path).stdout)) == SIZES["test"]
    settings = torch.load(small)["cfg"]["model"]
    assert settings.encoder_self_attn_mapping == f"(softmax|sqpnormmax:p=learned),({PER_HEAD})"
