"""Mappings with structure as modules: what their text says, what they learn, where it starts."""

import math
import re

import pytest
import torch

from fairseq_entmax.kernels import FusedEntmax
from fairseq_entmax.kernels.structure import Structure
from fairseq_entmax.mappings import (
    Entmax,
    SqPNormMax,
    entmax,
    fusedmax,
    oscarmax,
    parse_mapping,
    sq_pnorm_max,
)
from tests.mappings.reference import random_rows


def attention_scores(heads=4, dtype=torch.float32):
    scores = random_rows(2 * heads * 3, 9, 1.0, dtype=dtype).view(2, heads, 3, 9)
    scores[0, ..., 4] = -math.inf
    return scores


def build(text, heads=4, **options):
    return parse_mapping(text).build(heads, torch.Generator().manual_seed(0), **options)


@pytest.mark.parametrize(
    ("text", "function"),
    [
        ("fusedmax", lambda scores: fusedmax(scores, 0.1, 2.0)),
        ("fusedmax:tv=0.3", lambda scores: fusedmax(scores, 0.3, 2.0)),
        ("fusedmax:alpha=1.5", lambda scores: fusedmax(scores, 0.1, 1.5)),
        ("fusedmax:tv=learned", lambda scores: fusedmax(scores, 0.1, 2.0)),
        ("oscarmax", lambda scores: oscarmax(scores, 0.01, 2.0)),
        ("oscarmax:oscar=0.05", lambda scores: oscarmax(scores, 0.05, 2.0)),
        ("entmax:alpha=1.5:oscar=learned:oscar_init=0.2", lambda s: oscarmax(s, 0.2, 1.5)),
        ("entmax:init=1.3:tv=0.2", lambda scores: fusedmax(scores, 0.2, 1.3)),
        ("entmax:init=1.3:tv=learned:tv_init=2", lambda scores: fusedmax(scores, 2.0, 1.3)),
        ("sqpnormmax", lambda scores: sq_pnorm_max(scores, 1.5, 1.0)),
        ("sqpnormmax:p=1.2:gamma=2", lambda scores: sq_pnorm_max(scores, 1.2, 2.0)),
        ("sqpnormmax:p=learned:p_init=1.8", lambda scores: sq_pnorm_max(scores, 1.8, 1.0)),
    ],
)
def test_a_text_builds_the_function_it_names(text, function):
    scores = attention_scores()
    torch.testing.assert_close(build(text)(scores), function(scores), atol=2e-6, rtol=0)


@pytest.mark.parametrize("text", ["entmax:alpha=1.5:tv=0", "entmax:alpha=1.5:oscar=0"])
def test_a_strength_that_is_fixed_at_0_is_entmax_to_the_bit(text):
    scores = attention_scores()
    mapping = build(text)
    assert torch.equal(mapping(scores), entmax(scores, 1.5))
    assert mapping.fused() == FusedEntmax(0.5)
    assert not mapping.needs_words_alone


@pytest.mark.parametrize(
    ("text", "learned", "parameters"),
    [
        ("fusedmax", (), []),
        ("entmax:tv=0.1", ("alpha",), ["alpha_logit"]),
        ("entmax:tv=learned", ("alpha", "tv"), ["alpha_logit", "raw_tv"]),
        ("entmax:oscar=learned", ("alpha", "oscar"), ["alpha_logit", "raw_oscar"]),
        ("entmax:alpha=1.5:tv=learned", ("tv",), ["raw_tv"]),
        ("oscarmax:oscar=learned", ("oscar",), ["raw_oscar"]),
        ("sqpnormmax", (), []),
        ("sqpnormmax:p=learned", ("p",), ["p_logit"]),
    ],
)
def test_only_what_training_changes_is_said_to_be_learned_one_of_each_head(
    text, learned, parameters
):
    mapping = build(text)
    assert mapping.learned == learned
    assert {name: tuple(p.shape) for name, p in mapping.named_parameters()} == dict.fromkeys(
        parameters, (4,)
    )
    shared = build(text, defaults={"share": "layer"})
    assert {p.numel() for p in shared.parameters()} <= {1}
    for name, value in shared.head_values().items():
        assert value.shape == (1,), name


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("fusedmax:tv=0.3", {"alpha": 2.0, "tv": 0.3}),
        ("oscarmax", {"alpha": 2.0, "oscar": 0.01}),
        ("entmax:alpha=1.5:tv=0", {"alpha": 1.5, "tv": 0.0}),
        ("sqpnormmax:gamma=3", {"p": 1.5, "gamma": 3.0}),
        ("entmax:alpha=1.5:tv=learned:tv_init=1e-4", {"alpha": 1.5, "tv": 1e-4}),
        ("entmax:alpha=1.5:tv=learned:tv_init=50", {"alpha": 1.5, "tv": 50.0}),
        ("sqpnormmax:p=learned", {"p": 1.5, "gamma": 1.0}),
    ],
)
def test_the_values_of_heads_are_what_the_text_says(text, values):
    found = {name: value[0].item() for name, value in build(text).head_values().items()}
    assert found == pytest.approx(values, rel=2e-6)


