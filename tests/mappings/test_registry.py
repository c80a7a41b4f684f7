"""The text form of one mapping, and every way to get it wrong."""

import re

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fairseq_entmax.mappings import (
    MAPPINGS,
    Entmax,
    Mapping,
    MappingSpec,
    parse_mapping,
    register_mapping,
    registry,
)


@pytest.mark.parametrize(
    ("text", "alpha"),
    [
        ("softmax", 1.0),
        ("sparsemax", 2.0),
        ("entmax15", 1.5),
        ("entmax:alpha=1.33", 1.33),
        ("entmax:alpha=1", 1.0),
        ("entmax:alpha=2.0", 2.0),
        ("entmax:alpha=1.5e0", 1.5),
    ],
)
def test_a_text_builds_the_mapping_it_names(text, alpha):
    mapping = parse_mapping(text).build(num_heads=8)
    assert type(mapping) is Entmax
    assert mapping.alpha == alpha
    assert list(mapping.parameters()) == []


@pytest.mark.parametrize("count", [1, 8])
def test_entmax_without_an_alpha_learns_as_many_as_asked_for(count):
    mapping = parse_mapping("entmax:init=1.25").build(num_heads=count)
    assert type(mapping) is Entmax
    assert mapping.alpha.tolist() == pytest.approx([1.25] * count, abs=2e-7)


def test_entmax_starts_from_a_normal_draw_by_default():
    logits = parse_mapping("entmax").build(num_heads=64).alpha_logit
    assert logits.unique().numel() == 64


def test_build_hands_on_the_generator():
    starts = [
        parse_mapping("entmax").build(8, generator=torch.Generator().manual_seed(3)).alpha_logit
        for _ in range(2)
    ]
    assert starts[0].tolist() == starts[1].tolist()


def test_a_bad_start_of_a_learned_alpha_is_refused_by_build():
    with pytest.raises(ValueError, match=r"init .* strictly between 1 and 2, not 'middle'"):
        parse_mapping("entmax").build(defaults={"init": "middle"})


def test_a_default_holds_where_the_text_says_nothing_and_the_mapping_takes_it():
    defaults = {"init": "1.25", "share": "layer", "strength": "3"}
    mapping = parse_mapping("entmax").build(4, defaults=defaults)
    assert mapping.alpha.tolist() == pytest.approx([1.25], abs=2e-7)
    mapping = parse_mapping("entmax:init=1.75:share=none").build(4, defaults=defaults)
    assert mapping.alpha.tolist() == pytest.approx([1.75] * 4, abs=2e-7)
    assert parse_mapping("softmax").build(4, defaults=defaults).alpha == 1.0


@pytest.mark.parametrize("share", ["layer", "attention", "model"])
def test_a_mapping_that_heads_share_learns_one_alpha(share):
    mapping = parse_mapping(f"entmax:share={share}").build(8)
    assert (mapping.alpha.numel(), mapping.share) == (1, share)


def test_an_unknown_way_to_share_is_refused():
    with pytest.raises(ValueError, match=r"share must be one of none, layer, .*, not 'heads'"):
        parse_mapping("entmax:share=heads")


class Halved(Mapping):
    def forward(self, scores):
        return scores.softmax(-1) / 2


def test_a_registered_mapping_is_built_by_its_name(monkeypatch):
    monkeypatch.setattr(registry, "MAPPINGS", dict(MAPPINGS))
    register_mapping("halved", Halved)
    mapping = parse_mapping("halved").build(2)
    assert type(mapping) is Halved
    assert (mapping.head_values(), mapping.learned, mapping.fused()) == ({}, (), None)


class PerHead(Halved):
    text_parameters = ("starts",)

    @classmethod
    def check_text(cls, parameters):
        parameters["starts"].split("/")

    @classmethod
    def from_text(cls, parameters, num_heads, generator):
        if len(parameters["starts"].split("/")) != num_heads:
            raise ValueError("one for each head")
        return cls()


def test_a_text_with_a_value_for_each_head_is_checked_when_their_number_is_known(monkeypatch):
    monkeypatch.setattr(registry, "MAPPINGS", dict(MAPPINGS))
    register_mapping("perhead", PerHead)
    spec = parse_mapping("perhead:starts=1/2/3")
    assert type(spec.build(3)) is PerHead
    with pytest.raises(ValueError, match="one for each head"):
        spec.build(2)


@pytest.mark.parametrize(("name", "shape"), [("strength", (3, 1, 1)), ("two words", (3,))])
def test_head_values_of_another_shape_or_without_a_word_as_their_name_are_refused(
    name, shape, monkeypatch
):
    monkeypatch.setattr(registry, "MAPPINGS", dict(MAPPINGS))

    class Valued(Halved):
        def head_values(self):
            return {name: torch.ones(shape)}

    register_mapping("valued", Valued)
    message = (
        f"head_values of Valued .* each of 3 heads, .*not {re.escape(str(shape))} under '{name}'"
    )
    with pytest.raises(ValueError, match=message):
        parse_mapping("valued").build(3)


