"""examples/bible_es_en/claims.sh --quick: from data to verdicts, with a kill and a restart.

All tests share one record, made by a call that is killed halfway and a second call.
"""

import json
import lzma
import os
import re
import subprocess

import pytest

from tests import preloaded
from tests.examples.dry_runs import EXAMPLES, PATH, DryRun, called, kill_when

CHOSEN = ("--quick", "--models", "softmax", "--sizes", "large", "--cpu", "--jobs", "2")
BASELINE = "softmax-large-seed1"
PRUNED, SCRATCH = (f"softmax-large-seed1-all24-{role}" for role in ("pruned", "scratch"))
CONTINUED = "softmax-large-seed1-continued"
RUNS = {BASELINE, PRUNED, SCRATCH, CONTINUED}
SEARCHED, RECOVERED, TRAINED = 8, 6, 14  # updates of a trial

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("claims")
    command = [EXAMPLES / "bible_es_en" / "claims.sh", *CHOSEN, "--output", folder]
    env = {**os.environ, "PATH": preloaded.path(PATH), "OMP_NUM_THREADS": "1"}
    # Kill it during a search for heads to prune, which needs the trained baseline
    search = folder / "bible_es_en" / "runs" / PRUNED.replace("pruned", "search") / "train.log"
    kill_when(search.exists, command, env)
    before = {path: path.stat().st_mtime_ns for path in (folder / "record").glob("*/*.xz")}
    assert folder / "record" / "bible_es_en" / f"{CONTINUED}.json.xz" in before
    subprocess.run(command, env=env, check=True)
    # Nothing that was done before the kill was repeated
    assert {path: path.stat().st_mtime_ns for path in before} == before
    return folder


def record(made, run):
    path = made / "record" / "bible_es_en" / f"{run}.json.xz"
    return json.loads(lzma.decompress(path.read_bytes()))


def test_record_and_verdicts_have_each_run_once_and_no_local_paths(made):
    files = {path.name for path in (made / "record" / "bible_es_en").iterdir()}
    assert files == {f"{run}.json.xz" for run in RUNS} | {"speed.json"}
    for run in RUNS:
        assert record(made, run)["run"] == run
        assert str(made) not in json.dumps(record(made, run))
    assert list(made.rglob("*.tmp*")) == []
    text = (made / "claims.md").read_text("utf-8")
    assert "This was a quick run" in text
    assert "bible_es_en (4 runs, seeds 1)" in text


def test_updates_are_counted_once_and_the_heads_found_are_pruned(made):
    names = (BASELINE, PRUNED, SCRATCH, CONTINUED)
    baseline, pruned, scratch, continued = (record(made, run) for run in names)
    assert baseline["updates"] == baseline["own_updates"] == TRAINED
    assert pruned["own_updates"] == pruned["curve"][-1]["updates"] == SEARCHED + RECOVERED
    assert pruned["updates"] == TRAINED + SEARCHED + RECOVERED
    assert continued["updates"] == scratch["updates"] == pruned["updates"]
    for run in RUNS:
        updates = [point["updates"] for point in record(made, run)["curve"]]
        assert updates == sorted(set(updates))
    heads = {name: [len(layer) for layer in layers] for name, layers in pruned["kept"].items()}
    assert heads == pruned["heads"] == scratch["heads"]
    assert sum(map(sum, heads.values())) == 24
    assert pruned["search"][-1]["updates"] == SEARCHED
    assert pruned["search"][-1]["open"] == {name: sum(layers) for name, layers in heads.items()}
    assert sum(map(sum, continued["heads"].values())) == 72


def test_a_recorded_run_matches_the_measurements_of_its_model(made):
    run, folder = record(made, BASELINE), made / "bible_es_en"
    path = folder / "runs" / BASELINE
    analysis = json.loads((path / "analysis/analysis.json").read_text(encoding="utf-8"))
    assert run["analysis"]["models"][0]["attentions"] == analysis["models"][0]["attentions"]
    references = (folder / "text/test.en").read_text(encoding="utf-8").splitlines()
    assert len(run["translation"]["sentences"]) == len(references) == 12
    printed = re.search(r"BLEU\|.* = (\S+) \S+ \(BP", (path / "scores.txt").read_text())
    assert printed is not None
    assert run["translation"]["bleu"] == pytest.approx(float(printed[1]), abs=0.006)
    assert len(run["ablation"]["removals"]) == 2
    assert record(made, CONTINUED)["ablation"] is None


def test_a_quick_trial_of_the_claims_makes_every_run_that_they_need(tmp_path):
    dry, out = DryRun(tmp_path / "stubs"), tmp_path / "out"
    command = ("bible_es_en", "claims.sh", "--quick", "--cpu", "--jobs", 2, "--output", out)
    dry(*command)
    calls = dry.calls()
    models = "softmax entmax entmax15 sparsemax cross-sparsemax cross-fusedmax cross-oscarmax "
    small = f"{models}cross-sqpnormmax sparse-encoder fusedmax oscarmax entmax-tv".split()
    rising = ["entmax", "entmax15", "sparsemax", *small[-3:], "sqpnormmax"]
    expected = {f"{model}-small-seed1" for model in [*small, *(f"rise50-{one}" for one in rising)]}
    large = [*small[:4], *(f"rise50-{one}" for one in rising[:3])]
    expected |= {f"{model}-large-seed1" for model in large}
    roles = ("continued", "all24-pruned", "all24-scratch")
    expected |= {f"softmax-large-seed1-{role}" for role in roles}
    assert {path.name.removesuffix(".json.xz") for path in out.glob("record/*/*.xz")} == expected
    ablated = " ".join(called(calls, "fairseq-entmax", "ablate"))
    assert sorted(re.findall("--scores (\\S+)", ablated)) == ["loss", "loss,bleu"]
    assert any("--cross-attn-mapping oscarmax" in call for call in called(calls, "fairseq-train"))
    assert any("entmax:tv=learned" in call for call in called(calls, "fairseq-train"))
    dry(*command)
    assert called(dry.calls(), "fairseq-train") == []
