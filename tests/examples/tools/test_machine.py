"""What recipes need from the machine: mappings and devices."""

import environment
import messages
import pytest


def test_an_unknown_mapping_is_refused_with_the_packages_message():
    environment.require_mapping("option --mapping", "entmax:alpha=1.33")
    with pytest.raises(messages.UsageError, match=r"^option --mapping got 'softmix': .*softm"):
        environment.require_mapping("option --mapping", "softmix")


def test_the_device_is_a_gpu_if_available(monkeypatch):
    monkeypatch.setattr(environment, "gpus", lambda: 1)
    assert environment.choose_device("auto") == environment.choose_device("gpu") == "gpu"
    monkeypatch.setattr(environment, "gpus", lambda: 0)
    assert environment.choose_device("auto") == "cpu"
    with pytest.raises(ValueError, match="option --gpu was given, but torch finds no GPU"):
        environment.choose_device("gpu")
