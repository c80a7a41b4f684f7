"""What the tests of the Triton kernels share: their device, and compiling without a GPU."""

import json
import os
import subprocess
import sys

import torch

# On a GPU if there is one, else in Triton's interpreter (see tests/conftest.py)
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"

_COMPILE = """
import json, sys
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from importlib import import_module

for case in json.load(sys.stdin):
    kernel = getattr(import_module(case["module"]), case["kernel"])
    constants = dict(case["constants"])
    signature, aligned = {}, {}
    for place, parameter in enumerate(kernel.params):
        name = parameter.name
        if name in constants:
            signature[name] = "constexpr"
        elif name in case["types"]:
            signature[name] = case["types"][name]
        elif name.endswith("_ptr"):
            signature[name] = case["pointer"]
        else:
            signature[name] = "i32"
        # Sizes and strides that 16 divides are loaded in wider pieces, by more shared memory
        is_known = case["aligned"] and not parameter.do_not_specialize
        if signature[name].startswith("*") or (is_known and signature[name] == "i32"):
            aligned[(place,)] = [["tt.divisibility", 16]]
    constants = {name: value for name, value in constants.items() if name in signature}
    made = triton.compile(
        ASTSource(kernel, signature, constants, aligned),
        target=GPUTarget("cuda", case.get("architecture", 90), 32),
        options=case["options"],
    )
    unlooked = [one.name for one in kernel.params if one.do_not_specialize]
    print(json.dumps([len(made.asm["cubin"]), made.metadata.shared, unlooked]))
"""


def compile_for_h100(cases):
    """Compile kernels without the interpreter; no GPU is needed.

    Each case is a dict of ``module``, ``kernel``, the type of its ``pointer`` parameters, other
    ``types`` by name, ``constants``, ``options``, ``aligned`` (whether 16 divides all integers that
    Triton specialises on), and the ``architecture`` unless it is that of the H100. For each case,
    returns the bytes of its code and of shared memory, and the parameters that Triton does not
    specialise on.
    """
    environment = {key: value for key, value in os.environ.items() if key != "TRITON_INTERPRET"}
    result = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", _COMPILE],
        input=json.dumps(cases),
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr[-3000:]
    return [json.loads(line) for line in result.stdout.splitlines()]
