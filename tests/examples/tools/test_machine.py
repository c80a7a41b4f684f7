"""What recipes need from the machine: mappings and devices."""

import environment
import messages
import pytest


def test_an_unknown_mapping_is_refused_with_the_packages_message():
    environment.require_mapping("option --mapping", "entmax:alpha=1.33")
    with pytest.raises(messages.UsageError, match=r"^option --mapping got 'softmix': .*softm"):
        environment.require_mapping("option --mapping", "softmix")


@pytest.mark.parametrize(
    ("wanted", "gpus", "device"), [("cpu", 8, "cpu"), ("auto", 0, "cpu"), ("auto", 1, "gpu")]
)
def test_the_device_is_the_requested_one_or_a_gpu_if_available(monkeypatch, wanted, gpus, device):
    monkeypatch.setattr(environment, "gpus", lambda: gpus)
    assert environment.choose_device(wanted) == device
    monkeypatch.setattr(environment, "gpus", lambda: 0)
    with pytest.raises(ValueError, match="option --gpu was given, but torch finds no GPU"):
        environment.choose_device("gpu")
