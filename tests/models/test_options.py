"""The options of models: what each one changes in a model, and which values are refused."""

from argparse import Namespace

import pytest
import torch
from fairseq import models
from omegaconf import OmegaConf

from fairseq_entmax.attention import attention_modules
from fairseq_entmax.head_names import Head
from fairseq_entmax.mappings import Mapping, register_mapping, registry
from fairseq_entmax.models import EntmaxTransformerModel
from fairseq_entmax.models.config import FEATURES
from fairseq_entmax.models.features.attention_heads import MAPPING_OPTIONS
from fairseq_entmax.pruning import prune_state
from tests.pruning.test_surgery import state_of
from tests.support import build_model, tiny_task


def fixed_alphas(model):
    found = {}
    for attention, _, module in attention_modules(model):
        found.setdefault(attention, []).append(module.mapping.fixed_alpha)
    return found


def num_learned(model):
    return sum(p.numel() for name, p in model.named_parameters() if ".mapping." in name)


SOFTMAX, ALL_THREE = [1.0] * 2, [1.0, 1.5, 2.0]
THREE = {"encoder_layers": 3, "decoder_layers": 3, "encoder_layers_to_keep": "0,2"}


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (
            {
                "attn_mapping": "softmax",
                "encoder_self_attn_mapping": "sparsemax,entmax:alpha=1.33",
                "cross_attn_mapping": "entmax15",
            },
            ([2.0, 1.33], SOFTMAX, [1.5] * 2),
        ),
        # A YAML file may have a list of texts
        ({"attn_mapping": ["softmax", "sparsemax"]}, ([1.0, 2.0],) * 3),
        (
            {"attn_mapping": "sparsemax*2,softmax", "encoder_layers": 3, "decoder_layers": 3},
            ([2.0, 2.0, 1.0],) * 3,
        ),
        # Dropped layers take their mappings along
        (
            {"attn_mapping": "softmax,entmax15,sparsemax", **THREE},
            ([1.0, 2.0], ALL_THREE, ALL_THREE),
        ),
        ({}, ([None] * 2,) * 3),  # learned
        ({"attn_mapping": "softmax", "no_cross_attention": True}, (SOFTMAX, SOFTMAX)),
        # LayerDrop hides no layer
        (
            {"attn_mapping": "softmax", "encoder_layerdrop": 0.9, "decoder_layerdrop": 0.9},
            (SOFTMAX,) * 3,
        ),
    ],
)
def test_each_layer_gets_the_mapping_of_its_option(options, expected):
    names = ("encoder-self", "decoder-self", "cross")
    model = build_model(**options).train()
    assert fixed_alphas(model) == dict(zip(names, expected, strict=False))


@pytest.mark.parametrize(
    ("share", "expected"), [("none", 24), ("layer", 6), ("attention", 3), ("model", 1)]
)
def test_sharing_gives_the_expected_number_of_parameters_and_survives_saving(share, expected):
    saved = build_model(share_alpha=share, seed=1)
    loaded = build_model(share_alpha=share, seed=2)
    first = [model.encoder.layers[0].self_attn.mapping.alpha for model in (saved, loaded)]
    assert (first[0] != first[1]).all()  # the seed draws them
    loaded.load_state_dict(saved.state_dict())
    for (_, _, one), (_, _, other) in zip(*map(attention_modules, (saved, loaded)), strict=True):
        assert torch.equal(one.mapping.alpha, other.mapping.alpha)
    assert num_learned(loaded) == num_learned(saved) == expected
    logits = torch.cat([module.mapping.alpha_logit for _, _, module in attention_modules(saved)])
    assert logits.unique().numel() == expected
    both = build_model(attn_mapping="entmax:tv=learned", share_alpha=share)
    assert num_learned(both) == 2 * expected


