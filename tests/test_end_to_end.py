"""The whole way through fairseq's own commands, on a slice of the shipped corpus."""

import json
import re
import struct
import subprocess
import sys

import pytest
import torch
from tensorboardX.proto import event_pb2

from fairseq_entmax.models.head_record import read_record
from tests.commands import (
    COMMANDS,
    ROOT,
    SIZES,
    USER_DIR,
    generate,
    hypotheses,
    logged,
    run,
    train,
    train_in_two_processes,
)

pytestmark = pytest.mark.slow


@pytest.fixture(scope="session")
def trained(data, tmp_path_factory):
    """An α-entmax model after two epochs, with the log of its training."""
    save_dir = tmp_path_factory.mktemp("trained")
    boards = f"--tensorboard-logdir={save_dir}/boards"
    return save_dir, train(data, save_dir, "--max-epoch=2", boards)


def board_values(folder):
    """The scalars of TensorBoard's event files: tag to values, in the order written."""
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


def test_tensorboard_shows_alpha(trained):
    save_dir, _ = trained
    for split in ("train", "valid"):
        values = board_values(save_dir / "boards" / split)
        for attention in ("encoder_self", "decoder_self", "cross"):
            low, mean, high = (values[f"alpha_{attention}_{n}"] for n in ("min", "mean", "max"))
            assert len(mean) >= 1
            assert all(1 < a < b < c < 2 for a, b, c in zip(low, mean, high, strict=True))


def test_training_lowers_the_loss_and_logs_alpha(trained):
    _, result = trained
    epochs = logged(result, "train")
    assert len(epochs) == 2
    assert float(epochs[1]["train_loss"]) < float(epochs[0]["train_loss"])
    for record, prefix in ((epochs[1], "train"), (logged(result, "valid")[1], "valid")):
        for attention in ("encoder_self", "decoder_self", "cross"):
            low, mean, high = (
                float(record[f"{prefix}_alpha_{attention}_{name}"])
                for name in ("min", "mean", "max")
            )
            assert 1 < low < mean < high < 2


def test_the_record_of_alpha_ends_with_the_alphas_of_the_last_checkpoint(trained):
    save_dir, _ = trained
    records = read_record(save_dir / "alpha.jsonl")
    updates = [record["update"] for record in records]
    assert updates[0] == 0
    assert updates == sorted(set(updates))
    assert set(range(0, updates[-1], 10)) <= set(updates)
    table = run("fairseq-entmax", "alpha", "--json", save_dir / "checkpoint_last.pt")
    for row in json.loads(table.stdout):
        last = records[-1]["alpha"][row["attention"]][str(row["layer"])]
        assert row["alpha"] == pytest.approx(last, abs=1e-5)


def test_a_resumed_training_ends_like_one_that_was_never_stopped(data, trained, tmp_path):
    save_dir, straight = trained
    train(data, tmp_path, "--max-epoch=1")
    resumed = train(data, tmp_path, "--max-epoch=2")
    states = [torch.load(folder / "checkpoint_last.pt")["model"] for folder in (save_dir, tmp_path)]
    assert all(torch.equal(states[1][name], value) for name, value in states[0].items())
    assert (tmp_path / "alpha.jsonl").read_text() == (save_dir / "alpha.jsonl").read_text()
    assert logged(resumed, "valid")[-1]["valid_loss"] == logged(straight, "valid")[-1]["valid_loss"]


def test_a_training_that_goes_on_in_mid_epoch_leaves_the_record_of_one_never_stopped(
    data, tmp_path
):
    options = [
        *("--update-freq=2", "--validate-interval-updates=4", "--save-interval-updates=3"),
        *("--alpha-log-interval=2", "--max-tokens=400"),
    ]
    straight, broken = tmp_path / "straight", tmp_path / "broken"
    train(data, straight, *options, "--max-update=9")
    train(data, broken, *options, "--max-update=5")
    (broken / "checkpoint_1_3.pt").replace(broken / "checkpoint_last.pt")
    train(data, broken, *options, "--max-update=9")
    assert (broken / "alpha.jsonl").read_text() == (straight / "alpha.jsonl").read_text()
    updates = [record["update"] for record in read_record(straight / "alpha.jsonl")]
    assert updates == [0, 2, 3, 4, 6, 8, 9]


