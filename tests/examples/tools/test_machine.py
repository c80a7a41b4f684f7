"""What the recipes ask of the machine, and how they say what went wrong: modules, devices, locks."""

import fcntl

import environment
import locks
import messages
import pytest


def test_missing_modules_are_named_with_the_extras_that_have_them():
    environment.require_modules(["json", "csv"])
    with pytest.raises(ValueError, match=r"no nosuch1 nosuch2, which .*'.\[fairseq,recipes\]'"):
        environment.require_modules(["nosuch1", "json", "nosuch2"])


def test_a_mapping_that_the_package_does_not_know_is_refused_with_its_own_words():
    environment.require_mapping("option --mapping", "entmax:alpha=1.33")
    with pytest.raises(messages.UsageError, match=r"^option --mapping got 'softmix': .*softm"):
        environment.require_mapping("option --mapping", "softmix")


@pytest.mark.parametrize(
    ("wanted", "gpus", "device"),
    [("cpu", 8, "cpu"), ("auto", 0, "cpu"), ("auto", 1, "gpu"), ("gpu", 2, "gpu"), ("gpu", 0, "")],
)
def test_the_device_is_the_one_asked_for_or_a_gpu_where_there_is_one(
    monkeypatch, wanted, gpus, device
):
    monkeypatch.setattr(environment, "gpus", lambda: gpus)
    if device:
        assert environment.choose_device(wanted) == device
    else:
        with pytest.raises(ValueError, match="option --gpu was given, but torch finds no GPU"):
            environment.choose_device(wanted)


def test_a_lock_that_another_open_file_holds_is_not_had(tmp_path):
    with (tmp_path / ".lock").open("w") as ours, (tmp_path / ".lock").open("w") as theirs:
        fcntl.flock(theirs, fcntl.LOCK_EX)
        with pytest.raises(ValueError, match="another run is at work in here: wait until it ends"):
            locks.take(ours.fileno(), "here", attempts=1)
        fcntl.flock(theirs, fcntl.LOCK_UN)
        locks.take(ours.fileno(), "here", attempts=1)


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