def test_options_set_all_initial_values():
    starts = {"alpha_init": "1.25", "tv_init": "0.7", "oscar_init": 0.3, "p_init": "1.2"}
    own = {"cross_attn_mapping": "sqpnormmax:p=learned", "decoder_self_attn_mapping": "fusedmax"}
    texts = ["entmax:tv=learned", "oscarmax:oscar=learned"]
    model = build_model(encoder_self_attn_mapping=texts, **own, **starts)
    values = {
        (attention, layer): module.mapping.head_values()
        for attention, layer, module in attention_modules(model)
    }
    assert values["encoder-self", 0]["alpha"].tolist() == pytest.approx([1.25] * 4)
    assert values["encoder-self", 0]["tv"].tolist() == pytest.approx([0.7] * 4)
    assert values["encoder-self", 1]["oscar"].tolist() == pytest.approx([0.3] * 4)
    assert values["decoder-self", 0]["tv"].tolist() == [0.1]
    assert values["cross", 1]["p"].tolist() == pytest.approx([1.2] * 4)


def test_each_head_of_a_layer_gets_its_mapping():
    text = "(sparsemax|entmax*3),softmax"
    options = {"attn_mapping": text, "cross_attn_mapping": "fusedmax|softmax*3"}
    model = build_model(**options, cross_attn_heads="4,0")  # a layer without heads needs no mapping
    alphas = {
        (attention, layer): module.mapping and module.mapping.head_values()["alpha"].tolist()
        for attention, layer, module in attention_modules(model)
    }
    assert [alpha < 2 for alpha in alphas["encoder-self", 0]] == [False, True, True, True]
    assert alphas["decoder-self", 1] == [1.0]
    assert alphas["cross", 0] == [2.0, 1.0, 1.0, 1.0]
    assert alphas["cross", 1] is None
    smaller = build_model(attn_mapping="softmax,sparsemax|softmax*3,softmax|sparsemax*3", **THREE)
    specs = smaller.attention_options.specs["encoder-self"]
    assert list(map(str, specs)) == ["softmax", "softmax|sparsemax*3"]
    # fairseq forgets which layers it kept once it has loaded their weights
    recorded = smaller.attention_options.features["attention"].recorded_options()
    again = build_model(decoder_layers=3, **recorded)
    assert again.attention_options.specs["encoder-self"] == specs


@pytest.mark.parametrize("listed", ["0,2", [0, 2]])  # as fairseq's arguments give it
def test_layers_to_keep_are_selected_from_a_whole_but_not_a_reduced_checkpoint(listed):
    # fairseq wants both options: it keeps no layer of a side that is not named
    remaining_layers = {"encoder_layers_to_keep": "0,2", "decoder_layers_to_keep": "0,1"}
    settings = Namespace(arch="entmax_transformer", encoder_layers=3, **remaining_layers)
    options = {"encoder_layers": 3, **remaining_layers, "encoder_layers_to_keep": listed}
    whole = build_model(encoder_layers=3, seed=1).state_dict()
    smaller = build_model(**options, seed=2)
    smaller.load_state_dict(dict(whole), model_cfg=settings)
    weights = smaller.state_dict()
    assert torch.equal(weights["encoder.layers.1.fc1.weight"], whole["encoder.layers.2.fc1.weight"])
    again = build_model(**options, seed=3)
    again.load_state_dict(dict(weights), model_cfg=settings)
    name = "encoder.layers.1.fc1.weight"
    assert torch.equal(again.state_dict()[name], weights[name])


class Summed(Mapping):
    """A mapping with one parameter per head in a submodule, shared by the whole model."""

    share = "model"

    def __init__(self, heads):
        super().__init__()
        self.inner = torch.nn.Module()
        self.inner.weight = torch.nn.Parameter(torch.rand(heads))

    @classmethod
    def from_text(cls, parameters, num_heads, generator):
        return cls(num_heads)

    def forward(self, scores):
        return scores.softmax(-1)


def test_a_custom_mapping_shares_its_parameters_and_refuses_pruning(monkeypatch):
    monkeypatch.setattr(registry, "MAPPINGS", dict(registry.MAPPINGS))
    register_mapping("summed", Summed)
    model = build_model(attn_mapping="summed")
    weights = {id(module.mapping.inner.weight) for _, _, module in attention_modules(model)}
    assert len(weights) == 1
    state = state_of(model, attn_mapping="summed")
    with pytest.raises(ValueError, match="summed cannot be pruned to 3 heads: keep_heads of Summ"):
        prune_state(state, "some.pt", {Head("cross", 0, 1)})


