"""The tests of the mappings run on every backend that this machine has.

Triton runs in its interpreter here, in float32 (other dtypes then run on torch), about a
hundred times slower than torch: it gets the tests of values and gradients, not those that
train, draw hundreds of examples, or measure memory, which is the interpreter's. On a GPU its
own tests in tests/kernels run instead.
"""

import importlib.util

import pytest
import torch

from fairseq_entmax import kernels
from tests.kernels.native.support import needs_compiler

ALL_RUN_HERE = [kernels.TORCH, pytest.param(kernels.NATIVE, marks=needs_compiler)]
INTERPRETED = (
    "test_functional",
    "test_gradients",
    "test_nan",
    "test_second_derivatives",
    "test_structured_edges",
    "test_target_losses",
)
NOT_INTERPRETED = (
    # of torch's own iteration
    "test_the_steps_taken_where_no_value_is_looked_at_are_enough",
    "test_forward_holds_at_most_four_and_a_half_tensors_of_scores",
    "test_between_forward_and_backward_only_the_probabilities_are_kept",
    "test_backward_holds_at_most_eight_tensors_of_scores",
    # of sums in float64, which a kernel for a GPU does not have
    "test_a_small_loss_is_as_precise_as_a_large_one",
)


# What they test computes no probabilities
OF_NO_BACKEND = ("test_registry", "test_layers")
# They compute in float64, which is torch's alone where there is structure
IN_FLOAT64 = ("test_structured_prox", "test_structured_values", "test_structured_gradients")


def pytest_generate_tests(metafunc):
    backends = list(ALL_RUN_HERE)
    if metafunc.module.__name__.rpartition(".")[2] in OF_NO_BACKEND + IN_FLOAT64:
        backends = [kernels.TORCH]
    if (
        importlib.util.find_spec("triton")
        and not torch.cuda.is_available()
        and metafunc.module.__name__.rpartition(".")[2] in INTERPRETED
        and metafunc.function.__name__ not in NOT_INTERPRETED
    ):
        backends.append(kernels.TRITON)
    metafunc.parametrize("backend", backends, indirect=True, scope="package")


@pytest.fixture(scope="package", autouse=True)
def backend(request):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(kernels.VARIABLE, request.param)
        if request.param == kernels.TRITON:
            from fairseq_entmax.kernels.triton import rows as triton_rows

            # The interpreter's time goes with the number of programs; tiles of the size that
            # a GPU takes are in tests/kernels/triton/test_rows.py
            patch.setattr(triton_rows, "LEAST_TILE", 8192)
        yield request.param