def test_parameters_whose_tuple_has_lost_its_comma_are_refused():
    class Started(Halved):
        text_parameters = "start"

    with pytest.raises(ValueError, match=r"Started must be a tuple of names, such as \('start',\)"):
        register_mapping("started", Started)


@pytest.mark.parametrize("name", ["softmax", "two words", "a,b", "a:b", "3", ""])
def test_a_name_that_is_in_use_or_not_to_be_told_from_other_text_is_refused(name):
    with pytest.raises(ValueError, match=re.escape(f"cannot be named {name!r}")):
        register_mapping(name, Halved)


@pytest.mark.parametrize(
    "name",
    ["softmax", "sparsemax", "entmax15", "entmax", "fusedmax", "oscarmax", "sqpnormmax"],
)
def test_every_documented_name_is_registered(name):
    assert name in MAPPINGS
    assert parse_mapping(name) == MappingSpec(name)


@pytest.mark.parametrize(
    "text",
    [
        *("softmax", "sparsemax", "entmax15", "entmax", "entmax:alpha=1.33", "entmax:alpha=2"),
        *("fusedmax:tv=0.3", "entmax:alpha=1.5:tv=learned", "sqpnormmax:p=learned:gamma=2"),
    ],
)
def test_a_mapping_prints_as_the_text_it_was_read_from(text):
    spec = parse_mapping(text)
    assert str(spec) == text
    assert parse_mapping(str(spec)) == spec


@settings(derandomize=True, deadline=None, max_examples=60, database=None)
@given(st.floats(1.0, 2.0))
def test_every_alpha_survives_the_round_trip_through_text(alpha):
    spec = parse_mapping(f"entmax:alpha={alpha!r}")
    assert parse_mapping(str(spec)).build().alpha == alpha


@pytest.mark.parametrize(
    "text",
    [" entmax:alpha=1.33", "entmax:alpha=1.33\n", "entmax : alpha=1.33", "entmax: alpha = 1.33 "],
)
def test_spaces_around_the_parts_mean_nothing(text):
    assert str(parse_mapping(text)) == "entmax:alpha=1.33"


def test_reading_a_text_leaves_torchs_random_state_untouched():
    before = torch.get_rng_state()
    parse_mapping("entmax:tv=learned")
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("text", ["softmx", "", "Softmax", "entmax 15", "1.5", "alpha=1.5"])
def test_an_unknown_name_is_refused_with_the_names_allowed(text):
    message = rf"unknown mapping {re.escape(repr(text))}.*softmax, sparsemax, entmax15, entmax"
    with pytest.raises(ValueError, match=message):
        parse_mapping(text)


ENTMAX = ", ".join(
    f"entmax:{name}=VALUE"
    for name in ("alpha", "init", "share", "lr_factor", "tv", "tv_init", "oscar", "oscar_init")
)


@pytest.mark.parametrize(
    ("text", "part", "name", "allowed"),
    [
        ("entmax:beta=1.5", "beta=1.5", "entmax", ENTMAX),
        ("entmax:1.5", "1.5", "entmax", ENTMAX),
        ("entmax:alpha", "alpha", "entmax", ENTMAX),
        ("entmax:", "", "entmax", ENTMAX),
        ("entmax:=1.5", "=1.5", "entmax", ENTMAX),
        ("entmax:alpha=1.5:gamma=2", "gamma=2", "entmax", ENTMAX),
        ("softmax:alpha=1.5", "alpha=1.5", "softmax", "none"),
        ("entmax15:alpha=1.5", "alpha=1.5", "entmax15", "none"),
        ("sparsemax:", "", "sparsemax", "none"),
    ],
)
def test_an_unknown_parameter_is_refused_with_those_allowed(text, part, name, allowed):
    message = f"unknown parameter {part!r} of mapping {name!r}; allowed: {allowed}"
    with pytest.raises(ValueError, match=re.escape(message) + "$"):
        parse_mapping(text)


def test_a_parameter_given_twice_is_refused():
    text = "entmax:alpha=1.5:alpha=1.6"
    with pytest.raises(ValueError, match=f"parameter 'alpha' of mapping 'entmax'.*twice.*{text}"):
        parse_mapping(text)


@pytest.mark.parametrize("value", ["0.5", "2.01", "-1", "nan", "inf", "1e9"])
def test_an_alpha_out_of_range_is_refused_with_the_range(value):
    message = rf"'entmax:alpha={value}': alpha must be from 1 .* to 2 .*, not {float(value)}"
    with pytest.raises(ValueError, match=message):
        parse_mapping(f"entmax:alpha={value}")


@pytest.mark.parametrize("value", ["", "x", "1,5", "1.5=2", "None", "normal"])
def test_an_alpha_that_is_no_number_is_refused_with_the_range(value):
    message = rf"'entmax:alpha={value}': alpha must be a number from 1 .* to 2 .*, not '{value}'"
    with pytest.raises(ValueError, match=message):
        parse_mapping(f"entmax:alpha={value}")
