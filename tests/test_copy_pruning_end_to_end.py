"""Pruning of a model that copies through fairseq's own commands, on a slice of the corpus."""

import shlex
from types import SimpleNamespace

import pytest
import torch

from fairseq_entmax.models.saved import read_model
from tests.commands import generate, hypotheses, logged, run, train

pytestmark = pytest.mark.slow

ARCH = "entmax_copy_transformer"
COPY = ["--attn-mapping=softmax", "--copy-heads=2", "--copy-mapping=sparsemax"]
GATED = [
    "--criterion=copy_cross_entropy_with_head_l0",
    "--copy-loss-weight=0.1",
    "--head-gates=encoder-self,cross",
    "--target-heads=encoder-self=3,cross=3",
    "--max-update=24",
]
NAMES = ("encoder-self", "cross")


def weights(path):
    return torch.load(path)["model"]


@pytest.fixture(scope="module")
def pruned(data, tmp_path_factory):
    """A copy model trained to counts of heads, and what pruning made of that."""
    folder = tmp_path_factory.mktemp("copy")
    log = train(data, folder / "gated", *COPY, *GATED, arch=ARCH)
    gated, small = folder / "gated" / "checkpoint_last.pt", folder / "small.pt"
    printed = run("fairseq-entmax", "prune", gated, "--output", small, "--print-config").stdout
    return SimpleNamespace(gated=gated, small=small, log=log, printed=shlex.split(printed))


def test_training_ends_with_exactly_the_counts_and_the_copy_head_among_them(pruned):
    last = logged(pruned.log, "valid")[-1]
    for name in NAMES:
        assert float(last[f"valid_heads_open_{name.replace('-', '_')}"]) == 3
    assert float(last["valid_heads_expected"]) == 6
    assert float(last["valid_l0_penalty"]) == float(last["valid_heads_undecided"]) == 0
    gates = read_model(str(pruned.gated)).options.build_gate("cross", 1)
    prefix = "decoder.layers.1.encoder_attn.gate"
    gates.load_state_dict(
        {name: weights(pruned.gated)[f"{prefix}.{name}"] for name in ("weight", "decision")}
    )
    assert gates.decision[2] == 1
    # Nothing has pushed it, and nobody has pulled
    assert gates.log_a[2].item() == pytest.approx(2.5)
    assert (gates.log_a[[0, 1, 3]] - 2.5).abs().min() > 0.01


def test_the_pruned_model_generates_what_the_gated_one_does(data, pruned):
    outputs = [generate(data, path).stdout for path in (pruned.gated, pruned.small)]
    assert hypotheses(outputs[1]) == hypotheses(outputs[0])
    for lines in zip(*(output.splitlines() for output in outputs), strict=True):
        if lines[0].startswith("H-"):
            first, second = (float(line.split("\t")[1]) for line in lines)
            assert first == pytest.approx(second, abs=1e-4)


def test_training_goes_on_without_options_of_heads_and_with_the_printed_ones(
    data, pruned, tmp_path
):
    expected = read_model(str(pruned.small)).options
    start = ["--finetune-from-model", pruned.small, "--criterion=copy_cross_entropy"]
    for folder, options in (("none", []), ("mapping", COPY[2:]), ("printed", pruned.printed)):
        given = [COPY[0], *options, *start, "--max-update=1"]
        train(data, tmp_path / folder, *given, arch=ARCH)
        path = tmp_path / folder / "checkpoint_last.pt"
        found = read_model(str(path)).options
        assert (found.copy, found.heads, found.specs) == (
            expected.copy,
            expected.heads,
            expected.specs,
        )
        assert {k: v.shape for k, v in weights(path).items()} == {
            k: v.shape for k, v in weights(pruned.small).items()
        }


def test_the_table_of_alphas_shows_the_copy_heads_own(pruned):
    lines = run("fairseq-entmax", "alpha", pruned.small).stdout.splitlines()
    row = next(line for line in lines if line.startswith("cross") and line.split()[1] == "1")
    copy = read_model(str(pruned.small)).options.copy
    alphas = [float(value) for value in row.split(")")[-1].split()]
    assert [head for head, alpha in enumerate(alphas) if alpha == 2] == list(copy.heads)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            ["--copy-heads=5"],
            "--copy-heads 5: layer 1 of the cross attention has heads 0 to 3",
        ),
        (
            ["--cross-attn-heads=4,0"],
            "--copy-heads 0: layer 1 of the cross attention has no heads, they were pruned",
        ),
        (
            [*COPY, *GATED, "--target-heads=cross=0"],
            "--target-heads asks for 0 heads in cross, where 1 copy and always stay: give 1 or "
            "more, or let copy heads go too with --gate-copy-heads",
        ),
        (
            ["--copy-heads=3", "--finetune-from-model={small}"],
            "--copy-heads 3: {small} was pruned, and copies by {head} of the heads left",
        ),
    ],
)
def test_a_wrong_option_stops_training_with_one_sentence(data, pruned, tmp_path, options, message):
    copy = read_model(str(pruned.small)).options.copy
    names = {"small": pruned.small, "head": copy.heads[0]}
    given = [option.format(**names) for option in options]
    result = train(data, tmp_path / "new", *given, arch=ARCH, check=False)
    assert result.returncode == 2
    assert message.format(**names) in result.stderr
    assert "Traceback" not in result.stderr
    assert not (tmp_path / "new").exists()


def test_a_copy_head_that_was_pruned_stops_generation_with_one_sentence(data, pruned):
    overrides = "--model-overrides={'copy_heads': '3'}"
    result = generate(data, pruned.small, overrides, check=False)
    assert result.returncode == 2
    assert "--copy-heads 3: layer 1 of the cross attention has heads 0 to " in result.stderr
    assert "Traceback" not in result.stderr