def test_options_say_where_learned_values_start_and_the_text_comes_first():
    defaults = {"tv_init": "0.7", "oscar_init": "0.3", "p_init": "1.2", "share": "layer"}
    assert build("entmax:tv=learned", defaults=defaults).strength.item() == pytest.approx(0.7)
    assert build("oscarmax:oscar=learned", defaults=defaults).strength.item() == pytest.approx(0.3)
    assert build("sqpnormmax:p=learned", defaults=defaults).p.item() == pytest.approx(1.2)
    own = build("entmax:tv=learned:tv_init=0.4:share=none", defaults=defaults)
    assert own.strength.tolist() == pytest.approx([0.4] * 4)
    assert build("fusedmax", defaults=defaults).strength == 0.1


@pytest.mark.parametrize(
    "text", ["entmax:tv=learned", "entmax:oscar=learned", "sqpnormmax:p=learned", "fusedmax"]
)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_half_precision_module_maps_and_learns(text, dtype):
    mapping = build(text).to(dtype)
    scores = attention_scores(dtype=dtype).requires_grad_()
    probs = mapping(scores)
    assert probs.dtype == dtype
    wide = build(text)
    wide.load_state_dict(mapping.state_dict())
    exact = wide(scores.detach().float())
    torch.testing.assert_close(probs.float(), exact, atol=torch.finfo(dtype).eps, rtol=0.01)
    probs.float().square().sum().backward()
    for gradient in (scores.grad, *(parameter.grad for parameter in mapping.parameters())):
        assert gradient.dtype == dtype
        assert gradient.isfinite().all()
        assert gradient.any()


@pytest.mark.parametrize(
    "text",
    [
        *("entmax:tv=learned", "entmax:oscar=learned", "entmax:tv=0.2", "sqpnormmax:p=learned"),
        *("fusedmax", "oscarmax:oscar=learned:share=layer"),
    ],
)
def test_the_heads_kept_keep_their_values_to_the_bit(text):
    scores, mapping = attention_scores(), build(text)
    with torch.no_grad():
        for parameter in mapping.parameters():
            parameter.add_(0.3 * torch.arange(parameter.numel()))
    whole, values = mapping(scores), mapping.head_values()
    mapping.keep_heads([3, 1])
    for name, value in mapping.head_values().items():
        assert torch.equal(value, values[name][[3, 1]] if len(value) == 2 else values[name])
    # Torch's own operations iterate as long as any row needs it
    torch.testing.assert_close(mapping(scores[:, [3, 1]]), whole[:, [3, 1]], atol=1e-6, rtol=0)


@pytest.mark.parametrize(
    ("text", "kind", "epsilon", "strength"),
    [
        ("fusedmax", "tv", 1.0, 0.1),
        ("entmax:alpha=1:oscar=0.2", "oscar", 0.0, 0.2),
        ("sqpnormmax:p=1.25:gamma=2", "pnorm", 0.25, 2.0),
    ],
)
def test_a_kernel_is_told_fixed_parameters_as_numbers(text, kind, epsilon, strength):
    mapping = build(text)
    assert mapping.fused() == Structure(kind, epsilon, strength)
    assert mapping.is_fused_forward()
    assert mapping.needs_words_alone


def test_a_kernel_is_told_learned_parameters_as_one_for_each_head():
    _, epsilon, strength = build("entmax:tv=learned").fused()
    assert (epsilon.shape, strength.shape) == ((4,), (4,))
    _, epsilon, gamma = build("sqpnormmax:p=learned:share=layer").fused()
    assert (epsilon.shape, gamma) == ((1,), 1.0)


