"""The mappings as modules: their texts, what they learn, initial values, and what they save."""

import math

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from fairseq_entmax.mappings import (
    Entmax,
    SqPNormMax,
    entmax,
    fusedmax,
    oscarmax,
    parse_mapping,
    parse_mappings,
    sq_pnorm_max,
)
from tests.mappings.reference import attention_scores, bisection, random_rows

HALVES = (torch.float16, torch.bfloat16)
# Text, the function it computes, the values of its heads, and its learned parameters
TEXTS = {
    "softmax": (lambda z: torch.softmax(z, -1), {"alpha": 1.0}, {}),
    "entmax:alpha=1.33": (lambda z: bisection(z, 1.33), {"alpha": 1.33}, {}),
    "sparsemax": (lambda z: bisection(z, 2.0), {"alpha": 2.0}, {}),
    "entmax:init=1.3": (lambda z: bisection(z, 1.3), {"alpha": 1.3}, {"alpha": "alpha_logit"}),
    "fusedmax": (fusedmax, {"alpha": 2.0, "tv": 0.1}, {}),
    "fusedmax:alpha=1.5:tv=0.3": (lambda z: fusedmax(z, 0.3, 1.5), {"alpha": 1.5, "tv": 0.3}, {}),
    "entmax:init=1.3:tv=learned:tv_init=2": (
        lambda z: fusedmax(z, 2.0, 1.3),
        *({"alpha": 1.3, "tv": 2.0}, {"alpha": "alpha_logit", "tv": "raw_tv"}),
    ),
    "fusedmax:tv=learned:tv_init=1e-4": (
        lambda z: fusedmax(z, 1e-4, 2.0),
        *({"alpha": 2.0, "tv": 1e-4}, {"tv": "raw_tv"}),
    ),
    "oscarmax": (oscarmax, {"alpha": 2.0, "oscar": 0.01}, {}),
    "oscarmax:alpha=1.5:oscar=learned": (
        lambda z: oscarmax(z, 0.01, 1.5),
        *({"alpha": 1.5, "oscar": 0.01}, {"oscar": "raw_oscar"}),
    ),
    "sqpnormmax:p=1.2:gamma=2": (lambda z: sq_pnorm_max(z, 1.2, 2.0), {"p": 1.2, "gamma": 2.0}, {}),
    "sqpnormmax:p=learned:p_init=1.8": (
        lambda z: sq_pnorm_max(z, 1.8, 1.0),
        *({"p": 1.8, "gamma": 1.0}, {"p": "p_logit"}),
    ),
}
LEARNED = [text for text, (_, _, learned) in TEXTS.items() if learned]
every_text = pytest.mark.parametrize("text", TEXTS)


def build(text, heads=4, **options):
    return parse_mapping(text).build(heads, torch.Generator().manual_seed(0), **options)


@every_text
def test_a_text_builds_its_mapping_with_its_values(text):
    function, values, learned = TEXTS[text]
    scores, mapping = attention_scores(), build(text)
    ours, truth = mapping(scores).double(), function(scores).double()
    torch.testing.assert_close(ours, truth, atol=3e-6, rtol=0)
    found = {name: value.tolist() for name, value in mapping.head_values().items()}
    assert found.keys() == values.keys()
    for name, value in found.items():
        assert value == pytest.approx([values[name]] * (4 if name in learned else 1), rel=2e-6)
    assert mapping.learned == tuple(learned)
    shapes = {name: tuple(p.shape) for name, p in mapping.named_parameters()}
    assert shapes == dict.fromkeys(learned.values(), (4,))
    assert list(mapping.state_dict()) == list(learned.values())
    shared = build(text, defaults={"share": "layer"})
    assert all(value.shape == (1,) for value in shared.head_values().values())


# -- a learned alpha ------------------------------------------------------------------------------


def test_alpha_of_a_head_is_one_plus_the_sigmoid_of_its_logit():
    logits = [-math.inf, -1e4, -4.6, -1.1, 0.0, 4.6, 1e4, math.inf]
    mapping = Entmax(num_alphas=8)
    mapping.load_state_dict({"alpha_logit": torch.tensor(logits)})
    alphas = [1.0 + torch.tensor(x, dtype=torch.float64).sigmoid().item() for x in logits]
    assert mapping.alpha.tolist() == pytest.approx(alphas, abs=3e-7)
    scores = attention_scores(8)
    probs = mapping(scores)
    for head, alpha in enumerate(alphas):
        truth = bisection(scores[:, head], alpha)
        torch.testing.assert_close(probs[:, head].double(), truth, rtol=0, atol=2e-6)
    probs.square().sum().backward()
    assert mapping.alpha_logit.grad.isfinite().all()


