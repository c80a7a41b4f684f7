"""Values, masks, dtypes, dimensions and errors of the mappings as functions."""

import math
import re

import entmax as reference_package
import pytest
import torch

from fairseq_entmax.kernels import torch_ops
from fairseq_entmax.mappings import entmax, entmax15, softmax, sparsemax
from fairseq_entmax.mappings.functional import logit_of_alpha, map_scores
from tests.mappings.reference import (
    ALPHAS,
    ROW_LENGTHS,
    SCALES,
    bisection,
    every_support,
    random_rows,
)

FUNCTIONS = {
    "softmax": softmax,
    "sparsemax": sparsemax,
    "entmax15": entmax15,
    "entmax-1.33": lambda scores, dim=-1: entmax(scores, 1.33, dim),
    "entmax-tensor": lambda scores, dim=-1: entmax(scores, torch.tensor(1.33), dim),
}
every_function = pytest.mark.parametrize("function", FUNCTIONS.values(), ids=FUNCTIONS)
every_alpha = pytest.mark.parametrize("alpha", ALPHAS)
INF, NAN = math.inf, math.nan


def largest_error(probs, truth):
    assert probs.shape == truth.shape
    return (probs.double() - truth).abs().max().item()


def score_grid(rows=12):
    """Rows of every length and scale, as float64 tensors ``(rows, keys)``."""
    return [
        random_rows(rows, keys, scale, seed=keys + int(10 * scale))
        for keys in ROW_LENGTHS
        for scale in SCALES
    ]


# -- values ---------------------------------------------------------------------------


@every_alpha
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-6), (torch.float64, 1e-10)])
def test_entmax_equals_bisection_on_the_definition(alpha, dtype, tolerance):
    for scores in score_grid():
        assert largest_error(entmax(scores.to(dtype), alpha), bisection(scores, alpha)) <= tolerance


@pytest.mark.parametrize("alpha", [alpha for alpha in ALPHAS if alpha > 1.0])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-6), (torch.float64, 1e-10)])
def test_entmax_equals_the_bisection_of_the_entmax_package(alpha, dtype, tolerance):
    for scores in score_grid(rows=6):
        truth = reference_package.entmax_bisect(scores, alpha, n_iter=100)
        assert largest_error(entmax(scores.to(dtype), alpha), truth) <= tolerance


@pytest.mark.parametrize(
    ("function", "truth"),
    [
        (softmax, torch.softmax),
        (sparsemax, reference_package.sparsemax),
        (entmax15, reference_package.entmax15),
    ],
    ids=["softmax", "sparsemax", "entmax15"],
)
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-6), (torch.float64, 1e-10)])
def test_named_mappings_equal_the_exact_algorithms(function, truth, dtype, tolerance):
    for scores in score_grid():
        assert largest_error(function(scores.to(dtype)), truth(scores, dim=-1)) <= tolerance


@every_alpha
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-6), (torch.float64, 1e-10)])
def test_an_alpha_tensor_gives_what_bisection_gives(alpha, dtype, tolerance):
    for scores in score_grid(rows=6):
        probs = entmax(scores.to(dtype), torch.tensor(alpha, dtype=torch.float64))
        assert largest_error(probs, bisection(scores, alpha)) <= tolerance


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-6), (torch.float64, 1e-10)])
def test_each_head_is_mapped_by_its_own_alpha(dtype, tolerance):
    heads = len(ALPHAS)
    scores = random_rows(2 * heads * 3, 17, 2.0).view(2, heads, 3, 17)
    alpha = torch.tensor(ALPHAS, dtype=torch.float64).view(heads, 1, 1)
    probs = entmax(scores.to(dtype), alpha)
    for head, number in enumerate(ALPHAS):
        assert largest_error(probs[:, head], bisection(scores[:, head], number)) <= tolerance


def test_a_float32_alpha_of_a_head_is_used_at_its_full_precision():
    scores = random_rows(20, 30, 8.0)
    alpha = torch.tensor(1.0001, dtype=torch.float32)
    truth = bisection(scores, alpha.double())
    assert largest_error(entmax(scores, alpha), truth) <= 1e-10


def test_alpha_defaults_to_one_and_a_half():
    scores = random_rows(5, 9, 1.0)
    truth = reference_package.entmax15(scores, dim=-1)
    assert largest_error(entmax(scores), truth) <= 1e-10


