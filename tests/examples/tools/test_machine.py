"""What recipes need from the machine: its devices."""

import environment
import pytest


def test_the_device_is_a_gpu_if_available(monkeypatch):
    monkeypatch.setattr(environment, "gpus", lambda: 1)
    assert environment.choose_device("auto") == environment.choose_device("gpu") == "gpu"
    monkeypatch.setattr(environment, "gpus", lambda: 0)
    assert environment.choose_device("auto") == "cpu"
    with pytest.raises(ValueError, match="option --gpu was given, but torch finds no GPU"):
        environment.choose_device("gpu")
