import argparse
from argparse import Namespace

import pytest
import torch
from omegaconf import OmegaConf

from fairseq_entmax.head_names import Head
from fairseq_entmax.mappings import Entmax, Mapping, register_mapping, registry
from fairseq_entmax.models.config import add_arguments
from fairseq_entmax.modules import attention_modules
from fairseq_entmax.pruning import prune_state
from tests.support import TINY, build_model, tiny_task


def mapping_names(model):
    found = {}
    for attention, _, module in attention_modules(model):
        mapping = module.mapping
        name = type(mapping).__name__
        if isinstance(mapping, Entmax) and mapping.fixed_alpha is not None:
            name = f"{name}({mapping.fixed_alpha})"
        found.setdefault(attention, []).append(name)
    return found


def num_alphas(model):
    return sum(p.numel() for n, p in model.named_parameters() if n.endswith("alpha_logit"))


def test_by_default_every_head_of_every_attention_learns_its_alpha():
    model = build_model()
    names = mapping_names(model)
    assert set(names) == {"encoder-self", "decoder-self", "cross"}
    assert all(layers == ["Entmax", "Entmax"] for layers in names.values())
    assert num_alphas(model) == 3 * 2 * 4
    logits = torch.cat([module.mapping.alpha_logit for _, _, module in attention_modules(model)])
    assert logits.unique().numel() == logits.numel()


def test_one_mapping_serves_all_attentions_and_the_special_options_override_it():
    model = build_model(
        attn_mapping="softmax",
        encoder_self_attn_mapping="sparsemax,entmax:alpha=1.33",
        cross_attn_mapping="entmax15",
    )
    assert mapping_names(model) == {
        "encoder-self": ["Entmax(2.0)", "Entmax(1.33)"],
        "decoder-self": ["Entmax(1.0)", "Entmax(1.0)"],
        "cross": ["Entmax(1.5)", "Entmax(1.5)"],
    }


def test_a_list_gives_the_layers_their_mappings_from_the_bottom():
    model = build_model(attn_mapping="sparsemax*2,softmax", encoder_layers=3, decoder_layers=3)
    assert mapping_names(model)["encoder-self"] == ["Entmax(2.0)", "Entmax(2.0)", "Entmax(1.0)"]


def test_a_list_of_texts_as_yaml_has_it_is_a_list_of_layers():
    assert mapping_names(build_model(attn_mapping=["softmax", "sparsemax"]))["cross"] == [
        "Entmax(1.0)",
        "Entmax(2.0)",
    ]


def test_layers_that_are_left_out_leave_their_mappings_with_them():
    model = build_model(
        attn_mapping="softmax,entmax15,sparsemax",
        encoder_layers=3,
        encoder_layers_to_keep="0,2",
        decoder_layers=3,
    )
    assert mapping_names(model) == {
        "encoder-self": ["Entmax(1.0)", "Entmax(2.0)"],
        "decoder-self": ["Entmax(1.0)", "Entmax(1.5)", "Entmax(2.0)"],
        "cross": ["Entmax(1.0)", "Entmax(1.5)", "Entmax(2.0)"],
    }


def test_no_cross_attention_means_no_cross_mapping():
    assert set(mapping_names(build_model(no_cross_attention=True))) == {
        "encoder-self",
        "decoder-self",
    }


@pytest.mark.parametrize(
    ("share", "expected"), [("none", 24), ("layer", 6), ("attention", 3), ("model", 1)]
)
def test_sharing_leaves_as_many_alphas_as_it_says(share, expected):
    assert num_alphas(build_model(share_alpha=share)) == expected


@pytest.mark.parametrize("share", ["none", "layer", "attention", "model"])
def test_a_shared_alpha_survives_saving_and_loading(share):
    saved = build_model(share_alpha=share, seed=1)
    loaded = build_model(share_alpha=share, seed=2)
    loaded.load_state_dict(saved.state_dict())
    for (_, _, one), (_, _, other) in zip(
        attention_modules(saved), attention_modules(loaded), strict=True
    ):
        assert torch.equal(one.mapping.alpha, other.mapping.alpha)
    assert num_alphas(loaded) == num_alphas(saved)


def test_a_number_starts_every_alpha_there():
    model = build_model(alpha_init="1.25")
    for _, _, module in attention_modules(model):
        torch.testing.assert_close(module.mapping.alpha, torch.full((4,), 1.25))


def test_options_start_every_learned_strength_and_p():
    starts = {"tv_init": "0.7", "oscar_init": 0.3, "p_init": "1.2"}
    own = {"cross_attn_mapping": "sqpnormmax:p=learned", "decoder_self_attn_mapping": "fusedmax"}
    texts = ["entmax:tv=learned", "oscarmax:oscar=learned"]
    model = build_model(encoder_self_attn_mapping=texts, **own, **starts)
    values = {
        (attention, layer): module.mapping.head_values()
        for attention, layer, module in attention_modules(model)
    }
    assert values["encoder-self", 0]["tv"].tolist() == pytest.approx([0.7] * 4)
    assert values["encoder-self", 1]["oscar"].tolist() == pytest.approx([0.3] * 4)
    assert values["decoder-self", 0]["tv"].tolist() == [0.1]
    assert values["cross", 1]["p"].tolist() == pytest.approx([1.2] * 4)


