"""Mappings with structure and heads apart through every command, from one training of them all."""

import json
import re
from types import SimpleNamespace

import pytest
import torch

from fairseq_entmax.models.head_record import read_record
from tests.commands import (
    SIZES,
    generate,
    hypotheses,
    run,
    train,
    train_in_two_processes,
)

pytestmark = pytest.mark.slow

APART = "entmax:tv=learned|softmax|sqpnormmax:p=learned|fusedmax"
MAPPINGS = [
    f"--encoder-self-attn-mapping=({APART})*2",
    "--decoder-self-attn-mapping=fusedmax:tv=learned,oscarmax",
    "--cross-attn-mapping=entmax:oscar=learned,sqpnormmax:p=learned",
    "--tv-init=0.05",
    "--p-init=1.7",
]
GONE = "encoder-self:0.0,0.3;cross:1.2"


@pytest.fixture(scope="module")
def trained(data, tmp_path_factory):
    """A model that two processes trained, and the same without three of its heads."""
    folder = tmp_path_factory.mktemp("structured")
    [log, _] = train_in_two_processes(
        data, folder / "run", *MAPPINGS, "--max-update=12", "--alpha-log-interval=4"
    )
    checkpoint, small = folder / "run" / "checkpoint_last.pt", folder / "small.pt"
    run("fairseq-entmax", "prune", checkpoint, "--heads", GONE, "--output", small)
    return SimpleNamespace(folder=folder / "run", log=log, checkpoint=checkpoint, small=small)


def test_every_strength_moves_and_is_recorded_with_null_where_there_is_none(trained):
    for name, attention, layer, missing in (
        ("alpha", "encoder-self", "1", [False, False, True, False]),
        ("tv", "encoder-self", "0", [False, True, True, False]),
        ("tv", "decoder-self", "0", [False] * 4),
        ("oscar", "cross", "0", [False] * 4),
        ("p", "cross", "1", [False] * 4),
        ("p", "encoder-self", "0", [True, True, False, True]),
    ):
        records = read_record(trained.folder / f"{name}.jsonl", name)
        assert [record["update"] for record in records] == [0, 4, 8, 12]
        first, last = (record[name][attention][layer] for record in (records[0], records[-1]))
        assert [value is None for value in last] == missing
        assert first != last
        key = f"train_{name}_{attention.replace('-', '_')}_mean"
        logged = [float(value) for value in re.findall(rf'"{key}": "([^"]+)"', trained.log)]
        before = records[0][name][attention]
        learned = [
            value
            for number, heads in records[-1][name][attention].items()
            for value, old in zip(heads, before[number], strict=True)
            if value != old  # what is fixed is not of the log's mean
        ]
        assert logged[-1] == pytest.approx(sum(learned) / len(learned), abs=0.02)


def test_both_processes_end_with_the_checkpoints_values_and_the_table_shows_them(trained):
    printed = json.loads(run("fairseq-entmax", "alpha", "--json", trained.checkpoint).stdout)
    last = read_record(trained.folder / "tv.jsonl", "tv")[-1]["tv"]["encoder-self"]["0"]
    row = next(row for row in printed if row["attention"] == "encoder-self")
    assert row["mapping"] == APART
    assert row["tv"][1:3] == [None, None]
    assert row["tv"][0] == pytest.approx(last[0], abs=1e-5)


def test_models_translate_with_all_heads_and_without_some(data, trained):
    for checkpoint in (trained.checkpoint, trained.small):
        assert len(hypotheses(generate(data, checkpoint).stdout)) == SIZES["test"]
    settings = torch.load(trained.small)["cfg"]["model"]
    assert settings.encoder_self_attn_mapping == f"(softmax|sqpnormmax:p=learned),({APART})"


def test_what_is_left_is_trained_on_in_half_precision(data, trained, tmp_path):
    options = run("fairseq-entmax", "prune", "--print-config", trained.small).stdout
    assert "--encoder-self-attn-mapping '(softmax|sqpnormmax:p=learned)" in options
    mapping = f"--encoder-self-attn-mapping=(softmax|sqpnormmax:p=learned),({APART})"
    start = [f"--finetune-from-model={trained.small}", "--max-update=2", "--memory-efficient-fp16"]
    train(data, tmp_path, *MAPPINGS[1:], mapping, *start)
    after = torch.load(tmp_path / "checkpoint_last.pt")["model"]
    before = torch.load(trained.small)["model"]
    assert {k: v.shape for k, v in after.items()} == {k: v.shape for k, v in before.items()}
    assert all(value.isfinite().all() for value in after.values())


def test_the_analysis_and_its_report_are_of_all_heads(data, trained, tmp_path):
    pytest.importorskip("altair")
    paths = f"--path={trained.checkpoint}:{trained.small}"
    output = f"--output={tmp_path / 'analysis'}"
    run("fairseq-entmax", "analyze", data / "bin", paths, output, "--cpu")
    analysis = json.loads((tmp_path / "analysis" / "analysis.json").read_text(encoding="utf-8"))
    whole, small = (
        {layer["attention"]: layer for layer in model["attentions"][:1]}
        for model in analysis["models"]
    )
    assert [head["values"]["p"] is None for head in whole["encoder-self"]["heads"]] == [
        *(True, True, False, True)
    ]
    assert small["encoder-self"]["mapping"] == "softmax|sqpnormmax:p=learned"
    assert set(analysis["models"][0]["records"]) == {"alpha", "tv", "oscar", "p"}
    page = tmp_path / "report.html"
    run("fairseq-entmax", "report", tmp_path / "analysis" / "analysis.json", "--output", page)
    assert "softmax|sqpnormmax:p=learned" in page.read_text(encoding="utf-8")
