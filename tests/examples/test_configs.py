"""The YAML files for fairseq-hydra-train agree with the scripts of their recipes."""

import os
import subprocess

import pytest
import yaml

from tests.commands import ROOT, hydra_train
from tests.examples.dry_runs import EXAMPLES

SIDES = ("encoder", "decoder")


def options_of(recipe, *arrays, **further):
    """Options of fairseq-train in some arrays of a dataset.sh."""
    script = (
        f"set -eu; REST=() DEFAULT_OUTPUT=/nowhere ROOT={ROOT} RECIPE={EXAMPLES / recipe}; "
        "source $ROOT/examples/lib/common.sh; source $RECIPE/dataset.sh; source $ROOT/examples/lib/pruning.sh; "
        "prune_schedules; "
        'printf "%s\\n" --batch-tokens $BATCH_TOKENS '
        + " ".join(f'"${{{name}[@]}}"' for name in arrays)
    )
    environment = {**os.environ, **further}
    shown = subprocess.check_output(["bash", "-c", script], text=True, env=environment)
    found = {}
    for word in shown.splitlines():
        if word.startswith("--"):
            name = word.removeprefix("--").replace("-", "_")
        found[name] = word.startswith("--") or word
    return found


def test_a_pruned_model_trains_further_at_the_rate_that_is_given():
    assert options_of("bible_es_en", "recovering")["lr"] == "0.003"
    found = options_of("bible_es_en", "recovering", RECOVERY_LR="0.006")
    assert (found["lr"], found["end_learning_rate"]) == ("0.006", "0")
    assert options_of("bible_es_en", "searching", RECOVERY_LR="0.006")["lr"] == "0.0015"


def same(option, setting):
    if isinstance(setting, list):
        return [float(text) for text in option.strip("()").split(",")] == list(map(float, setting))
    if isinstance(setting, bool) or isinstance(option, bool):
        return bool(option == setting)
    return option == str(setting) or float(option) == float(setting)


@pytest.mark.parametrize(
    ("recipe", "name", "arrays"),
    [
        ("wmt_en_ru", "prune", ["MODEL", "TRAINING", "searching"]),
        ("bible_es_en", "entmax", ["MODEL", "TRAINING"]),
    ],
)
def test_a_config_agrees_with_the_scripts(recipe, name, arrays):
    path = EXAMPLES / recipe / "configs" / f"{name}.yaml"
    sections = yaml.safe_load(path.read_text(encoding="utf-8"))
    settings = {key: value for section in sections.values() for key, value in section.items()}
    options = options_of(recipe, *arrays)
    tokens = settings["max_tokens"] * settings.get("update_freq", [1])[0]
    assert options.pop("batch_tokens") == str(tokens)
    for given in ("arch", "criterion", "optimizer", "lr_scheduler"):
        options.pop(given)
    if name == "prune":  # prune.sh switches patience off
        options.pop("patience")
    if recipe == "bible_es_en":  # train.sh gives these, of six epochs
        options |= {"total_num_update": str(6 * 1817), "alpha_warmup_updates": str(3 * 1817)}
    assert len(options) > 8
    assert {k: v for k, v in options.items() if not same(v, settings.get(k, ""))} == {}


@pytest.mark.slow
def test_hydra_trains_from_a_config(data, tmp_path):
    sizes = [f"{side}_{part}" for side in SIDES for part in ("embed_dim", "ffn_embed_dim")]
    hydra_train(
        *(data, tmp_path / "saved", "wmt_en_ru", "prune", "optimization.max_update=4"),
        *("task.source_lang=es", "task.target_lang=en", "checkpoint.finetune_from_model=null"),
        *("dataset.max_tokens=1000", "dataset.validate_interval_updates=2"),
        *("criterion.l0_warmup_updates=1", "criterion.decide_heads_at=2"),
        "criterion.target_heads='encoder-self=1,decoder-self=2,cross=3'",
        *(f"+model.{size}=32" for size in sizes),
    )
    assert (tmp_path / "saved" / "checkpoint_best.pt").exists()
