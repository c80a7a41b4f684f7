"""Mappings, layers and heads as text: what it builds, how it is printed, and every error."""

import re

import pytest
import torch

from fairseq_entmax.mappings import (
    MAPPINGS,
    Entmax,
    Mapping,
    PerHeadMapping,
    PerHeadSpec,
    parse_layers,
    parse_mapping,
    parse_mappings,
    register_mapping,
    registry,
)
from fairseq_entmax.mappings.layers import layers_text

NAMES = ["softmax", "sparsemax", "entmax15", "entmax", "fusedmax", "oscarmax", "sqpnormmax"]
PER_HEAD = "sparsemax|softmax*7"


def names(specs):
    return [str(spec) for spec in specs]


# -- one mapping --------------------------------------------------------------------------------


def test_values_are_those_of_the_text_or_the_default():
    defaults = {"init": 1.25, "share": "layer", "strength": 3}
    mapping = parse_mapping("entmax").build(4, defaults=defaults)
    assert mapping.alpha.tolist() == pytest.approx([1.25], abs=2e-7)
    spec = parse_mapping("entmax:init=1.75:share=none")
    assert spec.values == {"init": 1.75, "share": "none"}
    assert spec.build(4, defaults=defaults).alpha.tolist() == pytest.approx([1.75] * 4, abs=2e-7)
    for share in ("layer", "attention", "model"):
        mapping = parse_mapping(f"entmax:share={share}").build(8)
        assert (mapping.alpha.numel(), mapping.share) == (1, share)
    assert parse_mapping("sparsemax:warmup=5").build(4, defaults={"warmup": 9}).rise.length == 5


@pytest.mark.parametrize(
    "text",
    [
        *NAMES,
        *("entmax:alpha=1.33", "fusedmax:tv=0.3", "entmax:alpha=1.5:tv=learned"),
        *("sqpnormmax:p=learned:gamma=2", "entmax:lr_factor=10", "sparsemax:warmup=5"),
    ],
)
def test_a_mapping_prints_as_its_text(text):
    spec = parse_mapping(text)
    assert str(spec) == text
    assert spec.name in MAPPINGS
    assert parse_mapping(str(spec)) == spec == spec.keep_heads([1])


