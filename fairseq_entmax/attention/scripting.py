"""Copies of models for inference, in a form that ``torch.jit.script`` and ONNX accept.

TorchScript reads the source of every method and knows little of Python, so the code that trains and
decodes fast cannot be scripted. :func:`scriptable` makes a copy that can. Our classes give way to
their ``scriptable_class``, mostly fairseq's own; attention is fairseq's up to the scores, and from
there on the plain operations of a mapping. Parameters are shared, not copied. ``torch.jit.script``
calls it through torch's hook ``__prepare_scriptable__``.
"""

import functools
from types import FunctionType, ModuleType
from typing import Any, ClassVar, Dict, Optional, Tuple
from weakref import WeakKeyDictionary

import torch
from fairseq.modules import MultiheadAttention as FairseqMultiheadAttention
from torch import Tensor, nn

from fairseq_entmax.attention.masks import to_add

# Methods that a class must not change if an inherited scriptable class is to replace it
_METHODS = (
    *("forward", "forward_embedding", "extract_features", "output_layer", "max_positions"),
    *("reorder_encoder_out", "reorder_incremental_state", "get_normalized_probs"),
)

# torch knows a module by its id while it scripts, so the original must live as long as its copy
_originals: WeakKeyDictionary[nn.Module, nn.Module] = WeakKeyDictionary()


class Scriptable:
    """First base class of a module that is replaced by another in ``torch.jit.script``."""

    # Replaces objects of this class, and of subclasses that change none of the methods above
    scriptable_class: ClassVar[type[nn.Module] | None] = None

    def scriptable_form(self) -> nn.Module:
        """A new module, with the values and submodules of this one, that can be scripted.

        Its submodules are replaced by scriptable ones afterwards.
        """
        this_class: Any = type(self)
        owner = next(base for base in this_class.__mro__ if "scriptable_class" in vars(base))
        changed = [
            name
            for name in _METHODS
            if getattr(this_class, name, None) is not getattr(owner, name, None)
        ]
        if self.scriptable_class is None or changed:
            why = "it has no scriptable form"
            if self.scriptable_class is not None:
                why = f"it overrides {' and '.join(changed)} of {owner.__name__}"
            raise ValueError(
                f"{this_class.__name__} cannot be scripted or exported: {why}; give the class a method "
                f"scriptable_form() that returns a module that can be"
            )
        module: nn.Module = shallow(self, self.scriptable_class)
        return module

    def __prepare_scriptable__(self: Any) -> nn.Module:
        copy = scriptable(self)
        _originals[copy] = self
        return copy


def scriptable(module: nn.Module) -> nn.Module:
    """Copy any module for inference, so that it can be scripted and exported.

    The copy runs in Python too, on torch's own operations. It shares the original's parameters, but
    what mappings and gates learn is constant, at its present value, with gates as in evaluation.
    Raises ValueError, naming the class or mapping, if something cannot be scripted.
    """
    return _copied(module, {})


def shallow(module: Any, new_class: type[nn.Module]) -> Any:
    """A module of another class with the values of this one, which stays as it is."""
    copy = new_class.__new__(new_class)
    for name, value in vars(module).items():
        is_register = name.startswith("_") and isinstance(value, dict)
        copy.__dict__[name] = value.copy() if is_register else value
    return copy


def _copied(module: nn.Module, memo: dict[int, tuple[nn.Module, nn.Module]]) -> nn.Module:
    if id(module) in memo:
        return memo[id(module)][1]
    if isinstance(module, torch.jit.ScriptModule):
        return module
    if isinstance(module, Scriptable):
        copy = module.scriptable_form()
    else:
        copy = shallow(module, type(module))
    # The original's activation checkpointing: inference recomputes nothing
    if isinstance(vars(copy).get("forward"), functools.partial):
        del copy.__dict__["forward"]
    # Keeps the original alive, as its id could be reused once it is gone
    memo[id(module)] = module, copy
    for name, child in copy._modules.items():
        if child is not None:
            copy._modules[name] = _copied(child, memo)
    return copy


def _scores_and_values() -> Any:
    """fairseq's ``forward`` named scores_and_values: TorchScript takes the name from the function.

    It calls a static method by the name of its class, which TorchScript resolves only for a Python
    module, or a class scripted before. So a module stands in for the class.
    """
    stock = FairseqMultiheadAttention.forward
    name = FairseqMultiheadAttention.__name__
    static = ModuleType(name)
    for method, value in vars(FairseqMultiheadAttention).items():
        if isinstance(value, staticmethod):
            setattr(static, method, value.__func__)
    scope = {**stock.__globals__, name: static}
    copy = FunctionType(stock.__code__, scope, "scores_and_values", stock.__defaults__)
    copy.__annotations__ = stock.__annotations__
    return copy


