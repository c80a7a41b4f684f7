"""How a command of fairseq stops on an error, with one process or several."""

import os
import subprocess
import sys

import pytest

from fairseq_entmax import command_errors
from tests import commands

STOP_WHILE_BATCHES_ARE_LOADED = """
import sys, threading, torch
from fairseq_entmax import command_errors

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
command_errors.stop_command(ValueError("--option 7: give 6 or less"))
"""


def test_a_command_stops_with_status_2_while_a_thread_loads_batches():
    # Without precautions, Python aborts almost every time
    command = [sys.executable, "-c", STOP_WHILE_BATCHES_ARE_LOADED]
    result = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert result.stderr.endswith("fairseq-train: error: --option 7: give 6 or less\n")
    assert result.stdout == "a line of the log\n"
    assert result.returncode == 2


STOP_WHILE_WORKERS_LOAD = """
import sys, torch
from fairseq_entmax import command_errors

class Rows(torch.utils.data.Dataset):
    def __len__(self):
        return 100_000

    def __getitem__(self, place):
        return torch.zeros(64, 64)

if __name__ == "__main__":
    batches = iter(torch.utils.data.DataLoader(Rows(), batch_size=8, num_workers=2))
    for _ in range(3):
        next(batches)
    sys.argv = ["/somewhere/bin/fairseq-train"]
    command_errors.stop_command(ValueError("--option 7: give 6 or less"))
"""


def test_worker_processes_that_load_batches_end_silently(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(STOP_WHILE_WORKERS_LOAD)
    result = subprocess.run(
        [sys.executable, script], capture_output=True, text=True, timeout=300, cwd=commands.ROOT
    )
    assert result.stderr == "fairseq-train: error: --option 7: give 6 or less\n"
    assert result.returncode == 2


@pytest.mark.parametrize(("rank", "waits"), [("0", []), ("1", [command_errors.TIME_OF_FIRST])])
def test_other_processes_wait_so_that_the_first_reports_the_error(
    rank, waits, monkeypatch, stopped
):
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "none")
    monkeypatch.setenv("RANK", rank)
    waited = []
    monkeypatch.setattr("time.sleep", waited.append)
    found = stopped(command_errors.stop_command, ValueError("no"))
    assert (waited, *found) == (waits, 2, "fairseq-train: error: no\n")


def test_fairseqs_commands_are_recognised_by_their_script(monkeypatch):
    for script, command in (
        ("/somewhere/bin/fairseq-eval-lm", "fairseq-eval-lm"),
        ("/somewhere/fairseq_cli/eval_lm.py", "fairseq-eval-lm"),
        ("-c", ""),
        ("/somewhere/bin/fairseq-entmax", ""),
        ("/somewhere/bin/pytest", ""),
    ):
        monkeypatch.setattr(sys, "argv", [script])
        assert command_errors.running_command() == command
    assert command_errors.stop_command(ValueError("no")) is None


def test_validation_without_a_task_is_refused_in_one_line(data, tmp_path):
    (tmp_path / "model.pt").touch()
    options = [f"--user-dir={commands.USER_DIR}", f"--path={tmp_path / 'model.pt'}"]
    result = commands.run("fairseq-validate", data / "bin", *options, check=False)
    assert commands.refusal_of(result) == (
        "fairseq-validate: error: give the --task of the training, such as --task translation"
    )


# Two processes that fairseq starts, as it does for two GPUs
TWO_GPUS = """
import torch
torch.cuda.device_count = lambda: 2
import fairseq_entmax.models
"""


def test_only_one_of_the_processes_that_fairseq_starts_prints_the_error(data, tmp_path):
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "__init__.py").write_text(TWO_GPUS)
    result = commands.train(
        data,
        tmp_path / "run",
        f"--user-dir={tmp_path / 'own'}",
        "--criterion=label_smoothed_cross_entropy_with_head_l0",
        *("--distributed-world-size=2", "--distributed-backend=gloo", "--ddp-backend=legacy_ddp"),
        *("--max-update=1", f"--distributed-port={20000 + os.getpid() % 20000}"),
        arch="transformer",
        check=False,
    )
    assert "needs a model with head gates: add --head-gates" in commands.refusal_of(result)
