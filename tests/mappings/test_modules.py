"""The mappings as modules: what they learn, where it starts, what they save."""

import copy
import math
import re

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from fairseq_entmax.mappings import Entmax, Mapping, SqPNormMax, parse_mapping, parse_mappings
from fairseq_entmax.mappings.modules import check_alpha_init
from tests.mappings.reference import bisection, random_rows, scores_derivative

FIXED = {
    "softmax": (parse_mapping("softmax").build, 1.0),
    "entmax15": (parse_mapping("entmax15").build, 1.5),
    "sparsemax": (parse_mapping("sparsemax").build, 2.0),
    "entmax-1": (lambda: Entmax(alpha=1.0), 1.0),
    "entmax-1.33": (lambda: Entmax(alpha=1.33), 1.33),
    "entmax-2": (lambda: Entmax(alpha=2), 2.0),
}
every_fixed = pytest.mark.parametrize(("make", "alpha"), FIXED.values(), ids=FIXED)


def attention_scores(heads=4, dtype=torch.float64):
    """``(batch, heads, queries, keys)``, one key of the first sentence masked."""
    scores = random_rows(2 * heads * 3, 9, 2.0, dtype=dtype).view(2, heads, 3, 9)
    scores[0, ..., 4] = -math.inf
    return scores


# -- a fixed alpha --------------------------------------------------------------------------


@every_fixed
def test_a_fixed_mapping_equals_bisection_at_its_alpha(make, alpha):
    scores = attention_scores()
    assert torch.allclose(make()(scores), bisection(scores, alpha), rtol=0.0, atol=1e-10)


@every_fixed
def test_a_fixed_mapping_says_its_alpha_and_has_nothing_to_learn_or_save(make, alpha):
    mapping = make()
    assert isinstance(mapping, Mapping)
    assert mapping.alpha == alpha
    assert list(mapping.parameters()) == []
    assert mapping.state_dict() == {}


@every_fixed
def test_a_fixed_mapping_gives_the_scores_their_gradient(make, alpha):
    scores = random_rows(6, 5, 1.0).view(1, 2, 3, 5).requires_grad_()
    grad = random_rows(6, 5, 1.0, seed=2).view(1, 2, 3, 5)
    make()(scores).backward(grad)
    truth = scores_derivative(scores.detach(), alpha, grad)
    assert torch.allclose(scores.grad, truth, rtol=0.0, atol=1e-7)


def test_a_fixed_alpha_does_not_care_how_a_learned_one_would_start():
    assert Entmax(alpha=1.2, num_alphas=0, alpha_init="nonsense").alpha == 1.2


# -- a learned alpha ------------------------------------------------------------------------


def test_a_learned_alpha_is_one_plus_the_sigmoid_of_its_logit():
    mapping = Entmax(num_alphas=4)
    logits = [-3.0, -0.5, 0.0, 4.0]
    mapping.load_state_dict({"alpha_logit": torch.tensor(logits)})
    expected = [1.0 + 1.0 / (1.0 + math.exp(-logit)) for logit in logits]
    assert mapping.alpha.tolist() == pytest.approx(expected, abs=3e-7)


def test_every_head_is_mapped_with_the_alpha_it_learned():
    alphas = [1.01, 1.25, 1.5, 1.99]
    mapping = Entmax(num_alphas=4)
    logits = [math.log((alpha - 1.0) / (2.0 - alpha)) for alpha in alphas]
    mapping.load_state_dict({"alpha_logit": torch.tensor(logits)})
    scores = attention_scores(heads=4)
    probs = mapping(scores.float())
    for head, alpha in enumerate(alphas):
        truth = bisection(scores[:, head], alpha)
        assert torch.allclose(probs[:, head].double(), truth, rtol=0.0, atol=2e-6)


def test_one_learned_alpha_serves_all_heads():
    scores = attention_scores(heads=4)
    mapping = Entmax(num_alphas=1, alpha_init=1.3)
    assert torch.allclose(
        mapping(scores.float()).double(), bisection(scores, 1.3), rtol=0.0, atol=2e-6
    )


@pytest.mark.parametrize(("logit", "end"), [(1e4, 2.0), (-1e4, 1.0), (math.inf, 2.0)])
def test_a_learned_alpha_stays_in_range_whatever_its_logit(logit, end):
    mapping = Entmax(num_alphas=2)
    mapping.load_state_dict({"alpha_logit": torch.tensor([logit, 0.0])})
    scores = attention_scores(heads=2)
    assert mapping.alpha.tolist() == [end, 1.5]
    probs = mapping(scores.float())
    truth = bisection(scores[:, 0], end)
    assert torch.allclose(probs[:, 0].double(), truth, rtol=0.0, atol=1e-6)
    probs.square().sum().backward()
    assert mapping.alpha_logit.grad.isfinite().all()