def test_generate_score_and_interactive_work_on_the_checkpoint(data, trained, tmp_path):
    checkpoint = trained[0] / "checkpoint_best.pt"
    result = generate(data, checkpoint, "--remove-bpe=sentencepiece")
    translated = hypotheses(result.stdout)
    assert len(translated) == SIZES["test"]
    assert re.search(r"Generate test with beam=3: BLEU4 = [\d.]+", result.stdout + result.stderr)

    system, reference = tmp_path / "system", tmp_path / "reference"
    system.write_text("\n".join(translated.values()) + "\n", encoding="utf-8")
    reference.write_text((data / "test.en").read_text(encoding="utf-8"), encoding="utf-8")
    scored = run("fairseq-score", "--sys", system, "--ref", reference)
    assert "BLEU4" in scored.stdout

    first = (data / "test.bpe.es").read_text(encoding="utf-8").splitlines()[0]
    interactive = run(
        "fairseq-interactive",
        data / "bin",
        f"--user-dir={USER_DIR}",
        f"--path={checkpoint}",
        "--beam=3",
        "--max-len-b=30",
        "--remove-bpe=sentencepiece",
        stdin=first + "\n",
    )
    assert list(hypotheses(interactive.stdout).values()) == [translated["H-0"]]


def test_alignments_of_exact_zeros_can_be_printed(data, trained):
    result = generate(data, trained[0] / "checkpoint_best.pt", "--print-alignment=soft")
    rows = [line.partition("\t")[2] for line in result.stdout.splitlines() if line[:2] == "A-"]
    assert len(rows) == SIZES["test"]
    weights = [float(number) for row in rows for number in re.split(r"[ ,]", row)]
    assert min(weights) == 0.0
    assert sum(weights) == pytest.approx(sum(len(row.split()) for row in rows), rel=1e-3)


def test_from_pretrained_translates_plain_text(data, trained):
    code = f"""
from fairseq_entmax.models import EntmaxTransformerModel
model = EntmaxTransformerModel.from_pretrained(
    {str(trained[0])!r},
    checkpoint_file="checkpoint_best.pt",
    data_name_or_path={str(data / "bin")!r},
    bpe="sentencepiece",
    sentencepiece_model={str(data / "bpe.model")!r},
)
print("translation:", model.translate("En el principio crió Dios los cielos y la tierra."))
"""
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=data
    )
    assert result.returncode == 0, result.stderr
    assert re.search(r"^translation: \S+", result.stdout, re.MULTILINE)


def test_softmax_trains_and_translates_like_fairseq(data, tmp_path):
    results = {}
    for arch, options in (
        ("transformer", []),
        ("entmax_transformer", ["--attn-mapping=softmax"]),
    ):
        folder = tmp_path / arch
        result = train(data, folder, *options, "--max-epoch=1", "--dropout=0.1", arch=arch)
        losses = [float(record["loss"]) for record in logged(result, "train_inner")]
        assert len(losses) > 3
        valid = float(logged(result, "valid")[-1]["valid_loss"])
        translated = hypotheses(generate(data, folder / "checkpoint_best.pt").stdout)
        results[arch] = losses, valid, translated
    stock, ours = results["transformer"], results["entmax_transformer"]
    assert ours[0] == pytest.approx(stock[0], abs=2e-3)  # the log rounds to three decimals
    assert ours[1] == pytest.approx(stock[1], abs=2e-3)
    assert ours[2] == stock[2]


@pytest.mark.parametrize("option", ["--finetune-from-model", "--restore-file"])
def test_a_stock_checkpoint_is_continued_and_what_it_lacks_is_logged(
    data, tmp_path_factory, tmp_path, option
):
    stock = tmp_path_factory.getbasetemp() / "stock_to_continue"
    if not stock.exists():
        train(data, stock, "--max-epoch=1", arch="transformer")
    checkpoint = stock / "checkpoint_best.pt"
    result = train(data, tmp_path, f"{option}={checkpoint}", "--max-epoch=2", "--alpha-init=1.2")
    output = result.stdout + result.stderr
    assert (
        "has no value for 6 learned parameters; they start as in a new model (--alpha-init 1.2)"
        in output
    )
    first = float(logged(result, "train_inner")[0]["loss"])
    fresh = float(
        logged(train(data, tmp_path / "fresh", "--max-update=5"), "train_inner")[0]["loss"]
    )
    assert first < fresh
    start = read_record(tmp_path / "alpha.jsonl")[0]
    assert start["alpha"]["encoder-self"]["0"] == [1.2] * 4
    # with --restore-file the updates of the stock training count on
    assert (start["update"] > 0) == (option == "--restore-file")


