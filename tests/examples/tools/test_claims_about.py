"""examples/tools/claims_about.py: what the record says of the calls that made it."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from claims_about import write_about


def test_the_account_adds_up_the_calls(tmp_path: Path) -> None:
    calls = tmp_path / "jobs" / "calls"
    calls.mkdir(parents=True)
    for number, (seconds, cpu_seconds) in enumerate([(1800, 3600), (5400, 14400)]):
        content = {"seconds": seconds, "cpu_seconds": cpu_seconds, "commit": f"{number}"}
        (calls / f"{number}.json").write_text(json.dumps(content))
    (tmp_path / "jobs" / "preparations").mkdir()
    content = {"seconds": 720, "cpu_seconds": 360}
    (tmp_path / "jobs" / "preparations" / "7.json").write_text(json.dumps(content))
    options = argparse.Namespace(
        output=tmp_path,
        record=tmp_path / "record",
        quick=True,
        seeds=[1, 2],
        corpora=["a"],
        more_seeds=[],
        models=[],
        sizes=["large"],
        add=False,
    )
    write_about(options)
    about = json.loads((tmp_path / "record" / "record.json").read_text())
    assert (about["hours"], about["core_hours"], about["calls"]) == (2.2, 5.1, 2)
    assert (about["format"], about["version"]) == ("fairseq-entmax-claims", 1)
    assert (about["seeds"], about["corpora"], about["quick"]) == ([1, 2], ["a"], True)
    assert about["sizes"] == ["large"]
    assert "sparse-encoder" in about["models"]
    assert [(one["commit"], one["hours"], one.get("prepares")) for one in about["history"]] == [
        *((None, 0.2, True), ("0", 0.5, None), ("1", 1.5, None)),
    ]
    # With --add, what earlier calls took elsewhere stays in the account
    (calls / "0.json").unlink()
    (calls / "1.json").rename(calls / "2.json")
    options.add, options.seeds = True, [3]
    write_about(options)
    about = json.loads((tmp_path / "record" / "record.json").read_text())
    assert (about["hours"], about["core_hours"], about["calls"]) == (3.7, 9.1, 3)
    assert about["seeds"] == [1, 2, 3]
    assert set(about["versions"]) == {"fairseq-entmax", "fairseq", "torch", "python", "sacrebleu"}