@pytest.mark.parametrize("alpha", [1.5, 2.0])
def test_the_support_is_exactly_the_one_found_by_trying_all_supports(alpha):
    generator = torch.Generator().manual_seed(3)
    sparse_rows = 0
    for keys in range(1, 7):
        for scale in (0.3, 1.0, 3.0):
            for _ in range(10):
                scores = scale * torch.randn(keys, dtype=torch.float64, generator=generator)
                truth = every_support(scores.tolist(), alpha)
                probs = entmax(scores, alpha)
                assert [p > 0 for p in probs.tolist()] == [p > 0 for p in truth]
                assert probs.tolist() == pytest.approx(truth, abs=1e-10)
                sparse_rows += 0.0 in truth
    assert sparse_rows > 50  # the cases do test sparsity


@pytest.mark.parametrize("alpha", [1.5, 2.0])
def test_float32_finds_the_same_support_as_trying_all_supports(alpha):
    for seed in range(60):
        scores = random_rows(1, 6, 1.5, seed=seed)[0]
        truth = every_support(scores.tolist(), alpha)
        probs = entmax(scores.float(), alpha)
        assert [p > 0 for p in probs.tolist()] == [p > 0 for p in truth]


@every_alpha
def test_equal_scores_share_the_weight_equally(alpha):
    probs = entmax(torch.full((3, 7), -4.25), alpha)
    assert largest_error(probs, torch.full((3, 7), 1 / 7, dtype=torch.float64)) <= 1e-7


@pytest.mark.parametrize("alpha", [1.01, 1.5, 2.0])
def test_a_score_far_above_the_rest_takes_all_the_weight(alpha):
    probs = entmax(torch.tensor([0.0, 3e4, -3e4, 1.0]), alpha)
    assert probs.tolist() == [0.0, 1.0, 0.0, 0.0]


@every_alpha
def test_scores_as_large_as_float32_holds_do_not_overflow(alpha):
    probs = entmax(torch.tensor([3e38, -3e38, 3e38]), alpha)
    assert probs.tolist() == pytest.approx([0.5, 0.0, 0.5], abs=1e-6)


@pytest.mark.parametrize("looks", [True, False])
@pytest.mark.parametrize("growth", [1.5, 1.7, 2.0])
@pytest.mark.parametrize("narrowing", [1.5, 2.0, 3.0])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-6), (torch.float64, 1e-10)])
def test_rows_made_to_need_many_steps_are_solved(
    growth, narrowing, dtype, tolerance, looks, monkeypatch
):
    if not looks:
        monkeypatch.setattr(torch_ops, "TOLERANCE", {dtype: -1.0})
    # Two keys share the weight; behind them stand ever larger groups of keys, ever further
    # below the threshold, so that the iteration sheds them about one group at a time.
    sizes = [2]
    while sum(sizes) < 1024:
        sizes.append(math.ceil(sum(sizes) * (growth - 1.0)))
    scores = [0.0, 0.0]
    for back, size in enumerate(sizes[1:]):
        below = 0.45 / narrowing ** (len(sizes) - 2 - back)
        scores += [-0.5 - below] * size
    row = torch.tensor(scores).double()
    assert largest_error(sparsemax(row.to(dtype)), bisection(row, 2.0)) <= tolerance


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_steps_taken_where_no_value_is_looked_at_are_enough(dtype, monkeypatch):
    # What a GPU runs: all steps, none of them left out.
    monkeypatch.setattr(torch_ops, "TOLERANCE", {dtype: -1.0})
    tolerance = {torch.float32: 1e-6, torch.float64: 1e-10}[dtype]
    for alpha in ALPHAS:
        for scores in score_grid(rows=8):
            probs = entmax(scores.to(dtype), alpha)
            assert largest_error(probs, bisection(scores, alpha)) <= tolerance


# -- masks and NaN ----------------------------------------------------------------------


@every_alpha
@pytest.mark.parametrize("as_tensor", [False, True])
def test_masked_keys_get_exactly_zero(alpha, as_tensor):
    scores = random_rows(40, 12, 1.0, dtype=torch.float32)
    mask = random_rows(40, 12, 1.0, seed=1) > 0
    mask[:, 5] = False
    probs = entmax(scores.masked_fill(mask, -INF), torch.tensor(alpha) if as_tensor else alpha)
    assert (probs[mask] == 0.0).all()
    assert probs.sum(-1).tolist() == pytest.approx([1.0] * 40, abs=1e-6)


@every_alpha
def test_masking_a_key_equals_dropping_it(alpha):
    scores = random_rows(30, 11, 3.0)
    kept = [0, 2, 3, 7, 10]
    masked = torch.full_like(scores, -INF)
    masked[:, kept] = scores[:, kept]
    probs = entmax(masked.float(), alpha)
    assert largest_error(probs[:, kept], bisection(scores[:, kept], alpha)) <= 1e-6


