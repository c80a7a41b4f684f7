"""Gates, budgets and pruning with fairseq's own commands, on a slice of the corpus."""

import re
from types import SimpleNamespace

import pytest
import torch
from fairseq.models.transformer import TransformerModel

from tests.commands import (
    BUDGET,
    GATED,
    SIZES,
    generate,
    hub,
    hypotheses,
    killed_at,
    logged,
    run,
    train,
    train_in_two_processes,
    weights,
)

ATTENTIONS = ("encoder_self", "decoder_self", "cross")
STEERED = ["--target-heads=encoder-self=3,cross=4", "--decide-heads-at=16", "--max-tokens=700"]


def decisions(path, part=""):
    named = weights(path).items()
    return torch.cat([v for k, v in named if k.endswith(f"{part}gate.decision")])


def scores(output):
    lines = [line.split("\t") for line in output.splitlines() if line.startswith("H-")]
    return [float(line[1]) for line in lines]


def shapes(path):
    return {name: value.shape for name, value in weights(path).items()}


def test_training_ends_with_exactly_the_budget_and_logs_it(pruned):
    gated = pruned / "gated"
    found = decisions(gated / "checkpoint_best.pt")
    assert sorted(found.tolist()) == [0] * (24 - BUDGET) + [1] * BUDGET
    first, *between, last = logged(gated, "valid")
    assert float(last["valid_heads_open"]) == float(last["valid_heads_expected"]) == BUDGET
    assert float(last["valid_heads_undecided"]) == float(last["valid_l0_penalty"]) == 0
    assert sum(float(last[f"valid_heads_open_{name}"]) for name in ATTENTIONS) == BUDGET
    assert float(first["valid_heads_open"]) > BUDGET
    assert any(float(record["valid_heads_undecided"]) > 0 for record in between)
    names = {"train_l0_penalty", "train_l0_weight", "train_heads_expected_cross"}
    assert names <= set(logged(gated, "train")[-1])


def test_the_pruned_model_translates_like_the_gated_one(data, pruned):
    report = (pruned / "report.txt").read_text(encoding="utf-8")
    counts = re.findall(r"^heads \S+ +8 +(\d+)  (\S+)$", report, re.MULTILINE)
    assert sum(int(total) for total, _ in counts) == BUDGET
    assert any("0" in layers.split(",") for _, layers in counts)
    options = ["--gen-subset=train", "--beam=2", "--max-len-b=20"]
    paths = (pruned / "gated" / "checkpoint_best.pt", pruned / "small.pt")
    before, after = (generate(data, path, *options).stdout for path in paths)
    assert hypotheses(after) == hypotheses(before)
    assert len(hypotheses(after)) == SIZES["train"]
    assert scores(after) == pytest.approx(scores(before), abs=1e-4)


def test_the_pruned_checkpoint_is_a_model_like_any_other(data, pruned, tmp_path):
    small = pruned / "small.pt"
    model = hub(TransformerModel, small, data / "bin")
    sentence = (data / "test.bpe.es").read_text(encoding="utf-8").splitlines()[0]
    hypothesis = model.translate(sentence, beam=3, max_len_b=30)
    assert hypothesis
    assert hypothesis in hypotheses(generate(data, small).stdout).values()
    # Trained further without options for its heads, also after a restart
    start = [f"--finetune-from-model={small}"]
    for updates in (2, 3):
        log = train(data, tmp_path / "further", *start, f"--max-update={updates}").stdout
        assert log.count("the numbers of heads are those of ") == 1
        start = []
    further = tmp_path / "further" / "checkpoint_last.pt"
    assert shapes(further) == shapes(small)
    assert any(not torch.equal(weights(further)[k], v) for k, v in weights(small).items())
    # Or from scratch, with the printed options
    gated = pruned / "gated" / "checkpoint_best.pt"
    options = run("fairseq-entmax", "prune", "--print-config", gated).stdout.split()
    names = ["--encoder-self-attn-heads", "--decoder-self-attn-heads", "--cross-attn-heads"]
    assert options[::2] == names
    train(data, tmp_path / "new", *options, "--max-update=2")
    assert shapes(tmp_path / "new" / "checkpoint_last.pt") == shapes(small)


@pytest.mark.parametrize("gate", ["hard-concrete", "subset"])
def test_a_killed_pruning_resumes_as_if_uninterrupted(data, trained, tmp_path, gate):
    start = f"--finetune-from-model={trained / 'checkpoint_last.pt'}"
    options = [*GATED, *STEERED, start, "--save-interval-updates=2", "--max-update=20"]
    options.append(f"--gate={gate}")
    straight, killed = tmp_path / "straight", tmp_path / "killed"
    train(data, straight, *options)
    killed_at(6, data, killed, *options)
    half_way = weights(killed / "checkpoint_last.pt")
    steered = half_way["pruning_state.multipliers"].abs().sum() > 1e-4
    assert steered == (gate == "hard-concrete")
    assert half_way["pruning_state.num_updates"].item() in (5, 6)
    train(data, killed, *options)
    ends = [torch.load(folder / "checkpoint_last.pt") for folder in (straight, killed)]
    torch.testing.assert_close(*(end["model"] for end in ends), atol=0, rtol=0)
    moments = [end["last_optimizer_state"]["state"] for end in ends]
    assert len(moments[0]) > 50
    for number, state in moments[0].items():
        for key in ("exp_avg", "exp_avg_sq"):
            assert torch.equal(state[key], moments[1][number][key])
    assert ends[1]["cfg"]["model"].gate == gate
    # Pruning without further options keeps exactly the requested numbers
    folder = str(tmp_path / "small.pt")
    report = run("fairseq-entmax", "prune", killed / "checkpoint_last.pt", "--output", folder)
    assert re.findall(r"^heads (\S+) +8 +(\d+)", report.stdout, re.MULTILINE)[::2] == [
        ("encoder-self", "3"),
        ("cross", "4"),
    ]


def test_two_workers_prune_like_one_with_two_batches_per_update(data, trained, tmp_path):
    """Dropout is off, because its draws would differ; the gates draw the same."""
    start = f"--finetune-from-model={trained / 'checkpoint_last.pt'}"
    options = [*GATED, *STEERED, start, "--dropout=0", "--max-update=20"]
    options += ["--alpha-warmup-updates=30", f"--teacher={trained / 'checkpoint_best.pt'}"]
    [two, _] = train_in_two_processes(data, tmp_path / "two", *options)
    one = train(data, tmp_path / "one", *options, "--update-freq=2")
    both = SimpleNamespace(stdout=two, stderr="")
    losses = [
        [
            float(record["loss"])
            for record in logged(result, "train_inner")
            if record["teacher_loss"]
        ]
        for result in (one, both)
    ]
    assert len(losses[0]) == 4
    assert losses[0] == pytest.approx(losses[1], abs=2e-3)
    paths = [tmp_path / name / "checkpoint_last.pt" for name in ("one", "two")]
    assert torch.equal(*map(decisions, paths))
    attention = "encoder.layers.0.self_attn"
    own = ("gate.weight", "mapping.rise.updates")
    for name in ("pruning_state.multipliers", *(f"{attention}.{value}" for value in own)):
        ends = [weights(path)[name] for path in paths]
        torch.testing.assert_close(*ends, rtol=1e-3, atol=1e-4)
