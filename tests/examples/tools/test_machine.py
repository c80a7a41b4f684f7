"""What the recipes ask of the machine: mappings, devices."""

import environment
import messages
import pytest


def test_a_mapping_that_the_package_does_not_know_is_refused_with_its_own_words():
    environment.require_mapping("option --mapping", "entmax:alpha=1.33")
    with pytest.raises(messages.UsageError, match=r"^option --mapping got 'softmix': .*softm"):
        environment.require_mapping("option --mapping", "softmix")


@pytest.mark.parametrize(
    ("wanted", "gpus", "device"), [("cpu", 8, "cpu"), ("auto", 0, "cpu"), ("auto", 1, "gpu")]
)
def test_the_device_is_the_one_asked_for_or_a_gpu_where_there_is_one(
    monkeypatch, wanted, gpus, device
):
    monkeypatch.setattr(environment, "gpus", lambda: gpus)
    assert environment.choose_device(wanted) == device
    monkeypatch.setattr(environment, "gpus", lambda: 0)
    with pytest.raises(ValueError, match="option --gpu was given, but torch finds no GPU"):
        environment.choose_device("gpu")
