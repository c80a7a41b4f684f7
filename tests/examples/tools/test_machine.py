"""What the recipes ask of the machine, and how they say what went wrong: modules, devices, locks."""

import fcntl
import subprocess
import sys
from types import SimpleNamespace

import environment
import locks
import messages
import pytest


def test_missing_modules_are_named_together():
    environment.require_modules(["json", "csv"])
    with pytest.raises(ValueError, match="python3 has no nosuch1 nosuch2, which"):
        environment.require_modules(["nosuch1", "json", "nosuch2"])


@pytest.mark.parametrize(
    ("module", "extras"),
    [("sacremoses", "fairseq,recipes"), ("rouge_score", "fairseq,recipes,summaries")],
)
def test_a_missing_module_is_had_by_the_extras_that_have_it(monkeypatch, module, extras):
    monkeypatch.setattr(environment, "find_spec", lambda _: None)
    with pytest.raises(ValueError, match=f"no {module}, which .*'.\\[{extras}\\]'"):
        environment.require_modules([module])


def test_a_mapping_that_the_package_does_not_know_is_refused_with_its_own_words():
    environment.require_mapping("option --mapping", "entmax:alpha=1.33")
    with pytest.raises(messages.UsageError, match=r"^option --mapping got 'softmix': .*softm"):
        environment.require_mapping("option --mapping", "softmix")


@pytest.mark.parametrize(
    ("wanted", "gpus", "device"),
    [("cpu", 8, "cpu"), ("auto", 0, "cpu"), ("auto", 1, "gpu"), ("gpu", 2, "gpu")],
)
def test_the_device_is_the_one_asked_for_or_a_gpu_where_there_is_one(
    monkeypatch, wanted, gpus, device
):
    monkeypatch.setattr(environment, "gpus", lambda: gpus)
    assert environment.choose_device(wanted) == device


def test_a_gpu_that_is_not_there_is_refused(monkeypatch):
    monkeypatch.setattr(environment, "gpus", lambda: 0)
    with pytest.raises(ValueError, match="option --gpu was given, but torch finds no GPU"):
        environment.choose_device("gpu")


def test_a_lock_that_another_open_file_holds_is_not_had(tmp_path):
    with (tmp_path / ".lock").open("w") as ours, (tmp_path / ".lock").open("w") as theirs:
        fcntl.flock(theirs, fcntl.LOCK_EX)
        assert not locks.take(ours.fileno(), attempts=1)
        fcntl.flock(theirs, fcntl.LOCK_UN)
        assert locks.take(ours.fileno(), attempts=1)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="processes are listed in /proc")
def test_other_processes_that_have_the_file_open_are_found(tmp_path):
    with (tmp_path / ".lock").open("w") as file:
        number = file.fileno()
        child = subprocess.Popen(
            [sys.executable, "-c", "input()"], pass_fds=[number], stdin=subprocess.PIPE
        )
        try:
            assert locks.holders(number) == [child.pid]
        finally:
            child.communicate(b"\n")


@pytest.mark.parametrize(
    ("error", "status", "sentence"),
    [
        (messages.UsageError("no such option"), 2, "no such option (see --help)"),
        (ValueError("damaged"), 1, "damaged"),
        (FileNotFoundError(2, "No such file", "x.txt"), 1, "No such file: x.txt"),
    ],
)
def test_an_error_is_one_sentence_in_the_name_of_the_script(
    monkeypatch, capsys, error, status, sentence
):
    monkeypatch.setenv(messages.PROGRAM, "prepare.sh")
    with pytest.raises(SystemExit) as end, messages.one_sentence():
        raise error
    assert end.value.code == status
    assert capsys.readouterr().err == f"prepare.sh: error: {sentence}\n"


def test_a_mistake_of_the_program_keeps_its_traceback():
    with pytest.raises(ZeroDivisionError), messages.one_sentence():
        raise ZeroDivisionError


def test_no_torch_is_said_with_the_remedy(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(ValueError, match="cannot import torch: activate"):
        environment.gpus()


def test_gpus_that_torch_cannot_use_do_not_count(monkeypatch):
    cuda = SimpleNamespace(is_available=lambda: False, device_count=lambda: 2)
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda))
    assert environment.gpus() == 0
