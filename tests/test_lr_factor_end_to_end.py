"""--alpha-lr-factor through fairseq's own commands, on a slice of the corpus."""

import json
import subprocess

import pytest

from fairseq_entmax.models import EntmaxTransformerModel
from fairseq_entmax.models.head_record import read_record
from tests.commands import COMMANDS, ROOT, USER_DIR, run, train

pytestmark = pytest.mark.slow

MAPPINGS = ["--attn-mapping=entmax:tv=learned", "--cross-attn-mapping=sqpnormmax:p=learned"]


@pytest.fixture(scope="module")
def fast(data, tmp_path_factory):
    """A model whose heads learn 20 times as fast as its other parameters."""
    folder = tmp_path_factory.mktemp("fast")
    train(data, folder, *MAPPINGS, "--alpha-lr-factor=20", "--max-update=20")
    return folder


def lines(folder, name):
    return read_record(folder / f"{name}.jsonl", name)


def alphas(values):
    return [value for layers in values.values() for heads in layers.values() for value in heads]


def test_alpha_goes_further_than_without_the_factor(data, fast, tmp_path):
    train(data, tmp_path, *MAPPINGS, "--max-update=20")
    first, last = (alphas(lines(fast, "alpha")[at]["alpha"]) for at in (0, -1))
    slow_first, slow_last = (alphas(lines(tmp_path, "alpha")[at]["alpha"]) for at in (0, -1))
    assert first == pytest.approx(slow_first, abs=2e-6)
    moved, slow = (
        sum(abs(b - a) for a, b in zip(start, end, strict=True))
        for start, end in ((first, last), (slow_first, slow_last))
    )
    assert moved > 3 * slow > 0


@pytest.mark.parametrize("factor", ["1", "300"])
@pytest.mark.parametrize("option", ["--finetune-from-model", "--restore-file"])
def test_a_training_with_another_factor_goes_on_from_the_same_values(
    data, fast, tmp_path, option, factor
):
    start = f"{option}={fast / 'checkpoint_last.pt'}"
    reset = ["--reset-optimizer"] if option == "--restore-file" else []
    train(
        data, tmp_path, *MAPPINGS, start, *reset, f"--alpha-lr-factor={factor}", "--max-update=21"
    )
    for name in ("alpha", "tv", "p"):
        old, new = lines(fast, name)[-1], lines(tmp_path, name)[0]
        for attention, layers in old[name].items():
            for layer, heads in layers.items():
                assert new[name][attention][layer] == pytest.approx(heads, abs=2e-6)


@pytest.mark.parametrize("factor", ["0.001", "10"])
def test_half_precision_holds_what_is_learned(data, tmp_path, factor):
    # A scale that fits at once: to try another one, fairseq needs a GPU
    half = ("--memory-efficient-fp16", "--fp16-init-scale=4", f"--alpha-lr-factor={factor}")
    train(data, tmp_path, *MAPPINGS, *half, "--max-update=6")
    expected = lines(tmp_path, "alpha")[-1]["alpha"]
    assert all(1 <= value <= 2 for value in alphas(expected))
    shown = run("fairseq-entmax", "alpha", "--json", tmp_path / "checkpoint_last.pt").stdout
    for row in json.loads(shown):
        if "alpha" in row["learned_heads"]:
            heads = expected[row["attention"]][str(row["layer"])]
            assert row["alpha"] == pytest.approx(heads, abs=2e-6)