def test_a_p_near_1_keeps_its_digits():
    mapping = SqPNormMax("learned", 1)
    with torch.no_grad():
        mapping.p_logit.fill_(-12.0)
    assert mapping.fused().epsilon.item() == pytest.approx(1 / (1 + math.exp(12)), rel=1e-6)


BAD = [
    ("fusedmax:tv=-1", "tv must be a number, 0 or more, not -1.0; or tv=learned"),
    ("entmax:tv=inf", "tv must be a number, 0 or more, not inf; or tv=learned"),
    ("entmax:oscar=x", "oscar must be a number, 0 or more, not 'x'; or oscar=learned"),
    ("sqpnormmax:p=3", "p must be a number above 1, and 2 (sparsemax) at the most, not 3.0"),
    ("sqpnormmax:p=1", "p must be a number above 1, and 2 (sparsemax) at the most, not 1.0"),
    ("sqpnormmax:gamma=0", "gamma must be a number above 0, not 0.0"),
    ("sqpnormmax:gamma=learned", "gamma must be a number above 0, not 'learned'"),
    ("entmax:tv=0.1:oscar=0.2", "tv=0.1 and oscar=0.2 are two penalties"),
    ("fusedmax:tv_init=0.2", "tv_init is for a value of tv that is learned, and tv=0.1 is fixed"),
    ("entmax:oscar_init=0.2", "oscar_init is for oscar=learned: write both, or neither"),
    ("sqpnormmax:p_init=1.2", "p_init is for a value of p that is learned, and p=1.5 is fixed"),
    ("fusedmax:tv=learned:tv_init=0", "tv_init must be a number above 0, not 0.0"),
    ("sqpnormmax:p=learned:p_init=2", "p_init must lie strictly between 1 and 2, not be 2.0"),
    ("fusedmax:share=layer", "share is for what is learned, and alpha=2 and tv=0.1 are fixed"),
    ("sqpnormmax:share=layer", "share is for what is learned, and p=1.5 is fixed"),
]


@pytest.mark.parametrize(("text", "message"), BAD)
def test_a_wrong_value_is_refused_with_what_is_allowed(text, message):
    with pytest.raises(ValueError, match=re.escape(f"mapping {text!r}: {message}")):
        parse_mapping(text)


@pytest.mark.parametrize(
    ("text", "allowed"),
    [
        ("oscarmax:tv=0.1", "oscarmax:alpha=VALUE, oscarmax:oscar=VALUE"),
        ("fusedmax:oscar=0.1", "fusedmax:alpha=VALUE, fusedmax:tv=VALUE"),
        ("sqpnormmax:alpha=1.5", "sqpnormmax:p=VALUE, sqpnormmax:p_init=VALUE"),
    ],
)
def test_a_parameter_of_another_mapping_is_refused_with_those_allowed(text, allowed):
    name, _, part = text.partition(":")
    message = f"unknown parameter {part!r} of mapping {name!r}; allowed: {allowed}"
    with pytest.raises(ValueError, match=re.escape(message)):
        parse_mapping(text)


def test_modules_refuse_what_their_text_does():
    with pytest.raises(ValueError, match="two penalties"):
        Entmax(alpha=2, tv=0.1, oscar=0.1)
    with pytest.raises(ValueError, match=r"tv must be a number, 0 or more, not -1\.0"):
        Entmax(alpha=2, tv=-1)
    with pytest.raises(ValueError, match="num_alphas must be at least 1, not 0"):
        Entmax(alpha=2, num_alphas=0, tv="learned")
    with pytest.raises(ValueError, match="num_ps must be at least 1, not 0"):
        SqPNormMax("learned", 0)


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        ("fusedmax", "Entmax(alpha=2.0, tv=0.1)"),
        ("entmax:tv=learned", "Entmax(alpha and tv learned, 8 values)"),
        ("sqpnormmax", "SqPNormMax(p=1.5, gamma=1.0)"),
        ("sqpnormmax:p=learned", "SqPNormMax(p learned, 4 values, gamma=1.0)"),
    ],
)
def test_printing_a_module_says_its_values(text, printed):
    assert repr(build(text)) == printed