GATED = {"head_gates": "encoder-self,cross"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"attn_mapping": "softmax*3"}, r"--attn-mapping .*lists 3 layers, but the model has 2"),
        (
            {"cross_attn_mapping": "softmax*3"},
            r"--cross-attn-mapping \(cross attention\).*3 layers",
        ),
        ({"attn_mapping": "hardmax"}, r"--attn-mapping: .*'hardmax'.*softmax, sparsemax, entmax15"),
        ({"attn_mapping": "hardmax", **dict.fromkeys(MAPPING_OPTIONS.values(), "entmax")}, "hardm"),
        ({"attn_mapping": "entmax:alpha=2.5"}, r"--attn-mapping: .*from 1 .*to 2 .*not 2.5"),
        ({"attn_mapping": 3}, r"--attn-mapping: .*must be a text such as 'entmax', not 3"),
        (
            {"attn_mapping": "sparsemax|softmax*9"},
            r"--attn-mapping \(encoder-self attention, layer 0\): .* 10 heads, but the layer has 4",
        ),
        (
            {"cross_attn_mapping": "softmax,sparsemax|softmax*3", "cross_attn_heads": "4,3"},
            r"--cross-attn-mapping \(cross attention, layer 1\): .*lists 4 heads, but the layer has",
        ),
        (
            {"attn_mapping": "entmax|softmax*3", "share_alpha": "model"},
            r"--attn-mapping .*per-head mapping 'entmax' shares .*with the whole model",
        ),
        ({"attn_mapping": "fusedmax:tv=-1"}, r"--attn-mapping.*: tv must be a number from 0 to"),
        ({"share_alpha": "all"}, r"--share-alpha: .*none, layer, attention, model, not 'all'"),
        ({"freeze_decoder": 1}, r"--freeze-decoder: must be true or false, not 1"),
        ({"adaptive_softmax_cutoff": "__import__('os').abort()"}, r"is not a plain value"),
        ({"encoder_xformers_att_config": "__import__('os').abort()"}, r"--encoder-xformers-att"),
        ({"encoder_self_attn_heads": "4,4,4"}, r"3 numbers of heads for 2 layers, in '4,4,4'"),
        ({"encoder_layers": 0, "encoder_self_attn_heads": "4,4"}, r"2 numbers of heads for 0 lay"),
        ({"cross_attn_heads": "5"}, r"--cross-attn-heads: .*room for at most 4 heads, .*not 5"),
        ({"decoder_self_attn_heads": "3,-1"}, r"whole numbers of 0 or more, .*3,0,8, not '3,-1'"),
        ({"cross_attn_heads": "2,"}, r"--cross-attn-heads: .*not '2,'"),
        ({"cross_attn_heads": []}, r"--cross-attn-heads: .*not \[\]"),
        ({"head_gates": "self"}, r"unknown attention 'self'; allowed: encoder-self, decoder-self"),
        ({"head_gates": "cross,cross"}, r"--head-gates: .*named twice in 'cross,cross'"),
        ({**GATED, "cross_attn_heads": 0}, r"--head-gates: cross attention has no heads to put ga"),
        ({**GATED, "no_cross_attention": True}, r"--head-gates: --no-cross-attention leaves no cr"),
        ({**GATED, "decoder_layerdrop": 0.2}, r"--head-gates: --decoder-layerdrop 0.2 skips lay"),
        ({**GATED, "freeze_decoder": True}, r"--freeze-decoder .*only encoder-self can have gate"),
        ({**GATED, "gate": "l1"}, r"--gate: unknown gate 'l1'; allowed: hard-concrete, su"),
        ({**GATED, "gate": "subset", "checkpoint_activations": True}, "--checkpoint-activations"),
    ],
)
def test_a_wrong_option_is_named_with_its_value_and_what_is_allowed(options, message):
    with pytest.raises(ValueError, match=message):
        build_model(**options)


