"""Pruning models whose heads have different mappings and strengths."""

import copy

import pytest
import torch

from fairseq_entmax.attention import attention_modules
from fairseq_entmax.models import EntmaxTransformerModel
from fairseq_entmax.pruning import parse_heads, prune_checkpoint, prune_state
from tests.pruning.test_surgery import (
    PRENORM,
    logits,
    rebuilt,
    state_of,
    trained,
    translations,
    without,
)
from tests.support import build_model, settings_of, tiny_task

GONE = parse_heads("encoder-self:0.1;decoder-self:0.0,0.2,0.3,1.0,1.1,1.2,1.3;cross:1.0,1.3")
SOFTMAX = {"attn_mapping": "softmax"}
OPTIONS = [
    {"attn_mapping": "entmax|fusedmax|softmax|entmax"},
    {"attn_mapping": "(entmax:tv=learned|sqpnormmax:p=learned*3)*2"},
    {"attn_mapping": "sparsemax|softmax*3,entmax"},
    {"cross_attn_mapping": "entmax|softmax|entmax*2", "share_alpha": "layer", **SOFTMAX},
    {"attn_mapping": "entmax:tv=learned"},
    {"attn_mapping": "oscarmax:oscar=learned,sqpnormmax:p=learned", "share_alpha": "attention"},
]


def varied(**options):
    """A model whose heads have learned different values."""
    model = trained(**options)
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if ".mapping." in name:
                parameter.add_(torch.randn(parameter.shape, generator=generator))
    return model


def head_values(model):
    values = {(name, layer): module for name, layer, module in attention_modules(model)}
    return values["cross", 1].mapping.head_values()


@pytest.mark.parametrize(
    ("arch", "options"),
    [
        ("transformer", {}),
        ("transformer", PRENORM),
        *(("entmax_transformer", options) for options in OPTIONS),
    ],
    ids=str,
)
def test_a_pruned_model_matches_the_whole_model_without_the_removed_heads(arch, options):
    whole = varied(arch=arch, **options)
    pruned, report = prune_state(state_of(whole, arch, **options), "some.pt", GONE)
    assert report.heads_after == {"encoder-self": [3, 4], "decoder-self": [1, 0], "cross": [4, 2]}
    smaller, expected = rebuilt(pruned), without(whole, GONE)
    torch.testing.assert_close(logits(smaller), logits(expected), atol=1e-5, rtol=0)
    assert translations(smaller) == translations(expected)
    if arch == "transformer":
        return
    before, after = head_values(whole), head_values(smaller)
    for name, values in after.items():
        own = before[name] if len(before[name]) == 1 else before[name][[1, 2]]
        exactly = {"atol": 0, "rtol": 0, "equal_nan": True, "msg": name}
        torch.testing.assert_close(values.expand(2), own.expand(2), **exactly)
    names = {name for name in before if not before[name].expand(4)[1:3].isnan().all()}
    assert set(after) == names


def test_the_settings_of_a_pruned_model_name_the_heads_that_are_left():
    options = {"attn_mapping": "entmax|fusedmax|softmax|entmax"}
    pruned, report = prune_state(state_of(varied(**options), **options), "some.pt", GONE)
    settings = vars(pruned["cfg"]["model"])
    texts = [settings[f"{x}_attn_mapping"] for x in ("encoder_self", "decoder_self", "cross")]
    assert texts == [
        "(entmax|softmax|entmax),(entmax|fusedmax|softmax|entmax)",
        "fusedmax,entmax",
        "(entmax|fusedmax|softmax|entmax),(fusedmax|softmax)",
    ]
    assert report.options_after["cross_attn_mapping"] == texts[2]
    names = [name for name in pruned["model"] if "layers.0.self_attn.mapping" in name]
    assert names == ["encoder.layers.0.self_attn.mapping.parts.0.alpha_logit"]


@pytest.fixture
def pruned_file(tmp_path):
    options = {"attn_mapping": "entmax|fusedmax|softmax|entmax"}
    torch.save(state_of(varied(**options), **options), tmp_path / "whole.pt")
    prune_checkpoint(str(tmp_path / "whole.pt"), str(tmp_path / "small.pt"), GONE)
    return tmp_path / "small.pt"


def test_training_from_a_pruned_checkpoint_needs_no_option_for_its_heads(pruned_file, tmp_path):
    start = {"save_dir": str(tmp_path / "new"), "finetune_from_model": str(pruned_file)}
    settings = settings_of(attn_mapping="entmax|fusedmax|softmax|entmax", **start)
    model = EntmaxTransformerModel.build_model(settings, tiny_task())
    model.load_state_dict(torch.load(pruned_file)["model"])
    assert str(model.attention_options.specs["cross"][1]) == "fusedmax|softmax"
    # The settings now hold the numbers of heads, and need no checkpoint to start from
    settings.finetune_from_model = None
    again = EntmaxTransformerModel.build_model(copy.deepcopy(settings), tiny_task())
    assert again.attention_options.specs == model.attention_options.specs
    with pytest.raises(ValueError, match=r"layer 0\): .* lists 4 heads, but the layer has 3"):
        build_model(attn_mapping="entmax|fusedmax|softmax*2", **start)


def test_heads_of_one_attention_need_no_option_after_pruning_either(tmp_path):
    options = {"attn_mapping": "entmax", "cross_attn_mapping": "entmax|fusedmax|softmax|entmax"}
    torch.save(state_of(varied(**options), **options), tmp_path / "whole.pt")
    prune_checkpoint(str(tmp_path / "whole.pt"), str(tmp_path / "small.pt"), GONE)
    start = {"save_dir": str(tmp_path), "finetune_from_model": str(tmp_path / "small.pt")}
    model = build_model(**options, **start)
    assert str(model.attention_options.specs["cross"][1]) == "fusedmax|softmax"
    assert str(model.attention_options.specs["decoder-self"][1]) == "entmax"
    for text, message in (
        ("softmax|entmax*3", r"layer 1\): .* lists 4 heads, but the layer has 2"),
        ("entmax:lr_factor=9|fusedmax|softmax|entmax", "lists 4 heads, but the layer has 2"),
        ("(entmax|fusedmax|softmax|entmax)*3", "lists 3 layers, but the model has 2"),
        ("entmax|fusedmax|softmax|entmax*2", "lists 5 heads, but"),
        ("entmx|softmax", "--cross-attn-mapping.*: unknown mapping"),
    ):
        with pytest.raises(ValueError, match=message):
            build_model(**{**options, "cross_attn_mapping": text}, **start)
