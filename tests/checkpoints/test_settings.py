"""Which values the settings in a checkpoint may contain, and what they say about its model."""

from argparse import Namespace
from collections import OrderedDict

import pytest
import torch

from fairseq_entmax.checkpoints import UnsafeCheckpointError, check_settings, model_settings

SUBCLASSES = [OrderedDict(a=1), type("Settings", (Namespace,), {})(), type("Text", (str,), {})("")]


def check(where="cfg", task=None, **settings):
    cfg = {"model": Namespace(**settings), "task": task or {}}
    state = {"cfg": cfg} if where == "cfg" else {"args": Namespace(**settings)}
    check_settings({**state, "model": {}}, "some.pt")


@pytest.mark.parametrize("where", ["cfg", "args"])
@pytest.mark.parametrize(
    "value",
    [
        *(None, True, -2, 2**63, float("inf"), "", "entmax*5,softmax", "/data/a(1)", "a;b"),
        *([1, 2], (1, 2), {"a": {"b": [None]}}, {1: "x"}, Namespace(x=1), "[(512, 3)] * 20"),
    ],
)
def test_plain_values_are_accepted(where, value):
    check(where, some_setting=value)


@pytest.mark.parametrize("where", ["cfg", "args"])
@pytest.mark.parametrize(
    "value", [b"x", bytearray(b"x"), {1}, 1j, torch.zeros(1), torch.float16, object(), *SUBCLASSES]
)
@pytest.mark.parametrize("wrap", [lambda x: x, lambda x: [x], lambda x: {"a": (x,)}])
def test_other_values_are_refused_at_any_depth(where, value, wrap):
    with pytest.raises(UnsafeCheckpointError, match=r"some\.pt: its setting \w+ = .*not a plain"):
        check(where, some_setting=wrap(value))


def test_settings_that_would_take_minutes_to_read_are_refused():
    nested = 1
    for _ in range(200):
        nested = [nested]
    for value, message in (
        (nested, "is more than 20 levels deep"),
        ([["x"] * 100] * 1000, "comes after more than 20,000 others"),
    ):
        with pytest.raises(UnsafeCheckpointError, match=message):
            check(some_setting=value)


@pytest.mark.parametrize("part", ["cfg", "args"])
def test_settings_must_be_a_group(part):
    for value in ("model: {}", ["model"], 3, b"x"):
        with pytest.raises(UnsafeCheckpointError, match=f"{part} = .* is not a group of settings"):
            check_settings({part: value, "model": {}}, "some.pt")


@pytest.mark.parametrize("where", ["cfg", "args"])
@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        ("dataset_impl", "mmap", "fasta"),  # fairseq opens this one with a shell command
        ("save_predictions", "", "x"),
        ("post_save_script", "", ["x"]),
    ],
)
def test_settings_that_run_a_command_or_write_a_file_are_refused(name, good, bad, where):
    for value in (None, good, "${dataset." + name + "}"):
        check(where, **{name: value})
    for value in (bad, "${common.seed}"):
        with pytest.raises(UnsafeCheckpointError, match=f"{name} = .* would run a command or"):
            check(where, **{name: value})


@pytest.mark.parametrize(
    "text",
    [
        *("${oc.env:HOME}", "${oc.decode:1}", "${task.a}${task.a}", "x${task.a}", "${${task.a}}"),
        *("${.a}", "${", r"\${task.a}"),
    ],
)
def test_only_plain_references_to_another_setting_are_allowed(text):
    with pytest.raises(UnsafeCheckpointError, match="is more than a reference to another setting"):
        check(task={"a": 1}, some_setting=text)


def test_a_reference_to_another_setting_is_resolved():
    task = {"n": 7, "again": "${task.n}", "itself": "${task.itself}"}
    model = Namespace(a="${task.again}", b="${task.none}", c="${task.itself}", d="text")
    settings = model_settings({"cfg": {"model": model, "task": task}}, "some.pt")
    assert settings == {"a": 7, "b": None, "c": "${task.itself}", "d": "text"}
    assert model_settings({"args": Namespace(a=1)}, "some.pt") == {"a": 1}
    with pytest.raises(ValueError, match=r"some\.pt does not say which model it is of"):
        model_settings({"model": {}}, "some.pt")
