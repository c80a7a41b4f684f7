"""The reader of plain values that replaces Python's eval in fairseq."""

import ast
import builtins
import importlib
import sys

import pytest
from fairseq.models.lstm import LSTMModel

import fairseq_entmax  # noqa: F401
from fairseq_entmax.fairseq_patches.literals import evaluate, read_literal

VALUES = """1; -1; +2.5; 1e-4; 0.5,0.25; (0.9, 0.98); [0.1] * 3; [(512, 3)] * 20; 3 * [(512, 3)]
[(512, 10, 5)] + [(512, 3, 2)] * 4 + [(512, 2, 2)]; True; False; None; 'text'; 'a' 'b'; (); []; {}
{'name': 'x', 'n': [1]}; [1] # layers; (1); 1 - 0.02; 0.1 * 3; 1 / 4; 0x10; [[1] * 2] * 2; -(1 + 2)
1_000; 1j; (1,) + (2,)""".replace("\n", "; ").split("; ")
VALUES += ["  [1]", "\t1", "1\\\n\n", "[1]\n"]
OTHERS = """open; print(); 1 if 2 else 3; [x for x in (1,)]; lambda: 1; (x := 1); f'{1}'; 'a'.upper(); [1][0]
1 < 2; not 1; ~1; 1 and 2; 2 ** 3; 1 << 3; 7 // 2; 7 % 2; {1, 2}; [*[1]]; import os; 1 +; -[1]; 1 / 0
[1] - [1]; [1] + (1,); [1] * 1.5; {[]: 1}; '%s' % 1; await x; yield; `1`; é; 1 @ 2""".replace(
    "\n", "; "
)
OTHERS = [*OTHERS.split("; "), "", " ", "1; 2", "\\\n\n", "\0", "1\n2", "[" * 10_000, "\ud800"]


@pytest.mark.parametrize("text", VALUES)
def test_a_plain_value_is_read_as_eval_would(text):
    value = read_literal(text)
    assert value == eval(text)
    assert type(value) is type(eval(text))


@pytest.mark.parametrize("text", OTHERS)
def test_any_other_expression_is_refused(text):
    with pytest.raises(ValueError, match="is not a plain value"):
        read_literal(text)


def test_other_types_are_a_type_error_and_compiled_code_does_not_run(tmp_path):
    code = compile(f"open({str(tmp_path / 'ran')!r}, 'w')", "", "eval")
    for value in (1, [1], b"1", bytearray(b"1"), ast.parse("1"), code):
        with pytest.raises(TypeError):
            read_literal(value)
    assert not (tmp_path / "ran").exists()


def test_every_module_of_fairseq_reads_plain_values_and_other_code_keeps_eval(monkeypatch):
    names = [name for name in sys.modules if name.partition(".")[0] in ("fairseq", "fairseq_cli")]
    assert len(names) > 100
    assert all(vars(sys.modules[name]).get("eval") is evaluate for name in names)
    assert builtins.eval is eval
    assert "eval" not in vars(LSTMModel)
    # So does a module that is imported later
    known = importlib.import_module("fairseq.data.codedataset")
    monkeypatch.setattr(sys.modules["fairseq.data"], "codedataset", known)
    monkeypatch.delitem(sys.modules, "fairseq.data.codedataset")
    assert importlib.import_module("fairseq.data.codedataset").eval is evaluate