def test_the_gradient_of_each_logit_equals_finite_differences_of_bisection():
    scores = attention_scores(3, torch.float64)
    grad = random_rows(18, 9, 1.0, seed=7).view(2, 3, 3, 9)
    logits = torch.tensor([-9.0, 0.3, 3.0])  # alpha = 1.0001, 1.57, 1.95
    mapping = Entmax(num_alphas=3)
    mapping.load_state_dict({"alpha_logit": logits})
    mapping(scores.float()).backward(grad.float())

    def loss(moved):
        alpha = 1.0 + torch.sigmoid(moved.double()).view(3, 1, 1)
        return (bisection(scores, alpha) * grad).sum((0, 2, 3))

    truth = (loss(logits.double() + 1e-4) - loss(logits.double() - 1e-4)) / 2e-4
    assert mapping.alpha_logit.grad.tolist() == pytest.approx(truth.tolist(), rel=1e-3, abs=1e-9)


@pytest.mark.parametrize("shape", [(2, 4, 5, 5), (2, 1, 5, 5), (8, 5), (5,)])
def test_scores_with_another_number_of_heads_are_refused(shape):
    mapping = Entmax(num_alphas=8)
    with pytest.raises(ValueError, match=r"parameters for 8 heads, but the scores have"):
        mapping(torch.zeros(shape))


@pytest.mark.parametrize("kernel", ["auto", "torch"])
@pytest.mark.parametrize("text", ["entmax", "sqpnormmax", "softmax:temperature=learned"])
def test_one_number_for_all_heads_maps_scores_of_any_shape(text, kernel, monkeypatch):
    monkeypatch.setenv("FAIRSEQ_ENTMAX_KERNEL", kernel)
    mapping = parse_mappings(text)[0].build(1)
    scores = torch.randn(2, 3, 4, 5, generator=torch.Generator().manual_seed(6))
    expected = mapping(scores)
    for shape in ((24, 5), (6, 4, 5), (1, 1, 24, 5)):
        moved = scores.view(shape).clone().requires_grad_()
        found = mapping(moved)
        torch.testing.assert_close(found, expected.view(shape))
        found.square().sum().backward()
        assert moved.grad.shape == moved.shape


def test_normal_draws_the_logits_from_a_standard_normal():
    torch.manual_seed(20)
    logits = Entmax(num_alphas=100_000).alpha_logit.detach().double()
    # five standard errors each
    for bound in (-2.0, -1.0, 0.5, 1.5):
        share = 0.5 * (1.0 + math.erf(bound / math.sqrt(2.0)))
        error = math.sqrt(share * (1.0 - share) / len(logits))
        assert abs((logits < bound).double().mean().item() - share) <= 5 * error


def test_a_seed_or_a_generator_determines_the_initial_alphas():
    def logits(seed, generator=None):
        torch.manual_seed(seed)
        return Entmax(num_alphas=8, generator=generator).alpha_logit.tolist()

    assert logits(1) == logits(1) != logits(2)
    own = torch.Generator()
    assert logits(1, own.manual_seed(9)) == logits(2, own.manual_seed(9)) != logits(1, own)
    torch.manual_seed(5)
    before = torch.get_rng_state()
    Entmax(num_alphas=16, generator=own)
    Entmax(num_alphas=16, alpha_init=1.5)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        *(
            (lambda start=start: Entmax(alpha_init=start), "^alpha_init must .*strictly between")
            for start in (1.0, math.nan, "uniform")
        ),
        (lambda: Entmax(num_alphas=0), "num_alphas must be at least 1, not 0"),
        (lambda: Entmax(alpha=0.9), r"alpha must be from 1 .* to 2 .*not 0\.9"),
        (lambda: SqPNormMax("learned", 0), "num_ps must be at least 1, not 0"),
    ],
)
def test_modules_refuse_values_out_of_range(make, message):
    with pytest.raises(ValueError, match=message):
        make()


# -- pruning, kernels ------------------------------------------------------------------------------


@pytest.mark.parametrize("text", [*LEARNED, "fusedmax", "oscarmax:oscar=learned:share=layer"])
def test_pruning_leaves_the_remaining_heads_values_bitwise_unchanged(text):
    scores, mapping = attention_scores(), build(text)
    with torch.no_grad():
        for parameter in mapping.parameters():
            parameter.add_(0.3 * torch.arange(parameter.numel()))
    whole, values = mapping(scores), mapping.head_values()
    mapping.keep_heads([3, 1])
    for name, value in mapping.head_values().items():
        assert torch.equal(value, values[name][[3, 1]] if len(value) == 2 else values[name])
    assert all(parameter.requires_grad for parameter in mapping.parameters())
    # torch's operations iterate until every row has converged
    torch.testing.assert_close(mapping(scores[:, [3, 1]]), whole[:, [3, 1]], atol=1e-6, rtol=0)