def test_the_gradient_of_each_logit_equals_finite_differences_of_bisection():
    scores, grad = attention_scores(heads=3), random_rows(18, 9, 1.0, seed=7).view(2, 3, 3, 9)
    logits = torch.tensor([-9.0, 0.3, 3.0])  # alpha = 1.0001, 1.57, 1.95
    mapping = Entmax(num_alphas=3)
    mapping.load_state_dict({"alpha_logit": logits})
    mapping(scores.float()).backward(grad.float())

    def loss(moved):
        alpha = 1.0 + torch.sigmoid(moved.double()).view(3, 1, 1)
        return (bisection(scores, alpha) * grad).sum((0, 2, 3))

    truth = (loss(logits.double() + 1e-4) - loss(logits.double() - 1e-4)) / 2e-4
    assert mapping.alpha_logit.grad.tolist() == pytest.approx(truth.tolist(), rel=1e-3, abs=1e-9)


def test_gradient_descent_moves_alpha_towards_its_target():
    scores = random_rows(64, 12, 1.0, dtype=torch.float32).view(4, 1, 16, 12)
    target = bisection(scores, 1.8).float()
    mapping = Entmax(alpha_init=1.2)
    optimiser = torch.optim.Adam(mapping.parameters(), lr=0.1)
    for _ in range(150):
        optimiser.zero_grad()
        (mapping(scores) - target).square().sum().backward()
        optimiser.step()
    assert mapping.alpha.item() == pytest.approx(1.8, abs=0.01)


@pytest.mark.parametrize("arguments", [{}, {"alpha": 1.5, "tv": "learned"}])
@pytest.mark.parametrize("shape", [(2, 4, 5, 5), (4, 5, 5), (2, 1, 5, 5), (8, 5), (5,)])
def test_scores_of_another_number_of_heads_are_refused_with_both_numbers(shape, arguments):
    mapping = Entmax(num_alphas=8, **arguments)
    with pytest.raises(ValueError, match=r"numbers of its own for 8 heads, and the scores are of"):
        mapping(torch.zeros(shape))


# -- where a learned alpha starts -------------------------------------------------------------


@pytest.mark.parametrize("start", [1.0001, 1.25, 1.5, 1.9, "1.75"])
@pytest.mark.parametrize("count", [1, 8])
def test_a_number_starts_every_alpha_there(start, count):
    mapping = Entmax(num_alphas=count, alpha_init=start)
    assert mapping.alpha.tolist() == pytest.approx([float(start)] * count, abs=2e-7)


def test_normal_draws_the_logits_from_a_standard_normal():
    torch.manual_seed(20)
    count = 100_000
    logits = Entmax(num_alphas=count, alpha_init="normal").alpha_logit.detach().double()
    # five standard errors each
    assert abs(logits.mean().item()) <= 5 / math.sqrt(count)
    assert abs(logits.var().item() - 1.0) <= 5 * math.sqrt(2 / count)
    for bound in (-2.0, -1.0, 0.5, 1.5):
        share = 0.5 * (1.0 + math.erf(bound / math.sqrt(2.0)))
        error = math.sqrt(share * (1.0 - share) / count)
        assert abs((logits < bound).double().mean().item() - share) <= 5 * error


def test_normal_is_the_default():
    logits = Entmax(num_alphas=64).alpha_logit
    assert logits.unique().numel() == 64


def test_the_seed_decides_the_starting_alphas():
    starts = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        starts.append(Entmax(num_alphas=8).alpha_logit.tolist())
    assert starts[0] == starts[1]
    assert starts[0] != starts[2]


@pytest.mark.parametrize("start", ["normal", 1.5])
def test_a_start_from_a_generator_leaves_torchs_random_state_untouched(start):
    torch.manual_seed(5)
    before = torch.get_rng_state()
    Entmax(num_alphas=16, alpha_init=start, generator=torch.Generator())
    assert torch.equal(torch.get_rng_state(), before)


def test_a_generator_decides_the_starting_alphas_whatever_torchs_seed():
    starts = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        generator = torch.Generator().manual_seed(9)
        starts.append(Entmax(num_alphas=8, generator=generator).alpha_logit.tolist())
    assert starts[0] == starts[1]


@pytest.mark.parametrize("generator", [None, torch.Generator()])
def test_two_modules_built_in_a_row_do_not_start_alike(generator):
    first, second = (Entmax(num_alphas=8, generator=generator).alpha_logit for _ in range(2))
    assert not torch.isin(first, second).any()


@pytest.mark.parametrize("start", [1.0, 2.0, 1, 2])
def test_a_learned_alpha_cannot_start_at_an_end(start):
    message = rf"alpha_init must lie strictly between 1 and 2 .*, not {float(start)}.*entmax:alpha="
    with pytest.raises(ValueError, match=message):
        Entmax(alpha_init=start)