# A wrong text, followed by the parts of its message
WRONG = [
    *((text, f"unknown mapping {text!r}", NAMES[0], NAMES[6]) for text in ("softmx", "")),
    ("entmax:beta=1.5", "unknown parameter 'beta=1.5' of mapping 'entmax'; allowed: entmax:alpha="),
    ("entmax:", "unknown parameter '' of mapping 'entmax'"),
    (
        "softmax:alpha=1.5",
        "unknown parameter 'alpha=1.5' of mapping 'softmax'; allowed: softmax:share=",
    ),
    ("softmax:warmup=5", "unknown parameter 'warmup=5' of mapping 'softmax'"),
    ("oscarmax:tv=0.1", "allowed: oscarmax:alpha=VALUE, oscarmax:oscar=VALUE"),
    ("entmax:alpha=1.5:alpha=1.6", "parameter 'alpha' of mapping 'entmax' is given twice"),
    *(
        (f"entmax:alpha={value}", f"mapping 'entmax:alpha={value}': alpha must be from 1 ", value)
        for value in ("0.5", "2.01", "nan", "x", "1.5=2")
    ),
    ("entmax:init=x", ": init must be 'normal' or a number strictly between 1 and 2", "not 'x'"),
    ("entmax:share=heads", "share must be one of none, layer, attention, model, not 'heads'"),
    ("fusedmax:tv=-1", "mapping 'fusedmax:tv=-1': tv must be a number from 0 to 1e", "tv=learned"),
    ("entmax:oscar=x", "oscar must be a number from 0 to 1e30", "not 'x'; or oscar=learned"),
    ("sqpnormmax:p=3", "p must be a number above 1, up to 2 (sparsemax), not 3.0"),
    ("sqpnormmax:gamma=0", "gamma must be a number above 0", "not 0.0"),
    ("entmax:tv=0.1:oscar=0.2", "tv=0.1 and oscar=0.2: leave one out, as a mapping"),
    ("entmax:alpha=1.5:init=1.2", "init needs a learned alpha, but alpha=1.5 is fixed"),
    ("fusedmax:tv_init=0.2", "tv_init needs a learned tv, but tv=0.1 is fixed"),
    ("entmax:oscar_init=0.2", "oscar_init needs oscar=learned: write both, or neither"),
    ("fusedmax:tv=learned:tv_init=0", "tv_init must be a number above 0, up to 1e", ", not 0.0"),
    (
        "sqpnormmax:p=learned:p_init=2",
        "p_init must be strictly between 1 and 2 (a learned p that starts at 1 or 2 never",
        "not 2.0",
    ),
    ("fusedmax:share=layer", "share needs a learned number, but alpha=2 and tv=0.1 are fixed"),
    ("sparsemax:temperature=0", "temperature must be a number above 0", "temperature=learned"),
    ("softmax:temperature_init=2", "temperature_init needs temperature=learned: write both, or"),
    ("entmax:lr_factor=0", "mapping 'entmax:lr_factor=0': lr_factor must be a number above 0"),
    # Lists of layers, and per-head mappings
    *(
        (f"softmax,entmax15*{count}", f"whole number of layers, 1 to 999, not {count!r} in ")
        for count in ("0", "-1", "", "+2", "2*3")
    ),
    *((text, "unknown mapping ''") for text in ("softmax,", ",softmax", "softmax|", "*3")),
    ("sparsemax|softmax*7*2", "must be a whole number of heads, 1 to 999, not '7*2'"),
    ("softmax*999|sparsemax", "lists more than 999 heads of one layer"),
    ("(sparsemax|softmax)*0", "must be a whole number of layers, 1 to 999, not '0'"),
    ("(softmax,sparsemax)*2", "one pair of brackets, such as ", "not '(softmax'"),
    ("(softmax|sparsemax)2", "one pair of brackets, such as ", "not '(softmax|sparsemax)2'"),
    ("softmax|entmax:share=model", "per-head mapping 'entmax:share=model' shares"),
]


@pytest.mark.parametrize(("text", "says"), [(text, says) for text, *says in WRONG])
def test_a_wrong_text_is_refused_with_a_clear_message(text, says):
    with pytest.raises(ValueError, match=".*".join(map(re.escape, says))):
        parse_mappings(text)


# -- custom mappings -----------------------------------------------------------------------------


class Halved(Mapping):
    text_parameters = ("starts",)

    @classmethod
    def read_text(cls, parameters):
        return parameters

    @classmethod
    def from_text(cls, parameters, num_heads, generator):
        if "starts" in parameters and len(parameters["starts"].split("/")) != num_heads:
            raise ValueError("one for each head")
        return cls()

    def forward(self, scores):
        return scores.softmax(-1) / 2


@pytest.fixture
def copied_registry(monkeypatch):
    monkeypatch.setattr(registry, "MAPPINGS", dict(MAPPINGS))


@pytest.mark.usefixtures("copied_registry")
def test_a_registered_mapping_is_built_by_name_and_checked_against_the_heads():
    register_mapping("halved", Halved)
    mapping = parse_mapping("halved").build(2)
    assert type(mapping) is Halved
    assert (mapping.head_values(), mapping.learned, mapping.epsilon()) == ({}, (), None)
    spec = parse_mapping("halved:starts=1/2/3")
    assert type(spec.build(3)) is Halved
    with pytest.raises(ValueError, match="one for each head"):
        spec.build(2)


@pytest.mark.usefixtures("copied_registry")
@pytest.mark.parametrize(("name", "shape"), [("strength", (3, 1, 1)), ("two words", (3,))])
def test_head_values_of_a_wrong_shape_or_name_are_refused(name, shape):
    class Valued(Halved):
        def head_values(self):
            return {name: torch.ones(shape)}

    register_mapping("valued", Valued)
    message = f"head_values of Valued .* each of 3 heads, .*not {re.escape(str(shape))} under"
    with pytest.raises(ValueError, match=message):
        parse_mapping("valued").build(3)