class ScriptableAttention(FairseqMultiheadAttention):
    """fairseq's attention with a mapping in place of softmax, and gates that are constants.

    Made by :meth:`fairseq_entmax.attention.MultiheadAttention.scriptable_form`, never by its
    constructor. Without heads it outputs the bias of its output projection at every position.
    """

    # A constant, so that TorchScript leaves out the branch that is not for it
    has_heads: bool
    __constants__ = ("has_heads",)

    # fairseq's own forward up to the scores; TorchScript has no super()
    scores_and_values = _scores_and_values()

    def forward(
        self,
        query: Tensor,
        key: Optional[Tensor],
        value: Optional[Tensor],
        key_padding_mask: Optional[Tensor] = None,
        incremental_state: Optional[Dict[str, Dict[str, Optional[Tensor]]]] = None,
        need_weights: bool = True,
        static_kv: bool = False,
        attn_mask: Optional[Tensor] = None,
        before_softmax: bool = False,
        need_head_weights: bool = False,
    ) -> Tuple[Tensor, Optional[Tensor]]:
        """As :meth:`fairseq_entmax.attention.MultiheadAttention.forward`."""
        if not self.has_heads:
            keys = query.size(0) if key is None else key.size(0)
            shape = [query.size(1), query.size(0), keys]
            zeros = torch.zeros(shape, dtype=torch.float32, device=query.device)
            output = self.out_proj().expand_as(query)
            if need_head_weights:
                return output, zeros.unsqueeze(0)
            if need_weights:
                return output, zeros
            return output, None
        if attn_mask is not None:
            attn_mask = to_add(attn_mask, query)
        scores, values = self.scores_and_values(
            query,
            key,
            value,
            key_padding_mask,
            incremental_state,
            need_weights,
            static_kv,
            attn_mask,
            True,
            False,
        )
        if before_softmax:
            return scores, values
        assert values is not None
        queries, batch = query.size(0), query.size(1)
        in_full = scores if scores.dtype == torch.float64 else scores.float()
        in_full = in_full.view(batch, self.num_heads, queries, -1)
        probs = self.mapping(in_full * self.score_scale.to(in_full.dtype))
        weights = self.dropout_module(probs.to(scores.dtype))
        # In beam search fairseq keeps keys and values of a source only once for all its hypotheses
        sources = values.size(0) // self.num_heads
        heads = torch.matmul(
            weights.view(sources, -1, self.num_heads, queries, weights.size(3)),
            values.view(sources, 1, self.num_heads, -1, self.head_dim),
        )
        heads = heads.view(batch, self.num_heads, queries, self.head_dim) * self.gate.to(
            heads.dtype
        )
        output = self.out_proj(heads.permute(2, 0, 1, 3).reshape(queries, batch, -1))
        if need_head_weights:
            return output, probs.transpose(0, 1)
        if need_weights:
            return output, probs.mean(1)
        return output, None


def with_constants(attention: Any, copy: Any) -> FairseqMultiheadAttention:
    """Give a scriptable ``copy`` of an attention its mapping and gates as constants."""
    copy.skip_embed_dim_check = True  # or fairseq calls torch's fused attention
    for name in ("filled", "scores_of", "_observers"):
        del copy.__dict__[name]
    for name in ("mapping", "gate"):
        copy._modules.pop(name, None)
        copy.__dict__.pop(name, None)
    if attention.mapping is None:
        copy.has_heads = False
        return copy
    copy.has_heads = True
    copy.mapping = attention.mapping.exported()
    scale = attention.mapping.score_scale()
    scale = torch.as_tensor(1.0 if scale is None else scale).detach().view(-1, 1, 1)
    copy.register_buffer("score_scale", scale, persistent=False)
    gates = torch.ones(attention.num_heads)
    if attention.gate is not None:
        gates = attention.gate.at_evaluation()
    parameter = next(attention.parameters(), None)
    if parameter is not None:  # a quantised attention has none, and is on a CPU
        gates = gates.to(parameter.device)
    copy.register_buffer("gate", gates.view(-1, 1, 1), persistent=False)
    return copy
