"""Checkpoints that make no sense: a good one with something dropped, replaced or reshaped.

A mutation is drawn by Hypothesis as plain data, so that what fails can be read in its report, and
is applied to a copy of the good checkpoint.
"""

from __future__ import annotations

import copy
import io
import pickle
import shutil
from argparse import Namespace
from collections import OrderedDict

import torch
from hypothesis import strategies as st


def _nested(depth):
    value = 1
    for _ in range(depth):
        value = {"a": [value]}
    return value


# What is put into the place of a setting, a weight or a whole part
VALUES = {
    **{repr(value): value for value in (None, True, False, "", "x", "3", "1,2", "0,0", "nan")},
    **{repr(value): value for value in (-1, 0, 1, 2, 3, 5, 7, 200, 10**4, 10**9, 2**63, 10**30)},
    **{repr(value): value for value in (0.5, 4.0, -1.0, 1e300, float("nan"), float("inf"))},
    **{repr(value): value for value in ([], [1], ["x"], [[1], [2]], (), {}, {"a": 1}, b"x")},
    **{repr(value): value for value in ("softmax", "entmax|entmax", "entmax:alpha=x", "é\0\n")},
    **{repr(value): value for value in ("transformer", "lstm", "cross", "${common.seed}")},
    "long text": "9," * 30_000,
    "nested": _nested(8),
    "nested too deep": _nested(40),
    "namespace": Namespace(a=Namespace(b=1)),
    "tensor": torch.ones(3, 2),
    "tensor without dimensions": torch.tensor(3),
    "tensor of nothing": torch.ones(0),
    "dictionary with order": OrderedDict(a=1),
    "list of dictionaries": [{}],
    "list of a dictionary of texts": [{"num_updates": "x", "optimizer_name": 3}],
}
# What is made of a weight
TENSORS = {
    "flat": lambda w: w.reshape(-1),
    "one dimension more": lambda w: w[None].clone(),
    "one number": lambda w: w.reshape(-1)[:1].reshape(()).clone(),
    "nothing": lambda w: w.reshape(-1)[:0],
    "no rows": lambda w: w[:0] if w.dim() else w,
    "a row less": lambda w: w[:-1].clone() if w.dim() else w[None],
    "twice the rows": lambda w: torch.cat([w, w]) if w.dim() else w.expand(2).clone(),
    "twice the columns": lambda w: torch.cat([w, w], -1) if w.dim() else w[None, None],
    "transposed": lambda w: w.t().contiguous() if w.dim() == 2 else w[None].clone(),
    "a column less": lambda w: w[..., :-1].clone() if w.dim() else w[None],
    "repeated, not stored": lambda w: w.reshape(-1)[:1].expand(10**6),
    "whole numbers": lambda w: w.long(),
    "true or false": lambda w: w > 0,
    "half": lambda w: w.half(),
    "double": lambda w: w.double(),
    "complex": lambda w: w.to(torch.complex64),
    "nan": lambda w: torch.full_like(w.float(), float("nan")),
    "infinite": lambda w: torch.full_like(w.float(), float("inf")),
    "huge": lambda w: torch.full_like(w.float(), 1e38),
    "sparse": lambda w: w.to_sparse(),
    "parameter": lambda w: torch.nn.Parameter(w.float()),
}
# What is made of the bytes of the file
FILES = {
    "empty": lambda content: b"",
    "a quarter": lambda content: content[: len(content) // 4],
    "half": lambda content: content[: len(content) // 2],
    "without its end": lambda content: content[:-30],
    "a hole": lambda content: content[:3000] + bytes(500) + content[3500:],
    "more behind": lambda content: content + b"more",
    "a text": lambda content: b"this is no checkpoint\n",
    "a pickle of a list": lambda content: pickle.dumps([1, 2, 3], protocol=2),
    "a pickle of a dictionary": lambda content: pickle.dumps({"model": {}}, protocol=2),
    "a pickle of a class": lambda content: pickle.dumps(io.BytesIO, protocol=2),
    "a tensor": lambda content: _saved(torch.ones(3)),
    "a list": lambda content: _saved([1, "x"]),
    "a dictionary": lambda content: _saved({"a": 1}),
    "no model": lambda content: _saved({"cfg": None, "args": None}),
    "an empty model": lambda content: _saved({"model": {}, "cfg": {"model": {}}}),
    "weights alone": lambda content: _saved({"model": {"w": torch.ones(3)}}),
}
PARTS = (
    *(("cfg",), ("args",), ("model",), ("criterion",), ("optimizer_history",), ("task_state",)),
    *(("extra_state",), ("last_optimizer_state",), ("cfg", "model"), ("cfg", "task")),
    *(("cfg", "criterion"), ("cfg", "common"), ("optimizer_history", 0)),
    *(("optimizer_history", 0, "num_updates"), ("optimizer_history", 0, "optimizer_name")),
    *(("cfg", "task", "source_lang"), ("cfg", "task", "_name"), ("cfg", "criterion", "_name")),
    *(("cfg", "criterion", "target_heads"), ("cfg", "task", "data")),
)
NAMES = (
    *("encoder.layers.7.self_attn.k_proj.weight", "encoder.layers.0.self_attn.gate.x", "", "x.y"),
    *("encoder.layers.99999999999999999999.self_attn.k_proj.weight", "decoder.layers.0.fc1.weight"),
    *("encoder.layers.0.self_attn.mapping.raw_tv", "encoder.layers.0.self_attn", 3),
    *("decoder.layers.1.self_attn.gate.log_alpha", "encoder.layers.0.self_attn.in_proj_weight"),
)


def _saved(value):
    buffer = io.BytesIO()
    torch.save(value, buffer)
    return buffer.getvalue()


def remove(folder):
    shutil.rmtree(folder)


def settings_of(state):
    """The model's settings, by whatever they are kept in."""
    model = state["cfg"]["model"] if state.get("cfg") else state["args"]
    return vars(model) if isinstance(model, Namespace) else model


def mutations(state, used):
    """A strategy of mutations: a kind, a place, and what comes there, or of the file's bytes.

    Args:
        state: the good checkpoint.
        used: the names of settings that say what model it is; the others come rarely.
    """
    where = "cfg" if state.get("cfg") else "args"
    prefix = ("cfg", "model") if where == "cfg" else ("args",)
    names = sorted(name for name in settings_of(state) if isinstance(name, str))
    own = st.sampled_from([name for name in names if name in used])
    setting = st.one_of(own, own, own, st.sampled_from(names)).map(lambda name: (*prefix, name))
    weight = st.sampled_from(sorted(state["model"])).map(lambda name: ("model", name))
    part = st.sampled_from([place for place in PARTS if _has(state, place[:1])])
    value = st.one_of(*[st.tuples(st.just("value"), st.sampled_from(sorted(VALUES)))] * 5)
    value = st.one_of(value, st.just(("drop", "")))
    tensor = st.tuples(st.just("tensor"), st.sampled_from(sorted(TENSORS)))
    added = st.tuples(st.just("added"), st.sampled_from(range(len(NAMES))))
    return st.one_of(
        st.tuples(setting, value),
        st.tuples(setting, value),
        st.tuples(weight, st.one_of(tensor, tensor, tensor, value)),
        st.tuples(weight, tensor),
        st.tuples(part, value),
        st.tuples(weight, added),
        st.tuples(st.just(()), st.tuples(st.just("file"), st.sampled_from(sorted(FILES)))),
    )


def _has(state, place):
    return place[0] in state


def write(state, mutation, path):
    """Write what a mutation makes of a checkpoint to a file."""
    place, (kind, how) = mutation
    state = copy.copy(state) | {
        name: copy.deepcopy(value) for name, value in state.items() if name != "model"
    }
    state["model"] = OrderedDict(state["model"])  # the tensors themselves are replaced, not changed
    if kind == "file":
        path.write_bytes(FILES[how](_saved(state)))
        return
    group = state
    for step in place[:-1]:
        group = group[step] if not isinstance(group, Namespace) else vars(group)[step]
        if group is None:
            return torch.save(state, path)
    group = vars(group) if isinstance(group, Namespace) else group
    if kind == "drop":
        if isinstance(group, list):
            del group[place[-1]]
        else:
            group.pop(place[-1], None)
    elif kind == "tensor":
        group[place[-1]] = TENSORS[how](group[place[-1]])
    elif kind == "added":
        group[NAMES[how]] = group[place[-1]]
    else:
        group[place[-1]] = VALUES[how]
    torch.save(state, path)
