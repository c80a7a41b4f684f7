"""Kernels as operators of torch's dispatcher, and what differs there between releases of torch.

A kernel reads memory: nothing that records operations, computes shapes alone or maps a function
over many inputs sees what it does. As an operator it is one operation to all of them, with an own
answer for each: its numbers, its shapes (fake tensors, ``torch.compile``, ``torch.export``), its
gradients (autograd, ``torch.func.grad``) and many of it at once (``torch.vmap``).

The dispatcher costs some 20 to 60 microseconds a call where kernels are written in Python. So an
:class:`Operator` that is called takes the way through it unless the dispatcher itself would go
straight to autograd and the kernel, which the keys of the tensors and of the thread say
(:func:`is_plain`). What is not known to be plain goes through the dispatcher: a transform or mode
that is not thought of here costs time, not the right numbers. Both ways run the same functions.

``torch.library.custom_op``, of torch 2.4 and later, is the same with less control; all that is used
here is in torch 2.3.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch._functorch.pyfunctorch import retrieve_current_functorch_interpreter
from torch._functorch.utils import enable_single_level_autograd_function
from torch._functorch.vmap import unwrap_batched, wrap_batched
from torch.autograd import forward_ad
from torch.autograd.function import _SingleLevelFunction
from torch.utils._python_dispatch import _disable_current_modes

NAMESPACE = "fairseq_entmax"
# Lives as long as the operators
_LIBRARY = torch.library.Library(NAMESPACE, "FRAGMENT")


def _keys(*names: str) -> torch._C.DispatchKeySet:
    keys = torch._C.DispatchKeySet(torch._C.DispatchKey.Undefined)
    for name in names:
        keys = keys | torch._C.DispatchKeySet(getattr(torch._C.DispatchKey, name))
    return keys


# What stands for numbers in the memory of a CPU or of a CUDA device, autograd and autocast
_PLAIN_KEYS = _keys(
    *("CPU", "CUDA", "AutogradCPU", "AutogradCUDA", "ADInplaceOrView", "BackendSelect"),
    *("AutocastCPU", "AutocastCUDA"),
)
_keys_of_thread, _keys_of_tensor = torch._C._dispatch_tls_local_include_set, torch._C._dispatch_keys
_OF_VMAP = _keys("FuncTorchBatched")
_PLAIN_TYPES = (Tensor, torch.nn.Parameter)


if hasattr(torch._C.DispatchKeySet, "raw_repr"):
    _numbered: Callable[[Any], int] = torch._C.DispatchKeySet.raw_repr
    _OTHER_KEYS = ~_numbered(_PLAIN_KEYS)
    _PLAIN_DEVICES = None  # the keys tell
else:  # up to torch 2.3
    _OTHER_KEYS = 1
    _PLAIN_DEVICES = ("cpu", "cuda")

    def _numbered(keys: Any) -> int:
        """1 where there are others than plain ones, which leaves open of which device they are."""
        left = (keys - _PLAIN_KEYS).highestPriorityTypeId()
        return int(left != torch._C.DispatchKey.Undefined)


def is_plain(*arguments: Tensor | None) -> bool:
    """Whether torch would go straight to autograd and the kernels of a CPU or a CUDA device.

    Not where a tensor is fake, traced, one of many, a subclass or has a bit of its own, nor where
    modes are active or operations are recorded.
    """
    if torch.compiler.is_compiling():
        return False
    keys = _numbered(_keys_of_thread())
    for argument in arguments:
        if argument is None:
            continue
        if type(argument) not in _PLAIN_TYPES:
            return False
        if _PLAIN_DEVICES is not None and argument.device.type not in _PLAIN_DEVICES:
            return False
        keys |= _numbered(_keys_of_tensor(argument))
    return not keys & _OTHER_KEYS


def _wants_derivatives(tensors: Sequence[Tensor | None]) -> bool:
    if forward_ad._current_level >= 0 and torch._C._is_fwd_grad_enabled():
        return True  # which a function without such a derivative refuses, and is not to pass over
    if not torch.is_grad_enabled():
        return False
    for tensor in tensors:  # noqa: SIM110 - three times as fast as any()
        if tensor is not None and tensor.requires_grad:
            return True
    return False


class Differentiable(_SingleLevelFunction):
    """The derivatives of an operator, with static methods ``forward(ctx, compute, *arguments)``
    and ``backward``.

    It is an autograd function of one level: of several, as in ``torch.func``, the dispatcher has it
    called for each.
    """

    apply: ClassVar[Callable[..., Any]]

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Any:
        raise NotImplementedError(
            "this mapping has no forward-mode derivatives (jvp, jacfwd, torch.func.hessian): take "
            "reverse mode, such as torch.func.jacrev(torch.func.jacrev(function))"
        )


class Operator:
    """A kernel and its answers. All arguments are given by place, none is written to.

    Args:
        name: of the operator, ``torch.ops.fairseq_entmax.NAME``.
        schema: arguments and results in torch's notation.
        kernel: computes the results; None stands for one that is not wanted.
        fake: results of the right shapes, dtypes and devices, dense unless the kernel says otherwise.
        batched: of the number of samples, for each argument which dimension they are in or None, and
            the arguments: the results and for each which dimension they are in, None for one that
            is not wanted.
        differentiate: of a function that computes and the arguments: the results as autograd is to
            see them. Without :class:`Differentiable` it uses operations that autograd follows.
        of_old_vmap: the same without the function that computes, for ``is_grads_batched=True``,
            which has a vmap of its own; None where gradients are not computed by it.
        dense: whether results are made dense in memory where they are not.
    """

    def __init__(
        self,
        name: str,
        schema: str,
        kernel: Callable[..., Any],
        fake: Callable[..., Any],
        batched: Callable[..., tuple[Any, Any]],
        differentiate: Callable[..., Any],
        of_old_vmap: Callable[..., Any] | None = None,
        dense: bool = True,
    ) -> None:
        self._kernel = kernel
        self._differentiate = differentiate
        self._dense = dense
        _LIBRARY.define(name + schema, tags=(torch.Tag.pt2_compliant_tag,))
        _LIBRARY.impl(name, self._computed, "CompositeExplicitAutograd")
        _LIBRARY.impl(name, self._with_autograd, "Autograd")
        _register_fake(name, fake)
        self.overload = getattr(getattr(torch.ops, NAMESPACE), name).default
        schema_read = self.overload._schema
        self._number = len(schema_read.returns)
        self._tensors = tuple(
            place for place, one in enumerate(schema_read.arguments) if "Tensor" in str(one.type)
        )
        _LIBRARY.impl(name, _one_level(self, batched), "FuncTorchBatched")
        if of_old_vmap is not None:
            _LIBRARY.impl(name, of_old_vmap, "Batched")

    def __call__(self, *arguments: Any) -> Any:
        tensors = [arguments[place] for place in self._tensors]
        if not is_plain(*tensors):
            return self.overload(*arguments)
        if _wants_derivatives(tensors):
            return self._differentiate(self._kernel, *arguments)
        return self._kernel(*arguments)

    def _computed(self, *arguments: Any) -> Any:
        if torch.onnx.is_in_onnx_export():
            raise RuntimeError(
                f"ONNX has no {self.overload}: call model.prepare_for_onnx_export_() before "
                f"torch.onnx.export, or export fairseq_entmax.modules.scriptable(module) instead of a module"
            )
        results = self._kernel(*arguments)
        if isinstance(results, tuple):
            # Behind the results may stand what only those have use for who call the kernel itself
            return tuple(
                self._as_result(result, arguments[0]) for result in results[: self._number]
            )
        return self._as_result(results, arguments[0])

    def _as_result(self, result: Tensor | None, like: Tensor) -> Tensor:
        if result is None:
            return like.new_empty(0)
        return result.contiguous() if self._dense else result

    def _with_autograd(self, *arguments: Any) -> Any:
        if not _wants_derivatives([arguments[place] for place in self._tensors]):
            return self._below_autograd(*arguments)
        is_enabled = torch.is_grad_enabled()

        def compute(*arguments: Any) -> Any:
            # The function below has switched off what the levels below of torch.func go by
            with torch.set_grad_enabled(is_enabled), forward_ad._set_fwd_grad_enabled(True):
                return self._below_autograd(*arguments)

        with enable_single_level_autograd_function():
            return self._differentiate(compute, *arguments)

    def _below_autograd(self, *arguments: Any) -> Any:
        with torch._C._AutoDispatchBelowAutograd():
            return self.overload(*arguments)


def _register_fake(name: str, fake: Callable[..., Any]) -> None:
    # Called otherwise up to torch 2.3
    register = getattr(torch.library, "register_fake", None) or torch.library.impl_abstract
    register(f"{NAMESPACE}::{name}", fake, lib=_LIBRARY)


def _one_level(operator: Operator, batched: Callable[..., tuple[Any, Any]]) -> Callable[..., Any]:
    """What the dispatcher calls at a vmap: ``torch.library.register_vmap`` is in torch 2.5 first."""

    def of_level(*arguments: Any) -> Any:
        interpreter: Any = retrieve_current_functorch_interpreter()
        level = interpreter.level()
        unwrapped, dims = unwrap_batched(arguments, level)
        # The rest of the dispatcher's way leads to the next level
        with torch._C._ExcludeDispatchKeyGuard(_OF_VMAP):
            if all(dim is None for dim in dims):
                return operator.overload(*arguments)
            results, result_dims = batched(interpreter.batch_size(), dims, *unwrapped)
        return wrap_batched(results, result_dims, level)

    return of_level


def leading(tensor: Tensor, dim: int | None, size: int) -> Tensor:
    """The tensor with the samples first: where they are not in it, it is the same for all."""
    return tensor.expand(size, *tensor.shape) if dim is None else tensor.movedim(dim, 0)


def as_arguments(parameter: float | Tensor) -> tuple[Tensor | None, float]:
    """A parameter as an operator takes it: a tensor or None, and the number in place of None."""
    return (parameter, 0.0) if isinstance(parameter, Tensor) else (None, parameter)


def by_samples(
    grads: tuple[Tensor | None, ...], wanted: tuple[bool, ...]
) -> tuple[Any, tuple[int | None, ...]]:
    """Gradients with the samples first, and where they are, as vmap wants to know it."""
    return grads, tuple(0 if is_wanted else None for is_wanted in wanted)


def or_empty(result: Tensor | None, like: Tensor) -> Tensor:
    """As an operator returns what is not wanted."""
    return like.new_empty(0) if result is None else result


def fake_gradient(of: Tensor | None, is_wanted: bool, like: Tensor) -> Tensor:
    """A dense tensor of the shape of what it is the gradient of, without numbers."""
    if of is None or not is_wanted:
        return like.new_empty(0)
    return torch.empty_like(of, memory_format=torch.contiguous_format)


def followed(function: Callable[..., Any]) -> Callable[..., Any]:
    """What an operator does where autograd follows the operations of this one."""
    return lambda compute, *arguments: function(*arguments)


def samples_first(size: int, dims: Sequence[int | None], arguments: Sequence[Any]) -> list[Any]:
    """The arguments with the samples first in each tensor."""
    return [
        leading(one, dim, size) if isinstance(one, Tensor) else one
        for one, dim in zip(arguments, dims, strict=True)
    ]


def constant_while_compiling(function: Callable[..., Any]) -> Callable[..., Any]:
    """``torch.compile`` calls it once, and takes what it says for granted.

    As ``torch.compiler.assume_constant_result``, which imports the whole compiler.
    """
    function._dynamo_marked_constant = True  # type: ignore[attr-defined]
    return function


def without_modes() -> contextlib.AbstractContextManager[Any]:
    """Where tensors have numbers, though a mode that makes fake ones is active."""
    manager: contextlib.AbstractContextManager[Any] = _disable_current_modes()
    return manager