def test_pruning_keeps_a_value_of_all_heads_and_what_is_frozen():
    for mapping in (Entmax(num_alphas=1), Entmax(num_alphas=4)):
        mapping.requires_grad_(False)
        mapping.keep_heads([0, 2])
        assert mapping(attention_scores()[:, :2]).shape[1] == 2
        assert not any(parameter.requires_grad for parameter in mapping.parameters())


def test_kernels_receive_alpha_but_neither_softmax_nor_structure():
    assert build("entmax15").epsilon() == 0.5
    assert build("entmax:init=1.25").epsilon().tolist() == pytest.approx([0.25] * 4)
    assert build("softmax").epsilon() is None
    for text in ("fusedmax:alpha=1", "entmax:oscar=learned", "sqpnormmax"):
        assert build(text).epsilon() is None
        assert not build(text).is_softmax
    for text in ("entmax:alpha=1.5:tv=0", "entmax:alpha=1.5:oscar=0"):
        assert build(text).epsilon() == 0.5
        assert torch.equal(build(text)(attention_scores()), entmax(attention_scores(), 1.5))


def test_kernels_do_not_replace_a_changed_forward_pass():
    class Half:
        def forward(self, scores):
            return super().forward(scores) / 2

    class Mixed(Half, Entmax):
        pass

    class Patched(Entmax):
        pass

    assert Patched(1.5).epsilon_holds()
    Patched.forward = lambda self, scores: scores
    replaced = Entmax(1.5)
    replaced.forward = lambda scores: scores
    for mapping in (Mixed(1.5), Patched(1.5), replaced):
        assert not mapping.epsilon_holds()


# -- precision, devices -------------------------------------------------------------


@pytest.mark.parametrize("text", [*LEARNED, "fusedmax", "softmax:temperature=learned"])
@pytest.mark.parametrize("dtype", HALVES)
def test_a_half_precision_module_maps_and_learns(text, dtype):
    mapping = build(text).to(dtype)
    scores = attention_scores(dtype=dtype)
    scores[1, :, 0] = -math.inf  # every key masked
    scores.requires_grad_()
    probs = mapping(scores)
    assert probs.dtype == dtype
    full = build(text)
    full.load_state_dict(mapping.state_dict())
    exact = full(scores.detach().float())
    torch.testing.assert_close(probs.float(), exact, atol=torch.finfo(dtype).eps, rtol=0.01)
    probs.float().square().sum().backward()
    assert not probs[1, :, 0].any()
    assert not scores.grad[1, :, 0].any()
    for gradient in (scores.grad, *(parameter.grad for parameter in mapping.parameters())):
        assert gradient.dtype == dtype
        assert gradient.isfinite().all()
        assert gradient.any()


def test_half_precision_distinguishes_alphas_close_to_one():
    # Computed in half precision, 1 + sigmoid(-9) and 1 + sigmoid(-8) would both be 1
    mapping = Entmax(num_alphas=2).half()
    mapping.load_state_dict({"alpha_logit": torch.tensor([-9.0, -8.0])})
    expected = [1.0 + 1.0 / (1.0 + math.exp(9.0)), 1.0 + 1.0 / (1.0 + math.exp(8.0))]
    assert mapping.alpha.tolist() == pytest.approx(expected, abs=1.2e-7)


class NoLookAtValues(TorchDispatchMode):
    """Raises where a program waits for its device, as at ``.item()`` and ``bool()``."""

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        if function is torch.ops.aten._local_scalar_dense.default:
            raise AssertionError("looked at a value")
        return function(*args, **(kwargs or {}))


@pytest.mark.parametrize("text", ["softmax", "entmax15", "entmax", "entmax|softmax*2|sqpnormmax"])
def test_training_never_waits_for_the_device(text):
    with NoLookAtValues(), pytest.raises(AssertionError, match="looked at a value"):
        bool(torch.ones(()) > 0)
    # Tensors on the meta device have no values, so reading one fails
    mapping = parse_mappings(text)[0].build(4).to("meta")
    scores = torch.empty(2, 4, 3, 9, device="meta", requires_grad=True)
    with NoLookAtValues():
        probs = mapping(scores)
        probs.square().sum().backward()
    assert probs.shape == scores.grad.shape == scores.shape
    assert probs.device.type == "meta"
    for parameter in mapping.parameters():
        assert parameter.grad.shape == parameter.shape
