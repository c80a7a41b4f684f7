import json

import pytest

from fairseq_entmax.analysis import value_table
from fairseq_entmax.attention import attention_modules
from fairseq_entmax.cli import main
from fairseq_entmax.models.checkpoint_model import read_model
from tests.analysis.test_models import alphas_of, save
from tests.support import build_model


def checkpoint(tmp_path, arch="entmax_transformer", **options):
    model = build_model(arch, **options)
    return model, save(tmp_path / "checkpoint.pt", model, arch, **options)


@pytest.mark.parametrize("share", ["none", "layer", "model"])
def test_rows_have_the_models_alphas(tmp_path, share):
    model, path = checkpoint(tmp_path, share_alpha=share)
    rows = {(row.attention, row.layer): row for row in value_table.model_values(read_model(path))}
    assert len(rows) == 6
    for *place, module in attention_modules(model):
        row = rows[*place]
        assert (row.mapping, row.learned) == ("entmax", ("alpha",))
        assert row.values["alpha"] == pytest.approx(module.mapping.alpha.tolist(), abs=1e-6)


def test_fixed_mappings_are_shown_with_their_alpha(tmp_path):
    _, path = checkpoint(
        tmp_path, attn_mapping="softmax,entmax:alpha=1.33", cross_attn_mapping="sparsemax,entmax"
    )
    rows = {(row.attention, row.layer): row for row in value_table.model_values(read_model(path))}
    assert rows["encoder-self", 0].values["alpha"] == [1.0] * 4
    assert rows["decoder-self", 1].values["alpha"] == [1.33] * 4
    assert rows["cross", 0].values["alpha"] == [2.0] * 4
    assert rows["cross", 1].learned
    assert not rows["cross", 0].learned
    # A stock transformer is shown as softmax
    _, path = checkpoint(tmp_path, "transformer")
    rows = value_table.model_values(read_model(path))
    found = [(row.mapping, row.learned, row.values["alpha"]) for row in rows]
    assert found == [("softmax", (), [1.0] * 4)] * 6
    row = value_table.as_table(rows).splitlines()[-2]
    assert row.split() == ["cross", "1", "softmax", "(fixed)", *["1.0000"] * 4]


def test_missing_values_of_per_head_mappings_are_a_dash_or_null(tmp_path, capsys):
    _, path = checkpoint(tmp_path, attn_mapping="entmax:init=1.5|sqpnormmax|fusedmax*2")
    assert main(["alpha", path]) == 0
    tables = capsys.readouterr().out.split("\n\n")
    names = [table.split(maxsplit=1)[0].rstrip(",") for table in tables]
    assert names == ["alpha", "p", "gamma", "tv"]
    text = "entmax:init=1.5|sqpnormmax|fusedmax*2"
    row = next(line for line in tables[0].splitlines() if line.startswith("cross"))
    assert row.split() == ["cross", "0", text, "1.5000", "-", "(2.0000)", "(2.0000)"]
    assert tables[0].splitlines()[-3] == "in brackets: fixed"
    row = next(line for line in tables[3].splitlines() if line.startswith("cross"))
    assert row.split() == ["cross", "0", text, "(fixed)", "-", "-", "0.1000", "0.1000"]
    assert "learned: mean 1.5000, from 1.5000 to 1.5000" in tables[0]
    assert main(["alpha", "--json", path]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed[0]["p"] == [None, 1.5, None, None]


def test_each_table_ends_with_the_rank_correlation(tmp_path, capsys):
    model, path = checkpoint(tmp_path, attn_mapping="entmax:tv=learned")
    end = alphas_of(model)
    start = {
        name: {layer: [2.5 - value for value in heads] for layer, heads in layers.items()}
        for name, layers in end.items()
    }
    record = [{"update": 0, "alpha": start}, {"update": 3, "alpha": end}]
    (tmp_path / "alpha.jsonl").write_text("".join(json.dumps(line) + "\n" for line in record))
    assert main(["alpha", path]) == 0
    alphas, strengths = capsys.readouterr().out.split("\n\n")
    assert alphas.splitlines()[-1] == (
        "rank correlation of initial and final values, updates 0 to 3: -1.00 (encoder-self -0.99, "
        "decoder-self -1.00, cross -0.99)"
    )
    assert "unknown, there is no tv.jsonl beside the checkpoint" in strengths.splitlines()[-1]