@pytest.mark.parametrize("start", [0.5, 2.5, -1.0, math.nan, math.inf])
def test_a_learned_alpha_cannot_start_out_of_range(start):
    with pytest.raises(ValueError, match=rf"alpha_init must be from 1 .* to 2 .*not {start}"):
        Entmax(alpha_init=start)


@pytest.mark.parametrize("start", ["uniform", "", "Normal", "1.5x"])
def test_a_start_that_is_neither_normal_nor_a_number_is_refused(start):
    message = rf"alpha_init must be 'normal' or a number strictly between 1 and 2, not {start!r}"
    with pytest.raises(ValueError, match=re.escape(message)):
        Entmax(alpha_init=start)


def test_the_check_of_the_start_names_the_option_it_is_given():
    assert check_alpha_init("normal") == "normal"
    assert check_alpha_init("1.25") == 1.25
    with pytest.raises(ValueError, match=r"--alpha-init must be .*not 3\.0"):
        check_alpha_init("3", "--alpha-init")


@pytest.mark.parametrize("count", [0, -1])
def test_fewer_than_one_learned_alpha_is_refused(count):
    with pytest.raises(ValueError, match=f"num_alphas must be at least 1, not {count}"):
        Entmax(num_alphas=count)


@pytest.mark.parametrize("alpha", [0.9, 2.1, math.nan, -3])
def test_a_fixed_alpha_out_of_range_is_refused(alpha):
    with pytest.raises(ValueError, match=rf"alpha must be from 1 .* to 2 .*not {float(alpha)}"):
        Entmax(alpha=alpha)


# -- what is worth watching, and what pruning leaves -------------------------------------------


@every_fixed
def test_the_value_of_the_heads_is_alpha_also_where_nothing_is_learned(make, alpha):
    mapping = make()
    assert {name: tensor.tolist() for name, tensor in mapping.head_values().items()} == {
        "alpha": [alpha]
    }
    assert mapping.learned == ()


def test_learned_alphas_are_the_values_of_their_heads():
    mapping = Entmax(num_alphas=3)
    assert mapping.head_values()["alpha"].tolist() == mapping.alpha.tolist()
    assert mapping.learned == ("alpha",)


def test_the_heads_kept_keep_their_alphas_in_their_order():
    mapping = Entmax(num_alphas=4)
    before = mapping.alpha.tolist()
    mapping.keep_heads([3, 1])
    assert mapping.alpha.tolist() == [before[3], before[1]]
    assert mapping.alpha_logit.requires_grad


def test_an_alpha_that_heads_share_outlives_them():
    mapping = parse_mapping("entmax:share=layer").build(4)
    before = mapping.alpha.tolist()
    mapping.keep_heads([2])
    assert mapping.alpha.tolist() == before


@pytest.mark.parametrize(("alpha", "epsilon"), [(1.5, 0.5), (2, 1.0), (1.0, None)])
def test_a_kernel_is_told_alpha_and_nothing_of_softmax(alpha, epsilon):
    fused = Entmax(alpha=alpha).fused()
    assert (fused and fused.epsilon) == epsilon


def test_a_kernel_takes_the_place_of_no_forward_pass_that_was_changed():
    class Halved(Entmax):
        def forward(self, scores):
            return super().forward(scores) / 2

    class Half:
        def forward(self, scores):
            return super().forward(scores) / 2

    class Mixed(Half, Entmax):
        pass

    class Renamed(Entmax):
        pass

    class Patched(Entmax):
        pass

    assert Renamed(1.5).is_fused_forward()
    assert not Halved(1.5).is_fused_forward()
    assert not Mixed(1.5).is_fused_forward()
    Patched.forward = Halved.forward
    assert not Patched(1.5).is_fused_forward()
    replaced = Entmax(1.5)
    replaced.forward = Halved(1.5).forward
    assert not replaced.is_fused_forward()


@pytest.mark.parametrize("text", ["init=1.2", "share=model", "init=1.2:share=layer"])
def test_a_fixed_alpha_has_neither_start_nor_share_in_its_text(text):
    with pytest.raises(ValueError, match=r"learned, and alpha=1.5 is fixed"):
        parse_mapping(f"entmax:alpha=1.5:{text}")


# -- saving, copying, precision ---------------------------------------------------------------


def test_a_saved_mapping_comes_back_with_its_alphas():
    saved, loaded = Entmax(num_alphas=4, alpha_init="normal"), Entmax(num_alphas=4, alpha_init=1.5)
    assert list(saved.state_dict()) == ["alpha_logit"]
    loaded.load_state_dict(saved.state_dict())
    scores = attention_scores()
    assert torch.equal(loaded.alpha, saved.alpha)
    assert torch.equal(loaded(scores), saved(scores))