@pytest.mark.parametrize(
    ("share", "expected"), [("none", 48), ("layer", 12), ("attention", 6), ("model", 2)]
)
def test_strengths_are_shared_as_far_as_alpha(share, expected):
    model = build_model(attn_mapping="entmax:tv=learned", share_alpha=share)
    assert sum(p.numel() for n, p in model.named_parameters() if ".mapping." in n) == expected


def test_each_head_of_a_layer_gets_its_mapping():
    text = "(sparsemax|entmax*3),softmax"
    model = build_model(attn_mapping=text, cross_attn_mapping="fusedmax|softmax*3")
    alphas = {
        (attention, layer): module.mapping.head_values()["alpha"].tolist()
        for attention, layer, module in attention_modules(model)
    }
    assert [alpha < 2 for alpha in alphas["encoder-self", 0]] == [False, True, True, True]
    assert alphas["decoder-self", 1] == [1.0]
    assert alphas["cross", 0] == alphas["cross", 1] == [2.0, 1.0, 1.0, 1.0]
    assert num_alphas(model) == 6


def test_a_layer_without_heads_has_no_heads_to_name():
    options = {"attn_mapping": "sparsemax|softmax*3", "cross_attn_heads": "4,0"}
    modules = [module.mapping for _, _, module in attention_modules(build_model(**options))]
    assert [mapping is None for mapping in modules] == [False] * 3 + [False] * 2 + [True]


def test_heads_apart_stay_with_the_layers_that_are_kept():
    model = build_model(
        attn_mapping="softmax,sparsemax|softmax*3,softmax|sparsemax*3",
        encoder_layers=3,
        encoder_layers_to_keep="0,2",
        decoder_layers=3,
    )
    specs = model.attention_options.specs
    assert list(map(str, specs["encoder-self"])) == ["softmax", "softmax|sparsemax*3"]
    assert len(specs["cross"]) == 3


@pytest.mark.parametrize("kept", ["0,2", [0, 2]])
def test_the_layers_to_keep_may_be_the_list_that_fairseqs_arguments_make_of_them(kept):
    model = build_model(encoder_layers=3, encoder_layers_to_keep=kept)
    assert len(model.encoder.layers) == 2


def test_the_layers_kept_are_taken_out_of_a_whole_checkpoint_and_not_out_of_one_of_them():
    # fairseq wants both: of the side that is not named it keeps none
    kept_layers = {"encoder_layers_to_keep": "0,2", "decoder_layers_to_keep": "0,1"}
    options = {"encoder_layers": 3, **kept_layers}
    settings = Namespace(arch="entmax_transformer", **options)
    whole = build_model(encoder_layers=3, seed=1).state_dict()
    kept = build_model(**options, seed=2)
    kept.load_state_dict(dict(whole), model_cfg=settings)
    weights = kept.state_dict()
    assert torch.equal(weights["encoder.layers.1.fc1.weight"], whole["encoder.layers.2.fc1.weight"])
    again = build_model(**options, seed=3)
    again.load_state_dict(dict(weights), model_cfg=settings)
    assert torch.equal(
        again.state_dict()["encoder.layers.1.fc1.weight"], weights["encoder.layers.1.fc1.weight"]
    )


@pytest.mark.parametrize("value", ["no", "false", 1])
def test_a_flag_in_a_yaml_file_that_is_no_boolean_is_refused(value):
    with pytest.raises(
        ValueError, match=rf"--freeze-decoder: must be true or false, not {value!r}"
    ):
        build_model(freeze_decoder=value)


@pytest.fixture
def summed(monkeypatch):
    """A mapping whose parameter, in a module of its own, is one for each head, shared in a model."""
    monkeypatch.setattr(registry, "MAPPINGS", dict(registry.MAPPINGS))

    class Summed(Mapping):
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

    register_mapping("summed", Summed)


def test_sharing_reaches_the_parameters_of_inner_modules(summed):
    model = build_model(attn_mapping="summed")
    weights = {id(module.mapping.inner.weight) for _, _, module in attention_modules(model)}
    assert len(weights) == 1


def test_sharing_between_attentions_of_other_numbers_of_heads_is_refused(summed):
    with pytest.raises(ValueError, match=r"Summed cannot share its inner.weight .*\(4,\).*\(3,\)"):
        build_model(attn_mapping="summed", encoder_self_attn_heads="4,3")


def test_what_cannot_be_pruned_is_refused_and_not_written(summed):
    model = build_model(attn_mapping="summed")
    args = Namespace(**{**TINY, "arch": "entmax_transformer", "attn_mapping": "summed"})
    state = {"cfg": {"model": args}, "args": None, "model": model.state_dict()}
    with pytest.raises(
        ValueError, match=r"summed cannot be pruned to 3 heads: keep_heads of Summed"
    ):
        prune_state(state, "some.pt", {Head("cross", 0, 1)})