NEVER = ("nan", "inf", "-inf", "1e39", "1e300", "often")
OUT_OF_RANGE = {
    "alpha_init": ("1", "2", "0.5", *NEVER),
    "tv_init": ("0", "-1", *NEVER),
    "oscar_init": ("0", "-1", *NEVER),
    "p_init": ("1", "2", *NEVER),
    "alpha_lr_factor": ("0", "20000", "1e-4", True, *NEVER),
    "alpha_log_interval": ("-1", "1.5", "10000000000", "9" * 400, *NEVER),
    "output_alpha": ("0.9", "2.1", *NEVER),
    "gate_temperature": ("0", "0.009", "1", "-0.1", "1e-320", *NEVER),
    "gate_stretch": ("0.1,1.1", "-0.1,1.0000001", "-0.009,1.1", "-0.1,nan", ",", "20", *NEVER),
    "gate_init": ("11", "-10.5", *NEVER),
    "gate_lr_factor": ("0", "-3", "20000", "1e-4", "1e-320", *NEVER),
}
IN_RANGE = {
    "alpha_init": ("normal", "1.01", 1.99),
    "alpha_lr_factor": ("0.001", 10000),
    "alpha_log_interval": (0, "100000"),
    "output_alpha": (1, "2"),
    "gate_temperature": ("0.05", 0.9),
    "gate_stretch": ("-0.05,1.5", "1", 0.01, [-0.2, 1.2]),
    "gate_init": ("-3", 8),
    "gate_lr_factor": (1, "200"),
}


def read_all(**options):
    for feature in FEATURES:
        feature.read(Namespace(**options))


@pytest.mark.parametrize("option", OUT_OF_RANGE)
def test_a_number_out_of_range_is_refused_under_its_option(option):
    for value in OUT_OF_RANGE[option]:
        with pytest.raises(ValueError, match=f"^--{option.replace('_', '-')}: ") as refusal:
            read_all(**{option: value})
        assert str(value)[:20] in str(refusal.value) or repr(float(value)) in str(refusal.value)
        assert len(str(refusal.value)) < 1000
    for value in IN_RANGE.get(option, ()):
        read_all(**{option: value})


def test_a_structured_yaml_file_gives_the_model_of_a_flat_one():
    sizes = {"layers": 1, "embed_dim": 8, "attention_heads": 2, "ffn_embed_dim": 4}
    cfg = OmegaConf.create({"_name": "entmax_transformer", "encoder": sizes, "decoder": sizes})
    flat = {f"{side}_{name}": x for side in ("encoder", "decoder") for name, x in sizes.items()}
    found = models.build_model(cfg, tiny_task()).state_dict()
    expected = build_model(**flat, decoder_output_dim=8, decoder_input_dim=8).state_dict()
    assert {k: v.shape for k, v in found.items()} == {k: v.shape for k, v in expected.items()}
    with pytest.raises(ValueError, match=r"decoder_layer is not .*: did you mean decoder_layers\?"):
        models.build_model(OmegaConf.create({**cfg, "decoder_layer": 1}), tiny_task())


MISSPELT = ("attn_maping", "tv_initial", "head_gate", "self_attn_heads")
OF_CRITERIONS = ("l0_weight", "target_heads", "decide_heads_at", "loss_alpha")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        *((name, "an option.*attn_mapping") for name in MISSPELT),
        *((name, r".* criterion belong to criterion\.") for name in OF_CRITERIONS),
        ("loss_alpha_warmup_update", r".* did you mean loss_alpha_warmup_updates\?"),
    ],
)
def test_what_is_no_option_of_the_model_is_refused_in_its_part_of_a_yaml_file(name, message):
    cfg = OmegaConf.create({"_name": "entmax_transformer", name: "softmax"})
    with pytest.raises(ValueError, match=rf"model\.{name} is not {message}"):
        EntmaxTransformerModel.build_model(cfg, tiny_task())