def test_alphas_of_another_number_of_heads_do_not_load():
    with pytest.raises(RuntimeError, match="alpha_logit"):
        Entmax(num_alphas=8).load_state_dict(Entmax(num_alphas=4).state_dict())


def test_a_copy_learns_on_its_own():
    mapping = Entmax(num_alphas=2, alpha_init=1.5)
    other = copy.deepcopy(mapping)
    with torch.no_grad():
        other.alpha_logit.add_(1.0)
    assert mapping.alpha.tolist() == [1.5, 1.5]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_half_precision_module_maps_and_learns(dtype):
    mapping = Entmax(num_alphas=4, alpha_init=1.25).to(dtype)
    scores = attention_scores(dtype=dtype).requires_grad_()
    probs = mapping(scores)
    assert probs.dtype == dtype
    # its logit is rounded to half precision, alpha is then computed in float32
    alpha = 1.0 + torch.sigmoid(mapping.alpha_logit.detach().double()).view(4, 1, 1)
    truth = bisection(scores, alpha)
    error = (probs.detach().double() - truth).abs()
    assert (error <= torch.finfo(dtype).eps * truth + 2e-6).all()
    probs.float().square().sum().backward()
    assert scores.grad.dtype == mapping.alpha_logit.grad.dtype == dtype
    assert scores.grad.isfinite().all()
    assert mapping.alpha_logit.grad.isfinite().all()
    assert mapping.alpha_logit.grad.all()


def test_half_precision_keeps_apart_alphas_near_one():
    # In half precision itself, 1 + sigmoid(-9) and 1 + sigmoid(-8) are both 1
    mapping = Entmax(num_alphas=2).half()
    mapping.load_state_dict({"alpha_logit": torch.tensor([-9.0, -8.0])})
    expected = [1.0 + 1.0 / (1.0 + math.exp(9.0)), 1.0 + 1.0 / (1.0 + math.exp(8.0))]
    assert mapping.alpha.tolist() == pytest.approx(expected, abs=1.2e-7)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_a_sentence_of_masked_keys_only_gives_zeros_and_no_nan(dtype):
    mapping = Entmax(num_alphas=4, alpha_init=1.4)
    scores = attention_scores(dtype=dtype)
    scores[1] = -math.inf
    scores.requires_grad_()
    probs = mapping(scores)
    probs.square().sum().backward()
    assert not probs[1].any()
    assert not scores.grad[1].any()
    assert scores.grad.isfinite().all()
    assert mapping.alpha_logit.grad.isfinite().all()


@pytest.mark.parametrize(
    ("mapping", "text"),
    [
        (Entmax(alpha=1.33), "Entmax(alpha=1.33)"),
        (Entmax(num_alphas=8), "Entmax(alpha learned, 8 values)"),
    ],
)
def test_printing_a_module_says_its_alpha(mapping, text):
    assert repr(mapping) == text


# -- devices ----------------------------------------------------------------------------------


class NoLookAtValues(TorchDispatchMode):
    """Raises where a program waits for its device: at ``.item()``, ``bool()`` and the like."""

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        if function is torch.ops.aten._local_scalar_dense.default:
            raise AssertionError("looked at a value")
        return function(*args, **(kwargs or {}))


def test_the_watch_on_values_notices_a_look():
    with NoLookAtValues(), pytest.raises(AssertionError, match="looked at a value"):
        bool(torch.ones(()) > 0)


EVERY_MODULE = {
    "softmax": parse_mapping("softmax").build,
    "entmax15": parse_mapping("entmax15").build,
    "sparsemax": parse_mapping("sparsemax").build,
    "entmax-1.33": lambda: Entmax(alpha=1.33),
    "entmax-learned": lambda: Entmax(num_alphas=4),
    "sqpnormmax-learned": lambda: SqPNormMax("learned", 4),
    "apart": lambda: parse_mappings("entmax|softmax*2|sqpnormmax")[0].build(4),
}


@pytest.mark.parametrize("make", EVERY_MODULE.values(), ids=EVERY_MODULE)
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
def test_training_never_waits_for_the_device(make, dtype):
    # On the meta device tensors have no values, so that any look at one fails
    mapping = make().to("meta")
    scores = torch.empty(2, 4, 3, 9, dtype=dtype, device="meta", requires_grad=True)
    with NoLookAtValues():
        probs = mapping(scores)
        probs.float().square().sum().backward()
    assert probs.shape == scores.grad.shape == scores.shape
    assert probs.dtype == dtype
    assert probs.device.type == "meta"
    for parameter in mapping.parameters():
        assert parameter.grad.shape == parameter.shape