@every_function
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_a_row_with_every_key_masked_gives_zeros(function, dtype):
    scores = random_rows(3, 4, 1.0, dtype=dtype)
    scores[1] = -INF
    probs = function(scores)
    assert probs[1].tolist() == [0.0] * 4
    assert probs[[0, 2]].double().sum(-1).tolist() == pytest.approx([1.0, 1.0], abs=1e-2)


@every_alpha
@pytest.mark.parametrize("as_tensor", [False, True])
def test_nan_among_the_scores_shows_in_its_own_row_only(alpha, as_tensor):
    scores = random_rows(3, 5, 1.0)
    clean = scores.clone()
    scores[1, 2] = NAN
    probs = entmax(scores.float(), torch.tensor(alpha) if as_tensor else alpha)
    assert probs[1].isnan().all()
    others = [0, 2]
    assert largest_error(probs[others], bisection(clean[others], alpha)) <= 1e-6


@every_alpha
def test_nan_beside_masked_keys_still_shows(alpha):
    probs = entmax(torch.tensor([[-INF, NAN, -INF], [-INF, 0.0, -INF]]), alpha)
    assert probs[0].isnan().any()
    assert probs[1].tolist() == [0.0, 1.0, 0.0]


# -- precision and shape ------------------------------------------------------------------


@every_function
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_computed_in_float32(function, dtype):
    scores = random_rows(20, 64, 4.0, dtype=dtype)
    probs = function(scores)
    assert probs.dtype == dtype
    assert torch.equal(probs, function(scores.float()).to(dtype))


@pytest.mark.parametrize("alpha", [1.0, 1.0001, 1.25, 1.5, 2.0])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_off_by_no_more_than_its_own_rounding(alpha, dtype):
    scores = random_rows(20, 64, 4.0, dtype=dtype)
    truth = bisection(scores, alpha)
    error = (entmax(scores, alpha).double() - truth).abs()
    assert (error <= torch.finfo(dtype).eps * truth + 1e-6).all()


@every_function
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_dtype_and_shape_are_those_of_the_scores(function, dtype):
    probs = function(torch.zeros(2, 3, 4, dtype=dtype))
    assert probs.dtype == dtype
    assert probs.shape == (2, 3, 4)


@every_function
@pytest.mark.parametrize("dim", [-3, -2, -1, 0, 1, 2])
def test_every_dimension_can_hold_the_keys(function, dim):
    scores = random_rows(2 * 3, 5, 2.0).view(2, 3, 5)
    probs = function(scores, dim)
    keys_last = function(scores.movedim(dim, -1).contiguous())
    assert largest_error(probs, keys_last.movedim(-1, dim)) <= 1e-14
    assert largest_error(probs.sum(dim), torch.ones_like(probs.sum(dim))) <= 1e-12


@pytest.mark.parametrize("dim", [-3, -2, -1, 0, 1, 2])
def test_an_alpha_tensor_follows_the_dimension_of_the_keys(dim):
    scores = random_rows(2 * 3, 5, 2.0).view(2, 3, 5)
    shape = [2, 3, 5]
    shape[dim] = 1
    generator = torch.Generator().manual_seed(0)
    alpha = 1.0 + torch.rand(shape, dtype=torch.float64, generator=generator)
    truth = bisection(scores.movedim(dim, -1), alpha.movedim(dim, -1)).movedim(-1, dim)
    assert largest_error(entmax(scores, alpha, dim), truth) <= 1e-10


@pytest.mark.parametrize("shape", [(), (1,), (3, 1), (1, 3, 1), (2, 1, 1), (2, 3, 1)])
def test_alpha_broadcasts_as_torch_does(shape):
    scores = random_rows(2 * 3, 5, 2.0).view(2, 3, 5)
    generator = torch.Generator().manual_seed(0)
    alpha = 1.0 + torch.rand(shape, dtype=torch.float64, generator=generator)
    assert largest_error(entmax(scores, alpha), bisection(scores, alpha)) <= 1e-10


@every_function
def test_scores_need_not_be_contiguous(function):
    wide = random_rows(10, 12, 2.0)
    for scores in (wide.t(), wide[::2, 1::3], wide[:, :1].expand(10, 6)):
        assert not scores.is_contiguous()
        expected = function(scores.contiguous())
        assert largest_error(function(scores), expected) <= 1e-14


@every_function
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
def test_the_scores_are_left_as_they_were(function, dtype):
    scores = random_rows(4, 9, 2.0, dtype=dtype)
    scores[0] = -INF
    before = scores.clone()
    function(scores)
    assert torch.equal(scores, before)


def test_the_alpha_tensor_is_left_as_it_was():
    alpha = torch.tensor([[1.0], [1.3], [2.0]])
    before = alpha.clone()
    entmax(random_rows(3, 4, 1.0, dtype=torch.float32), alpha)
    assert torch.equal(alpha, before)


