"""What fairseq has no hook for."""

import subprocess
import sys

from fairseq_entmax import compat

STOP_WHILE_BATCHES_ARE_LOADED = """
import sys, threading, torch
from fairseq_entmax import compat

started = threading.Event()

def load():
    rows = torch.zeros(1000, 8)
    while True:
        torch.stack([row.clone() for row in rows])
        started.set()

threading.Thread(target=load, daemon=True).start()
started.wait()
sys.argv = ["/somewhere/bin/fairseq-train"]
print("a line of the log")
compat.stop_command(ValueError("--option 7: give 6 or less"))
"""


def test_a_command_stops_with_status_2_though_a_thread_loads_batches():
    for _ in range(2):  # without care, Python aborts nearly each time
        result = subprocess.run(
            [sys.executable, "-c", STOP_WHILE_BATCHES_ARE_LOADED],
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert result.stderr.endswith("fairseq-train: error: --option 7: give 6 or less\n")
        assert result.stdout == "a line of the log\n"
        assert result.returncode == 2


def test_outside_of_a_command_the_caller_raises(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["pytest"])
    assert compat.stop_command(ValueError("no")) is None


def test_the_updates_are_those_of_the_trainer_that_was_made_last(monkeypatch):
    class Trainer:
        def __init__(self, updates):
            self.set_num_updates(updates)  # as fairseq's does when it builds the optimiser

        def set_num_updates(self, updates):
            self.updates = updates

    monkeypatch.setattr(compat, "Trainer", Trainer)
    monkeypatch.setattr(compat, "_trainer_updates", None)
    compat.follow_trainer()
    first = Trainer(0)
    assert compat.trainer_num_updates() is None
    first.set_num_updates(7)
    assert (compat.trainer_num_updates(), first.updates) == (7, 7)
    Trainer(3)
    assert compat.trainer_num_updates() is None
