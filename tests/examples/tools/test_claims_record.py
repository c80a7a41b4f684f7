"""examples/tools/claims_record.py: what is recorded of a run."""

import json
from pathlib import Path

from claims_record import curve, main, relative_paths
from training_logs import Course, Epoch


def test_updates_and_epochs_continue_over_phases():
    search = Course((Epoch(1, 100, 4.0), Epoch(2, 150, 3.5)), False)
    recovery = Course((Epoch(1, 80, 3.0),), False)
    points = curve([search, recovery])
    assert [(p["epoch"], p["updates"]) for p in points] == [(1, 100), (2, 150), (3, 230)]
    assert [p["valid_nll_loss"] for p in points] == [4.0, 3.5, 3.0]


def test_no_local_path_is_recorded():
    made = {"models": [{"checkpoint": "/a/b/runs/x/best.pt"}], "data": {"path": "/a/b/data-bin"}}
    cleaned = relative_paths(made, Path("/a/b"))
    assert cleaned == {"models": [{"checkpoint": "runs/x/best.pt"}], "data": {"path": "data-bin"}}


def test_a_record_keeps_its_description_and_refuses_a_trial(tmp_path, refusal):
    main(["about", str(tmp_path), "--corpora", "one,two"])
    path = tmp_path / "record.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "hours": 3.5, "date": "then"}))
    main(["about", str(tmp_path), "--corpora", "two,three"])
    about = json.loads(path.read_text())
    assert (about["corpora"], about["hours"]) == (["one", "two", "three"], 3.5)
    assert about["date"] == "then"  # of the first runs
    for other in (["--quick"], ["--epochs", "2"]):
        again = ["about", str(tmp_path), "--corpora", "one", *other]
        assert "choose another --output" in refusal(main, again)