@every_function
@pytest.mark.parametrize("shape", [(0,), (0, 4), (3, 0), (0, 0), (2, 0, 3)])
def test_no_scores_give_no_probabilities(function, shape):
    assert function(torch.empty(shape)).shape == shape


@every_function
@pytest.mark.parametrize("score", [-1e30, -7.5, 0.0, 1e-30, 88.0, 1e30])
def test_a_single_key_gets_all_the_weight(function, score):
    assert function(torch.full((2, 1), score)).tolist() == [[1.0], [1.0]]


# -- errors -------------------------------------------------------------------------------


@pytest.mark.parametrize("alpha", [0.0, -1.5, 0.999999, 2.000001, 3, NAN, INF, -INF])
def test_an_alpha_outside_one_to_two_is_refused(alpha):
    with pytest.raises(ValueError, match=rf"from 1 .* to 2 .*{re.escape(str(float(alpha)))}"):
        entmax(torch.zeros(2, 3), alpha)


@pytest.mark.parametrize("alpha", ["high", None, [1.5], 1.5 + 0j])
def test_an_alpha_that_is_no_number_is_refused(alpha):
    with pytest.raises(ValueError, match=rf"number from 1 .* to 2 .*{re.escape(repr(alpha))}"):
        entmax(torch.zeros(2, 3), alpha)


def test_an_alpha_written_as_a_text_is_refused():
    with pytest.raises(ValueError, match=r"alpha must be a number or a tensor.*not a text: '1.5'"):
        entmax(torch.zeros(2, 3), "1.5")


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.bool])
def test_an_alpha_tensor_of_whole_numbers_is_refused(dtype):
    with pytest.raises(ValueError, match=rf"alpha must be a floating-point tensor, not {dtype}"):
        entmax(torch.zeros(2, 3), torch.ones((), dtype=dtype))


@pytest.mark.parametrize("bad", [0.5, 0.75, 2.25, 2.5, NAN, INF, -INF])
def test_an_alpha_tensor_with_one_value_out_of_range_is_refused(bad):
    alpha = torch.tensor([1.0, bad, 2.0]).view(3, 1)
    with pytest.raises(ValueError, match=rf"alpha must be from 1 .* to 2 .*{bad}"):
        entmax(torch.zeros(3, 4), alpha)


@pytest.mark.parametrize("shape", [(3,), (3, 1), (2, 2, 1), (1, 1, 2, 1)])
def test_an_alpha_that_does_not_broadcast_is_refused(shape):
    message = rf"shape {re.escape(str(shape))} does not broadcast to \(2, 1\).*dim -1"
    with pytest.raises(ValueError, match=message):
        entmax(torch.zeros(2, 4), torch.full(shape, 1.5))


@pytest.mark.parametrize(("shape", "dim"), [((4,), -1), ((2, 4), 1), ((2, 1), 0), ((2, 4), -2)])
def test_an_alpha_that_varies_along_the_keys_is_refused(shape, dim):
    message = rf"shape {re.escape(str(shape))} .* size 1 at dim {dim}"
    with pytest.raises(ValueError, match=message):
        entmax(torch.zeros(2, 4), torch.full(shape, 1.5), dim)


@every_function
@pytest.mark.parametrize("dim", [-4, 3, 10])
def test_a_dimension_that_the_scores_lack_is_refused(function, dim):
    with pytest.raises(ValueError, match=rf"dim must be from -3 to 2 .*\(2, 3, 4\), not {dim}"):
        function(torch.zeros(2, 3, 4), dim)


@every_function
@pytest.mark.parametrize("dtype", [torch.int64, torch.int8, torch.bool, torch.complex64])
def test_scores_that_are_not_floating_point_are_refused(function, dtype):
    with pytest.raises(ValueError, match=rf"scores must be a floating-point tensor, not {dtype}"):
        function(torch.zeros(2, 3, dtype=dtype))


@pytest.mark.parametrize("alpha", [1.0001, 1.3, 1.5, 1.99])
def test_the_logit_of_alpha_inverts_one_plus_sigmoid(alpha):
    assert 1.0 + 1.0 / (1.0 + math.exp(-logit_of_alpha(alpha))) == pytest.approx(alpha, abs=1e-12)


@pytest.mark.parametrize("alpha", [1.0, 2.0])
def test_an_end_has_no_logit(alpha):
    with pytest.raises(ValueError, match=rf"option must lie strictly between 1 and 2.*not {alpha}"):
        logit_of_alpha(alpha, "option")


@every_alpha
def test_map_scores_gives_what_entmax_gives(alpha):
    scores = random_rows(3, 8, 1.0)
    assert torch.equal(map_scores(scores, alpha), entmax(scores, alpha))
