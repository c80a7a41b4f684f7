"""Gates, budgets and pruning through fairseq's own commands, on a slice of the corpus."""

import os
import re
import signal
import subprocess
import time
from types import SimpleNamespace

import pytest
import torch
from fairseq.models.transformer import TransformerModel

from tests.commands import (
    COMMANDS,
    SIZES,
    SMALL_MODEL,
    TRAINING,
    USER_DIR,
    generate,
    hypotheses,
    logged,
    run,
    train,
    train_in_two_processes,
)

pytestmark = pytest.mark.slow

PRENORM = ["--encoder-normalize-before", "--decoder-normalize-before"]
GATED = [
    "--criterion=label_smoothed_cross_entropy_with_head_l0",
    "--head-gates=encoder-self,decoder-self,cross",
]
ATTENTIONS = ("encoder-self", "decoder-self", "cross")
# Fewer than the six attentions of the model, so one at least loses all its heads
BUDGET = 5


def weights(path):
    return torch.load(path)["model"]


def decisions(path):
    return torch.cat([v for k, v in weights(path).items() if k.endswith("gate.decision")])


def scores(output):
    lines = [line.split("\t") for line in output.splitlines() if line.startswith("H-")]
    return {line[0]: float(line[1]) for line in lines}


@pytest.fixture(scope="module", params=["softmax", "entmax"])
def pruned(request, data, tmp_path_factory):
    """A trained model, the same fine-tuned to a budget, and what pruning made of that."""
    folder = tmp_path_factory.mktemp(f"pruned-{request.param}")
    mapping = f"--attn-mapping={request.param}"
    train(data, folder / "full", mapping, *PRENORM, "--max-epoch=2")
    full = folder / "full" / "checkpoint_best.pt"
    start = f"--finetune-from-model={full}"
    options = [f"--target-heads={BUDGET}", "--max-update=24", "--validate-interval-updates=6"]
    log = train(data, folder / "gated", mapping, *PRENORM, *GATED, start, *options)
    gated, small = folder / "gated" / "checkpoint_best.pt", folder / "small.pt"
    report = run("fairseq-entmax", "prune", gated, "--output", small)
    return SimpleNamespace(
        mapping=mapping, full=full, gated=gated, small=small, log=log, report=report.stdout
    )


def test_training_ends_with_exactly_the_budget_and_says_so(pruned):
    assert sorted(decisions(pruned.gated).tolist()) == [0] * (24 - BUDGET) + [1] * BUDGET
    last = logged(pruned.log, "valid")[-1]
    assert float(last["valid_heads_open"]) == float(last["valid_heads_expected"]) == BUDGET
    assert float(last["valid_heads_undecided"]) == 0
    parts = [float(last[f"valid_heads_open_{name.replace('-', '_')}"]) for name in ATTENTIONS]
    assert sum(parts) == BUDGET
    assert float(last["valid_l0_penalty"]) == 0
    first = logged(pruned.log, "valid")[0]
    assert float(first["valid_heads_open"]) > BUDGET
    assert float(first["valid_loss"]) > float(last["valid_loss"])
    assert "heads have a gate strictly between 0 and 1 (attention:layer.head gate)" in (
        pruned.log.stdout + pruned.log.stderr
    )
    train_record = logged(pruned.log, "train")[-1]
    assert {"train_l0_penalty", "train_l0_weight", "train_heads_expected_cross"} <= set(
        train_record
    )


def test_the_pruned_model_translates_like_the_gated_one(data, pruned):
    """500 sentences and more: those of the training split."""
    counts = re.findall(r"^heads \S+ +8 +(\d+)  (\S+)$", pruned.report, re.MULTILINE)
    assert sum(int(total) for total, _ in counts) == BUDGET
    assert any("0" in layers.split(",") for _, layers in counts)
    assert len(counts) == len(ATTENTIONS)
    options = ["--gen-subset=train", "--beam=2", "--max-len-b=20"]
    before, after = (generate(data, path, *options).stdout for path in (pruned.gated, pruned.small))
    assert len(hypotheses(before)) == SIZES["train"] >= 500
    assert hypotheses(after) == hypotheses(before)
    for name, score in scores(before).items():
        assert scores_close(scores(after)[name], score)


def scores_close(one, other):
    return abs(one - other) <= 1e-5


def test_the_pruned_checkpoint_has_no_gates_and_fewer_parameters(pruned):
    small, gated = weights(pruned.small), weights(pruned.gated)
    assert not [name for name in small if "gate" in name or "pruning_state" in name]
    assert sum(v.numel() for v in small.values()) < sum(v.numel() for v in gated.values())
    head = 32 // 4
    rows = sum(v.size(0) for k, v in small.items() if k.endswith("q_proj.weight"))
    assert rows == BUDGET * head


