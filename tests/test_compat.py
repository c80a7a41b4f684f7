"""What differs between releases, and how a command stops."""

import pickle
import subprocess
import sys
from argparse import Namespace

import pytest
import torch
from torch import nn

from fairseq_entmax import checkpoints, compat
from tests.commands import ROOT

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


STOP_WHILE_WORKERS_LOAD = """
import sys, torch
from fairseq_entmax import compat

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
    compat.stop_command(ValueError("--option 7: give 6 or less"))
"""


def test_processes_that_load_batches_are_ended_without_a_word(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(STOP_WHILE_WORKERS_LOAD)
    result = subprocess.run(
        [sys.executable, script], capture_output=True, text=True, timeout=300, cwd=ROOT
    )
    assert result.stderr == "fairseq-train: error: --option 7: give 6 or less\n"
    assert result.returncode == 2


@pytest.mark.parametrize(("rank", "waits"), [("0", []), ("1", [compat.TIME_OF_FIRST])])
def test_of_several_processes_the_first_says_it(rank, waits, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["/somewhere/bin/fairseq-train"])
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "none")
    monkeypatch.setenv("RANK", rank)
    monkeypatch.setattr("threading.active_count", lambda: 1)
    monkeypatch.setattr("multiprocessing.active_children", list)
    waited = []
    monkeypatch.setattr("time.sleep", waited.append)
    with pytest.raises(SystemExit) as stop:
        compat.stop_command(ValueError("no"))
    assert stop.value.code == 2
    assert waited == waits
    assert capsys.readouterr().err == "fairseq-train: error: no\n"


@pytest.mark.parametrize(
    ("script", "command"),
    [
        ("/somewhere/bin/fairseq-eval-lm", "fairseq-eval-lm"),
        ("/somewhere/fairseq_cli/eval_lm.py", "fairseq-eval-lm"),
        ("/somewhere/bin/pytest", ""),
        ("-c", ""),
    ],
)
def test_fairseqs_commands_are_known_by_their_script(script, command, monkeypatch):
    monkeypatch.setattr(sys, "argv", [script])
    assert compat.running_command() == command


def test_outside_of_a_command_the_caller_raises(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["pytest"])
    assert compat.stop_command(ValueError("no")) is None


class Call:
    def __init__(self, function, *arguments):
        self.call = function, arguments

    def __reduce__(self):
        return self.call


class SetState(Call):
    """Unpickled, it sets an attribute of a class."""

    def __reduce__(self):
        return (*super().__reduce__(), (None, {"__setstate__": "changed"}))


@pytest.fixture
def _old_torch(monkeypatch):
    """torch before 2.4, whose safe loader cannot be told of a class."""
    monkeypatch.delattr(torch.serialization, "add_safe_globals", raising=False)


STATE = {
    "model": {"weight": torch.arange(6.0).reshape(2, 3), "half": torch.ones(2).half()},
    "args": Namespace(arch="transformer", lr=[0.1]),
    "last_optimizer_state": {"state": {0: {"step": torch.tensor(1)}}, "param_groups": []},
}


@pytest.mark.usefixtures("_old_torch")
@pytest.mark.parametrize("new_format", [True, False])
def test_a_torch_without_a_list_of_safe_classes_loads_checkpoints(tmp_path, new_format):
    assert "pickle_module" in compat.safe_loading()
    path = tmp_path / "good.pt"
    torch.save(STATE, path, _use_new_zipfile_serialization=new_format)
    state = checkpoints.load_checkpoint(str(path))
    assert state["args"] == STATE["args"]
    assert torch.equal(state["model"]["weight"], STATE["model"]["weight"])
    assert state["model"]["half"].dtype == torch.float16


@pytest.mark.usefixtures("_old_torch")
@pytest.mark.parametrize("new_format", [True, False])
@pytest.mark.parametrize(
    "code",
    [
        lambda mark: Call(open, mark, "w"),
        lambda mark: Call(eval, f"open({mark!r}, 'w')"),
        lambda mark: Call(getattr, Namespace, "mro"),
        lambda mark: SetState(Namespace),
        lambda mark: SetState(getattr, Namespace, "__class__"),
        lambda mark: torch.nn.Linear(1, 1),
    ],
)
def test_a_torch_without_a_list_of_safe_classes_runs_nothing(tmp_path, code, new_format):
    path, mark = tmp_path / "evil.pt", tmp_path / "ran"
    torch.save({**STATE, "x": code(str(mark))}, path, _use_new_zipfile_serialization=new_format)
    with pytest.raises(checkpoints.UnsafeCheckpointError, match=r"GLOBAL|it names|it makes"):
        checkpoints.load_checkpoint(str(path))
    assert not mark.exists()
    assert not hasattr(Namespace, "__setstate__")


@pytest.mark.usefixtures("_old_torch")
def test_a_torch_without_a_list_of_safe_classes_reads_no_plain_pickles(tmp_path):
    path = tmp_path / "evil.pt"
    path.write_bytes(pickle.dumps({"model": Call(open, str(tmp_path / "ran"), "w")}, protocol=2))
    with pytest.raises(checkpoints.UnsafeCheckpointError, match=r"it names _?io\.open"):
        checkpoints.load_checkpoint(str(path))
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("newer", [True, False])
def test_hooks_of_all_modules_are_seen_with_every_torch(newer, monkeypatch):
    """Older ones have no function that says so."""
    if not newer:
        monkeypatch.delattr(nn.modules.module, "_has_any_global_hook", raising=False)
    assert not compat.has_global_hooks()
    handle = nn.modules.module.register_module_forward_hook(lambda *_: None)
    try:
        assert compat.has_global_hooks()
    finally:
        handle.remove()
    assert not compat.has_global_hooks()