def test_the_table_the_hub_and_the_analysis_show_the_values_of_the_record(data, fast, tmp_path):
    checkpoint = fast / "checkpoint_last.pt"
    expected = lines(fast, "alpha")[-1]["alpha"]
    rows = json.loads(run("fairseq-entmax", "alpha", "--json", checkpoint).stdout)
    shown = {(row["attention"], row["layer"]): row["alpha"] for row in rows if row["learned"]}
    hub = EntmaxTransformerModel.from_pretrained(
        str(fast), checkpoint.name, str(data / "bin"), source_lang="es", target_lang="en"
    )
    output = tmp_path / "analysis"
    options = ("--path", checkpoint, "--output", output, "--gen-subset", "test", "--cpu")
    run("fairseq-entmax", "analyze", data / "bin", *options)
    (model,) = json.loads((output / "analysis.json").read_text())["models"]
    analysed = {
        (layer["attention"], layer["layer"]): [head["values"]["alpha"] for head in layer["heads"]]
        for layer in model["attentions"]
        if "alpha" in layer["learned"]
    }
    for attention, layers in expected.items():
        for layer, heads in layers.items():
            module = getattr(hub.models[0], attention.split("-")[0]).layers[int(layer)].self_attn
            assert module.mapping.alpha.tolist() == pytest.approx(heads, abs=2e-6)
            assert shown[attention, int(layer)] == pytest.approx(heads, abs=2e-6)
            assert analysed[attention, int(layer)] == pytest.approx(heads, abs=1e-4)
    table = run("fairseq-entmax", "alpha", checkpoint).stdout
    assert "rank correlation of start and end, updates 0 to 20: " in table


def test_a_pruned_model_is_trained_further_from_its_values(data, fast, tmp_path):
    pruned = tmp_path / "pruned.pt"
    words = (
        "prune",
        fast / "checkpoint_last.pt",
        "--heads",
        "encoder-self:0.0",
        "--output",
        pruned,
    )
    run("fairseq-entmax", *words)
    start = f"--finetune-from-model={pruned}"
    train(data, tmp_path, *MAPPINGS, start, "--alpha-lr-factor=3", "--max-update=1")
    old, new = lines(fast, "alpha")[-1]["alpha"], lines(tmp_path, "alpha")[0]["alpha"]
    assert new["encoder-self"]["0"] == pytest.approx(old["encoder-self"]["0"][1:], abs=2e-6)
    assert new["encoder-self"]["1"] == pytest.approx(old["encoder-self"]["1"], abs=2e-6)


def test_yaml_sets_the_factor(data, tmp_path):
    command = [
        COMMANDS / "fairseq-hydra-train",
        *("--config-dir", ROOT / "examples" / "bible_es_en" / "configs", "--config-name", "entmax"),
        *(f"common.user_dir={USER_DIR}", "common.cpu=true", f"task.data={data / 'bin'}"),
        *(f"checkpoint.save_dir={tmp_path / 'hydra'}", "optimization.max_update=2"),
        "model.alpha_lr_factor=30",
    ]
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout[-3000:] + result.stderr[-3000:]
    hub = EntmaxTransformerModel.from_pretrained(
        str(tmp_path / "hydra"),
        "checkpoint_last.pt",
        str(data / "bin"),
        source_lang="es",
        target_lang="en",
    )
    assert hub.models[0].encoder.layers[0].self_attn.mapping.lr_factor == 30


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            ["--alpha-lr-factor=0"],
            "the factor must be a number above 0, from 0.001 to 10000, not '0'",
        ),
        (["--alpha-lr-factor=fast"], "argument --alpha-lr-factor: the factor must be a number"),
        (["--attn-mapping=entmax15:lr_factor=3"], "unknown parameter 'lr_factor=3' of mapping"),
        (["--attn-mapping=fusedmax:lr_factor=3"], "lr_factor is for what is learned, and"),
        (
            ["--attn-mapping=entmax:lr_factor=3,entmax", "--share-alpha=attention"],
            "lr_factor=3 in one layer and 1 in another: give all of them the same",
        ),
    ],
)
def test_a_wrong_factor_stops_training_at_once_with_one_sentence(data, tmp_path, options, message):
    result = train(data, tmp_path / "run", *options, "--max-update=1", check=False)
    assert result.returncode != 0
    assert message in result.stderr
    assert "Traceback" not in result.stderr
    assert not list(tmp_path.rglob("*.pt"))


@pytest.mark.parametrize(("factor", "warns"), [("20", False), ("10", True)])
def test_a_factor_that_changes_below_the_optimizer_is_said_in_the_log(
    data, fast, tmp_path, factor, warns
):
    start = f"--restore-file={fast / 'checkpoint_last.pt'}"
    done = train(data, tmp_path, *MAPPINGS, start, f"--alpha-lr-factor={factor}", "--max-update=21")
    said = [line for line in (done.stdout + done.stderr).splitlines() if "lr-factor or" in line]
    assert len(said) == warns
    assert all("--reset-optimizer and another --save-dir" in line for line in said)