def test_the_pruned_checkpoint_is_a_model_like_any_other(data, pruned, tmp_path):
    model = TransformerModel.from_pretrained(
        str(pruned.small.parent),
        pruned.small.name,
        data_name_or_path=str(data / "bin"),
        user_dir=str(USER_DIR),
    )
    sentence = (data / "test.bpe.es").read_text(encoding="utf-8").splitlines()[0]
    hypothesis = model.translate(sentence, beam=3)
    assert hypothesis
    typed = run(
        "fairseq-interactive",
        data / "bin",
        f"--user-dir={USER_DIR}",
        f"--path={pruned.small}",
        "--beam=3",
        stdin=sentence + "\n",
    )
    assert hypothesis in typed.stdout
    # Trained further without a word about its heads, also after a stop
    start = [f"--finetune-from-model={pruned.small}"]
    for updates in (2, 3):
        further = [pruned.mapping, *PRENORM, *start, f"--max-update={updates}"]
        log = train(data, tmp_path / "further", *further).stdout
        assert log.count("the heads of each layer are those of ") == 1
        start = []
    after = weights(tmp_path / "further" / "checkpoint_last.pt")
    before = weights(pruned.small)
    assert {k: v.shape for k, v in after.items()} == {k: v.shape for k, v in before.items()}
    assert any(not torch.equal(after[name], value) for name, value in before.items())


def test_the_same_heads_can_be_trained_from_scratch(data, pruned, tmp_path):
    options = run("fairseq-entmax", "prune", "--print-config", pruned.gated).stdout.split()
    assert options[::2] == [
        "--encoder-self-attn-heads",
        "--decoder-self-attn-heads",
        "--cross-attn-heads",
    ]
    train(data, tmp_path / "new", pruned.mapping, *PRENORM, *options, "--max-update=2")
    new, small = weights(tmp_path / "new" / "checkpoint_last.pt"), weights(pruned.small)
    assert {k: v.shape for k, v in new.items()} == {k: v.shape for k, v in small.items()}


@pytest.fixture(scope="module")
def full(data, tmp_path_factory):
    """A trained α-entmax model to prune."""
    folder = tmp_path_factory.mktemp("full")
    train(data, folder, "--max-update=8")
    return folder / "checkpoint_last.pt"


def test_a_frozen_decoder_keeps_every_bit(data, full, tmp_path):
    options = ["--head-gates=encoder-self", "--freeze-decoder", "--target-heads=encoder-self=3"]
    start = f"--finetune-from-model={full}"
    train(data, tmp_path, GATED[0], *options, start, "--max-update=8", "--validate-interval=1")
    before, after = weights(full), weights(tmp_path / "checkpoint_last.pt")
    decoder = [name for name in before if name.startswith("decoder.")]
    assert len(decoder) > 40
    assert all(torch.equal(after[name], before[name]) for name in decoder)
    # Shared with the decoder's, so frozen with them
    assert torch.equal(after["encoder.embed_tokens.weight"], before["encoder.embed_tokens.weight"])
    assert not torch.equal(
        after["encoder.layers.0.fc1.weight"], before["encoder.layers.0.fc1.weight"]
    )
    assert (decisions(tmp_path / "checkpoint_last.pt") == 1).sum() == 3


def test_a_stock_transformer_is_pruned_from_where_it_stands(data, tmp_path):
    stock = tmp_path / "stock"
    train(data, stock, "--max-update=4", arch="transformer")
    options = ["--attn-mapping=softmax", *GATED, "--target-heads=cross=4", "--max-update=8"]
    checkpoint = stock / "checkpoint_last.pt"
    log = train(data, tmp_path / "gated", *options, f"--finetune-from-model={checkpoint}")
    text = log.stdout + log.stderr
    assert "the checkpoint has no head gates for encoder.layers.0.self_attn" in text
    gated = weights(tmp_path / "gated" / "checkpoint_last.pt")
    open_cross = [v for k, v in gated.items() if k.endswith("encoder_attn.gate.decision")]
    assert (torch.cat(open_cross) == 1).sum() == 4


STEERED = ["--target-heads=encoder-self=3,cross=4", "--decide-heads-at=16", "--max-tokens=700"]


