"""What all backends have in common: their functions, and that softmax asks for none of them."""

import importlib
import inspect

import pytest
import torch

from fairseq_entmax import kernels
from fairseq_entmax.kernels import derivatives, torch_losses, torch_ops, torch_structured
from fairseq_entmax.kernels.backends import Losses, Rows, StructuredRows
from fairseq_entmax.kernels.native import attention as native_attention
from fairseq_entmax.kernels.native import losses as native_losses
from fairseq_entmax.kernels.native import rows as native_rows
from fairseq_entmax.kernels.native import structured as native_structured
from fairseq_entmax.kernels.structure import OSCAR, TV
from tests.kernels.native.support import needs_compiler


def parameters(function):
    """Names and defaults of the parameters, but for ``self``."""
    signature = inspect.signature(function).parameters.values()
    return [(one.name, one.default) for one in signature if one.name != "self"]


def of_triton(part):
    pytest.importorskip("triton")
    return importlib.import_module(f"fairseq_entmax.kernels.triton.{part}")


@pytest.mark.parametrize("backend", ["torch", "native", "triton"])
def test_each_backend_has_the_functions_of_rows(backend):
    rows = {"torch": torch_ops, "native": native_rows}.get(backend) or of_triton("rows")
    for name in ("takes", "probabilities", "gradients"):
        assert parameters(getattr(rows, name)) == parameters(getattr(Rows, name))


@pytest.mark.parametrize("backend", ["torch", "native", "triton"])
def test_each_backend_has_the_functions_of_structure(backend):
    rows = {"torch": torch_structured, "native": native_structured}.get(backend)
    rows = rows or of_triton("structured")
    for name in ("takes", "probabilities", "gradients"):
        assert parameters(getattr(rows, name)) == parameters(getattr(StructuredRows, name))


@pytest.mark.parametrize("backend", ["torch", "native", "triton"])
def test_each_backend_has_the_functions_of_losses(backend):
    losses = {"torch": torch_losses, "native": native_losses}.get(backend) or of_triton("losses")
    for name in ("takes", "losses", "gradients"):
        assert parameters(getattr(losses, name)) == parameters(getattr(Losses, name))


@needs_compiler
def test_what_no_kernel_of_structure_is_for_runs_on_torch_and_the_log_says_so(monkeypatch, caplog):
    monkeypatch.setenv(kernels.VARIABLE, kernels.NATIVE)
    monkeypatch.setattr(kernels, "_said", set())
    caplog.set_level("INFO", logger=kernels.__name__)
    assert kernels.structured_for(torch.zeros(3, 4), TV, 0.5, 0.1) is native_structured
    assert kernels.structured_for(torch.zeros(3, 4).double(), TV, 0.5, 0.1) is torch_structured
    assert "structure tv runs on torch's own operations for torch.float64" in caplog.text


def test_oscar_has_no_kernel_in_triton():
    assert not of_triton("structured").takes(torch.zeros(3, 4), OSCAR)


def test_gradients_that_autograd_follows_have_the_signature_of_a_backend():
    assert parameters(derivatives.gradients) == parameters(Rows.gradients)


def test_attention_takes_the_same_on_every_backend_that_has_it():
    ours = parameters(of_triton("attention").attention)
    assert ours == parameters(native_attention.attention)
    assert [name for name, _ in ours[:4]] == ["query", "key", "value", "epsilon"]
    assert dict(ours[4:]) == {
        "key_padding_mask": None,
        "attn_mask": None,
        "causal": False,
        "scale": 1.0,
        "dropout": 0.0,
        "seed": None,
    }


@pytest.mark.parametrize("asked", kernels.CHOICES)
def test_softmax_runs_on_torch_whatever_is_asked_for(asked, monkeypatch):
    monkeypatch.setenv(kernels.VARIABLE, asked)
    assert kernels.backend_for(torch.zeros(3, 4), 0.0) is torch_ops


def test_a_learned_alpha_may_be_one_and_is_no_softmax(monkeypatch):
    monkeypatch.setenv(kernels.VARIABLE, kernels.TORCH)
    monkeypatch.setattr(kernels, "_said", said := set())
    assert kernels.backend_for(torch.zeros(3, 4), torch.zeros(1)) is torch_ops
    assert len(said) == 1  # it was chosen, and the log says so