def test_hydra_trains_from_the_yaml_file_of_the_recipe(data, tmp_path):
    result = subprocess.run(
        [
            COMMANDS / "fairseq-hydra-train",
            "--config-dir",
            ROOT / "examples" / "bible_es_en" / "configs",
            "--config-name",
            "entmax",
            f"common.user_dir={USER_DIR}",
            "common.cpu=true",
            f"task.data={data / 'bin'}",
            f"checkpoint.save_dir={tmp_path / 'hydra'}",
            "optimization.max_epoch=1",
            "model.attn_mapping='entmax,entmax15'",
        ],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stdout[-3000:] + result.stderr[-3000:]
    record = read_record(tmp_path / "hydra" / "alpha.jsonl")[-1]
    assert {name: sorted(layers) for name, layers in record["alpha"].items()} == {
        "encoder-self": ["0"],
        "decoder-self": ["0"],
        "cross": ["0"],
    }
    assert len(hypotheses(generate(data, tmp_path / "hydra" / "checkpoint_best.pt").stdout)) == 24


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("--attn-mapping=hardmax", "unknown mapping 'hardmax'; allowed: softmax, sparsemax"),
        ("--attn-mapping=softmax*3", "'softmax*3' names 3 layers, the model has 2"),
        ("--alpha-init=1", "must lie strictly between 1 and 2"),
        (
            "--attn-mapping=sparsemax|softmax*9",
            "--attn-mapping (encoder-self attention, layer 0): 'sparsemax|softmax*9' names 10 heads, "
            "the layer has 4",
        ),
        (
            "--attn-mapping=fusedmax:tv=-1",
            "tv must be a number, 0 or more, not -1.0; or tv=learned",
        ),
    ],
)
def test_a_wrong_option_stops_training_at_once_with_one_sentence(data, tmp_path, option, message):
    result = train(data, tmp_path / "never", option, check=False)
    assert result.returncode == 2
    assert message in result.stderr.strip().splitlines()[-1]
    assert "Traceback" not in result.stderr
    assert not (tmp_path / "never").exists()


def test_an_unknown_kernel_stops_training_at_once_with_one_sentence(data, tmp_path, monkeypatch):
    monkeypatch.setenv("FAIRSEQ_ENTMAX_KERNEL", "fast")
    result = train(data, tmp_path / "never", check=False)
    assert result.returncode == 2
    message = "FAIRSEQ_ENTMAX_KERNEL must be one of auto, torch, native, triton, not 'fast'"
    assert result.stderr.endswith(f"fairseq-train: error: {message}\n")
    assert not (tmp_path / "never").exists()


class Malice:
    def __init__(self, path):
        self.path = str(path)

    def __reduce__(self):
        return (open, (self.path, "w"))


def test_a_checkpoint_with_code_in_its_settings_stops_the_command_and_does_not_run(
    data, trained, tmp_path
):
    state = torch.load(trained[0] / "checkpoint_best.pt")
    model = state["cfg"]["model"]
    model._name = model.arch = "transformer"
    model.adaptive_softmax_cutoff = f"[open({str(tmp_path / 'ran')!r}, 'w').close() or 1]"
    path = tmp_path / "evil.pt"
    torch.save(state, path)
    result = generate(data, path, check=False)
    assert result.returncode != 0
    assert f"refused to load {path}" in result.stderr
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("command", ["generate", "train"])
def test_a_checkpoint_that_carries_code_stops_the_command_and_does_not_run(
    data, trained, tmp_path, command
):
    state = torch.load(trained[0] / "checkpoint_best.pt")
    state["extra_state"]["surprise"] = Malice(tmp_path / "ran")
    path = tmp_path / "malicious.pt"
    torch.save(state, path)
    if command == "generate":
        result = generate(data, path, check=False)
    else:
        result = train(data, tmp_path / "new", f"--restore-file={path}", check=False)
    assert result.returncode != 0
    assert f"refused to load {path}" in result.stderr
    assert not (tmp_path / "ran").exists()


def test_two_workers_train_and_write_one_record(data, tmp_path):
    save_dir = tmp_path / "two"
    train_in_two_processes(data, save_dir, "--max-update=6", "--alpha-log-interval=2")
    updates = [record["update"] for record in read_record(save_dir / "alpha.jsonl")]
    assert updates == [0, 2, 4, 6]