def test_a_pruning_that_is_killed_goes_on_as_if_it_had_not_been(data, full, tmp_path):
    options = [*GATED, *STEERED, f"--finetune-from-model={full}", "--save-interval-updates=2"]
    straight, killed = tmp_path / "straight", tmp_path / "killed"
    train(data, straight, *options, "--max-update=20")
    command = [
        *(COMMANDS / "fairseq-train", data / "bin", f"--user-dir={USER_DIR}"),
        *("--arch=entmax_transformer", f"--save-dir={killed}", *SMALL_MODEL, *TRAINING),
        *(*options, "--max-update=20", "--cpu"),
    ]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(
        command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    wanted = re.compile(r"checkpoint_\d+_(6|8|10|12)\.pt")
    deadline = time.monotonic() + 300
    while not (killed.is_dir() and any(wanted.fullmatch(p.name) for p in killed.iterdir())):
        assert process.poll() is None, "the training ended before it could be killed"
        assert time.monotonic() < deadline
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.wait()
    # From the middle of the way, wherever the kill came
    middle = sorted(killed.glob("checkpoint_*_6.pt"))
    assert len(middle) == 1
    half_way = weights(middle[0])
    assert half_way["pruning_state.multipliers"].abs().sum() > 0
    assert half_way["pruning_state.num_updates"].item() in (5, 6)
    middle[0].replace(killed / "checkpoint_last.pt")
    train(data, killed, *options, "--max-update=20")
    ends = [torch.load(folder / "checkpoint_last.pt") for folder in (straight, killed)]
    assert ends[0]["model"].keys() == ends[1]["model"].keys()
    for name, value in ends[0]["model"].items():
        assert torch.equal(value, ends[1]["model"][name]), name
    moments = [end["last_optimizer_state"]["state"] for end in ends]
    assert len(moments[0]) > 50
    for number, state in moments[0].items():
        for key in ("exp_avg", "exp_avg_sq"):
            assert torch.equal(state[key], moments[1][number][key])
    assert (ends[1]["model"]["pruning_state.multipliers"][[0, 2]] != 0).all()


def test_two_workers_prune_like_one_that_makes_two_batches_an_update(data, full, tmp_path):
    """Dropout draws differently in the two, so there is none; the gates draw the same."""
    options = [*GATED, *STEERED, f"--finetune-from-model={full}", "--dropout=0", "--max-update=20"]
    # fairseq's other way to load, a broadcast from the first worker, needs a GPU
    all_load = "--load-checkpoint-on-all-dp-ranks"
    [two, _] = train_in_two_processes(data, tmp_path / "two", *options, all_load)
    one = train(data, tmp_path / "one", *options, "--update-freq=2")
    both = SimpleNamespace(stdout=two, stderr="")
    losses = [
        [float(record["loss"]) for record in logged(result, "train_inner")]
        for result in (one, both)
    ]
    assert len(losses[0]) == 4
    assert losses[0] == pytest.approx(losses[1], abs=2e-3)
    ends = [weights(tmp_path / name / "checkpoint_last.pt") for name in ("one", "two")]
    assert torch.equal(
        *(torch.cat([v for k, v in end.items() if k.endswith("decision")]) for end in ends)
    )
    for name in ("pruning_state.multipliers", "encoder.layers.0.self_attn.gate.weight"):
        torch.testing.assert_close(ends[0][name], ends[1][name], rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize(
    ("options", "expected"),
    [(["--l0-weight=0"], 24), (["--l0-weight=50", "--gate-lr-factor=200"], 0)],
)
def test_a_weight_decides_how_many_heads_stay(data, full, tmp_path, options, expected):
    start = f"--finetune-from-model={full}"
    log = train(data, tmp_path, *GATED, *options, start, "--max-update=16")
    last = logged(log, "valid")[-1]
    assert float(last["valid_heads_open"]) == expected


def test_gates_train_in_half_precision(data, full, tmp_path):
    options = [*GATED, "--target-heads=6", "--max-update=12", "--memory-efficient-fp16"]
    log = train(data, tmp_path, *options, f"--finetune-from-model={full}")
    assert float(logged(log, "valid")[-1]["valid_heads_open"]) == 6
    state = weights(tmp_path / "checkpoint_last.pt")
    # fairseq saves in float32 what it trained in half precision
    gate, multipliers = (
        state[name]
        for name in ("encoder.layers.0.self_attn.gate.weight", "pruning_state.multipliers")
    )
    assert torch.equal(gate, gate.half().float())
    assert multipliers.dtype == torch.float64
    assert not torch.equal(multipliers, multipliers.half().double())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            ["--head-gates=cross", "--l0-weight=1e300"],
            "--l0-weight must be a number of 0 or more: 0, or from 1e-06 to 1000, not 1e+300",
        ),
        (["--l0-weight=0.1"], "needs a model with head gates: add --head-gates"),
        (
            ["--head-gates=cross", "--target-heads=9", "--max-update=4"],
            "--target-heads asks for 9 heads in all, but only 8 have gates",
        ),
        (
            ["--head-gates=cross", "--target-heads=4"],
            "--target-heads 4 needs to know when to decide which heads stay: give "
            "--decide-heads-at",
        ),
        (
            ["--head-gates=crosss", "--target-heads=4", "--max-update=4"],
            "--head-gates: unknown attention 'crosss'; allowed: encoder-self, decoder-self, cross",
        ),
        (
            ["--encoder-self-attn-heads=3,0,2"],
            "--encoder-self-attn-heads: 3 numbers of heads for 2 layers",
        ),
    ],
)
def test_a_wrong_option_stops_training_with_one_sentence(data, tmp_path, options, message):
    result = train(data, tmp_path / "new", GATED[0], *options, check=False)
    assert result.returncode == 2
    assert message in result.stderr
    assert "Traceback" not in result.stderr
    assert not (tmp_path / "new").exists()