@pytest.mark.parametrize("name", ["softmax", "two words", "a:b", "3", ""])
def test_a_name_in_use_or_ambiguous_in_a_text_is_refused(name):
    with pytest.raises(ValueError, match=re.escape(f"cannot be named {name!r}")):
        register_mapping(name, Halved)


# -- layers, and heads of one layer ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "layers"),
    [
        ("softmax", ["softmax"]),
        ("sparsemax*5,softmax", ["sparsemax"] * 5 + ["softmax"]),
        (" entmax:alpha=1.33 * 2,entmax*03", ["entmax:alpha=1.33"] * 2 + ["entmax"] * 3),
        (PER_HEAD, [PER_HEAD]),
        (f"({PER_HEAD})*3,softmax*3", [PER_HEAD] * 3 + ["softmax"] * 3),
        (" ( sparsemax | softmax * 07 ) * 2 , entmax ", [PER_HEAD, PER_HEAD, "entmax"]),
        ("(softmax*8)*2", ["(softmax*8)"] * 2),
        ("(entmax:init=1.2)*2", ["entmax:init=1.2"] * 2),
        ("softmax|softmax", ["(softmax*2)"]),
    ],
)
def test_layers_and_heads_are_read_in_order_and_repeated(text, layers):
    specs = parse_mappings(text)
    assert names(specs) == layers
    assert parse_mappings(layers_text(specs)) == specs


def test_one_mapping_serves_every_layer_and_a_list_needs_one_per_layer():
    for text in ("entmax", f"({PER_HEAD})", PER_HEAD):
        assert parse_layers(text).of_layers(6) == parse_mappings(text) * 6
    five_of_six = parse_layers("sparsemax*5,softmax").of_layers(6)
    assert names(five_of_six) == ["sparsemax"] * 5 + ["softmax"]
    for text, length in (("softmax,entmax", 2), ("softmax*1", 1), (f"({PER_HEAD})*1", 1)):
        message = f"{text!r} lists {length} layers, but the model has 6; give one mapping"
        with pytest.raises(ValueError, match=re.escape(message)):
            parse_layers(text).of_layers(6)


def test_heads_with_the_same_text_share_a_module_but_not_their_alphas():
    (spec,) = parse_mappings("entmax|softmax*2|entmax")
    assert names(spec.heads) == ["entmax", "softmax", "softmax", "entmax"]
    mapping = spec.build(4, torch.Generator().manual_seed(1), {"init": 1.25})
    assert type(mapping) is PerHeadMapping
    assert mapping.part_of == (0, 1, 1, 0)
    assert {name: tuple(p.shape) for name, p in mapping.named_parameters()} == {
        "parts.0.alpha_logit": (2,)
    }
    with pytest.raises(ValueError, match=r"'entmax\|softmax\*2\|entmax' lists 4 heads, .* has 8"):
        spec.build(8)
    assert spec.build(4, defaults={"share": "layer"}).parts[0].alpha.shape == (1,)
    with pytest.raises(ValueError, match=r"per-head mapping 'entmax' shares .* whole attention"):
        spec.build(4, defaults={"share": "attention"})
    (same,) = parse_mappings("(entmax*3)")
    assert type(same.build(3)) is Entmax
    assert same.build(3).alpha.shape == (3,)


@pytest.mark.parametrize(
    ("remaining", "text"),
    [([0, 1], "sparsemax|softmax"), ([2, 0], "softmax|sparsemax"), ([1, 2], "softmax"), ([], None)],
)
def test_the_text_of_the_remaining_heads_names_their_mappings(remaining, text):
    heads = tuple(map(parse_mapping, ["sparsemax", "softmax", "softmax"]))
    assert str(PerHeadSpec(heads).keep_heads(remaining)) == (text or "sparsemax")