def test_layerdrop_hides_no_layer_from_the_alphas():
    model = build_model(encoder_layerdrop=0.9, decoder_layerdrop=0.9).train()
    assert {name: len(layers) for name, layers in mapping_names(model).items()} == {
        "encoder-self": 2,
        "decoder-self": 2,
        "cross": 2,
    }


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"attn_mapping": "softmax*3"}, r"--attn-mapping .*names 3 layers, the model has 2"),
        (
            {"cross_attn_mapping": "softmax,entmax,entmax"},
            r"--cross-attn-mapping \(cross attention\).*names 3 layers, the model has 2",
        ),
        ({"attn_mapping": "hardmax"}, r"--attn-mapping .*'hardmax'.*softmax, sparsemax, entmax15"),
        ({"attn_mapping": "entmax:alpha=2.5"}, r"--attn-mapping .*from 1 .*to 2 .*not 2.5"),
        ({"attn_mapping": 3}, r"--attn-mapping .*must be a text such as 'entmax', not 3"),
        (
            {"head_gates": "cross,encoder-self", "decoder_layerdrop": 0.2},
            r"--head-gates: --decoder-layerdrop 0.2 leaves layers.*leave it out",
        ),
        (
            {"attn_mapping": "sparsemax|softmax*9"},
            r"--attn-mapping \(encoder-self attention, layer 0\): 'sparsemax\|softmax\*9' names 10 "
            r"heads, the layer has 4; give one mapping for all heads, or one for each",
        ),
        (
            {"cross_attn_mapping": "softmax,sparsemax|softmax*3", "cross_attn_heads": "4,3"},
            r"--cross-attn-mapping \(cross attention, layer 1\): .*names 4 heads, the layer has 3",
        ),
        (
            {"attn_mapping": "entmax|softmax*3", "share_alpha": "model"},
            r"--attn-mapping .*'entmax' among heads apart shares .*with the whole model",
        ),
        ({"attn_mapping": "fusedmax:tv=-1"}, r"--attn-mapping.*: tv must be a number, 0 or more"),
        ({"tv_init": 0}, r"--tv-init: the start of tv must be a number above 0, not 0"),
        ({"oscar_init": "x"}, r"--oscar-init: the start of oscar must be .*, not 'x'"),
        ({"p_init": "2"}, r"--p-init: the start of p must lie strictly between 1 and 2"),
        ({"alpha_init": "2"}, r"--alpha-init: .*strictly between 1 and 2.*not 2"),
        ({"alpha_init": "often"}, r"--alpha-init: .*'normal' or a number.*'often'"),
        ({"share_alpha": "all"}, r"--share-alpha: .*none, layer, attention, model, not 'all'"),
        ({"alpha_log_interval": "-1"}, r"--alpha-log-interval.*0 or more .*not '-1'"),
        (
            {"adaptive_softmax_cutoff": "__import__('os').getpid()"},
            r"--adaptive-softmax-cutoff must be a list of numbers",
        ),
        (
            {"encoder_xformers_att_config": "__import__('os').getpid()"},
            r"--encoder-xformers-att-config",
        ),
    ],
)
def test_a_wrong_option_is_named_with_its_value_and_what_is_allowed(options, message):
    with pytest.raises(ValueError, match=message):
        build_model(**options)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--attn-mapping", "hardmax"], "argument --attn-mapping: unknown mapping 'hardmax'"),
        (["--cross-attn-mapping", "softmax*0"], "argument --cross-attn-mapping: the count"),
        (["--cross-attn-mapping", "a|b"], "argument --cross-attn-mapping: unknown mapping 'a'"),
        (["--alpha-init", "3"], "argument --alpha-init: "),
        (["--tv-init", "-1"], "argument --tv-init: the start of tv must be a number, 0 or more"),
        (["--share-alpha", "some"], "argument --share-alpha: must be one of none, layer"),
        (["--alpha-log-interval", "x"], "argument --alpha-log-interval: the number of updates"),
    ],
)
def test_the_command_line_refuses_a_wrong_option_by_itself(arguments, message, capsys):
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    with pytest.raises(SystemExit) as stop:
        parser.parse_args(arguments)
    assert stop.value.code == 2
    assert message in capsys.readouterr().err


def test_a_name_in_a_yaml_file_that_is_nearly_an_option_is_refused():
    from fairseq_entmax.models import EntmaxTransformerModel

    cfg = OmegaConf.create({"_name": "entmax_transformer", "attn_maping": "softmax"})
    with pytest.raises(ValueError, match=r"model\.attn_maping is no option"):
        EntmaxTransformerModel.build_model(cfg, tiny_task())


@pytest.mark.parametrize("name", ["atn_mapping", "tv_start", "oscar_strength", "p_inits"])
def test_a_name_in_a_yaml_file_that_looks_like_an_option_and_is_none_is_refused(name):
    from fairseq_entmax.models import EntmaxTransformerModel

    cfg = OmegaConf.create({"_name": "entmax_transformer", name: "softmax"})
    with pytest.raises(ValueError, match=rf"model\.{name} is no option.*attn_mapping"):
        EntmaxTransformerModel.build_model(cfg, tiny_task())
