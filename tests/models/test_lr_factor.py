"""--alpha-lr-factor in whole models: checkpoints keep their values wherever they are used."""

import re

import pytest
import torch

from fairseq_entmax.analysis import value_table
from fairseq_entmax.analysis.models.loaded import load_model
from fairseq_entmax.attention import attention_modules
from fairseq_entmax.head_names import Head
from fairseq_entmax.models.checkpoint_model import read_model
from fairseq_entmax.pruning import prune_checkpoint
from tests.pruning.test_surgery import state_of
from tests.support import batch, build_model, tiny_task

MODELS = [
    {"share_alpha": "layer"},
    {"share_alpha": "model"},
    {"attn_mapping": "entmax:tv=learned", "cross_attn_mapping": "sqpnormmax:p=learned"},
    {"attn_mapping": "entmax|softmax:temperature=learned|entmax:oscar=learned*2"},
]


def trained(**options):
    """A model whose heads have each moved by a different distance."""
    model = build_model(**options)
    generator = torch.Generator().manual_seed(1)
    for name, parameter in model.named_parameters():
        if ".mapping." in name:
            with torch.no_grad():
                moved = torch.randn(parameter.shape, generator=generator)
                parameter.add_(moved / float(options.get("alpha_lr_factor", 1)))
    return model


def values(model):
    return {
        (attention, layer, name): own.detach()
        for attention, layer, module in attention_modules(model)
        for name, own in module.mapping.head_values().items()
    }


def assert_same_values(model, other):
    torch.testing.assert_close(values(model), values(other), rtol=2e-6, atol=0, equal_nan=True)


def save(model, path, **options):
    torch.save(state_of(model, **options), path)
    return str(path)


@pytest.mark.parametrize("options", MODELS, ids=str)
def test_initial_and_loaded_values_do_not_depend_on_the_factor(options):
    plain, fast = build_model(**options), build_model(alpha_lr_factor="10", **options)
    assert_same_values(fast, plain)
    sample = batch([4, 3], [3, 4])["net_input"]
    torch.testing.assert_close(fast(**sample)[0], plain(**sample)[0], rtol=0, atol=1e-5)
    for theirs, own in ((1, 10), (10, 1), (10, 30)):
        saved = trained(alpha_lr_factor=theirs, **options)
        loaded = build_model(alpha_lr_factor=own, seed=9, **options)
        loaded.load_state_dict(saved.state_dict())
        assert_same_values(loaded, saved)


@pytest.mark.parametrize(
    ("options", "number"), [({}, 6), ({"attn_mapping": "entmax|softmax|entmax:tv=learned*2"}, 18)]
)
def test_values_that_a_stock_checkpoint_lacks_start_as_in_a_new_model(options, number, caplog):
    stock = build_model("transformer", seed=5)
    model, new = (build_model(alpha_lr_factor=10, seed=6, **options) for _ in range(2))
    model.load_state_dict(stock.state_dict())
    assert_same_values(model, new)
    loaded = model.state_dict()
    assert all(torch.equal(loaded[name], value) for name, value in stock.state_dict().items())
    assert f"{number} learned parameters; they start as in a new model" in caplog.text
    assert re.search(r"decoder\.layers\.1\.encoder_attn\.mapping\.\S*alpha_logit", caplog.text)


@pytest.mark.parametrize(("own", "theirs"), [(1, 30), (10, 1), (30, 10)])
def test_per_head_mappings_load_the_values_of_a_model_with_one_mapping(own, theirs):
    saved = trained(alpha_lr_factor=theirs)
    model = build_model(
        attn_mapping="entmax|entmax:lr_factor=3|softmax|entmax", alpha_lr_factor=own
    )
    model.load_state_dict(saved.state_dict())
    expected = values(saved)
    for alphas in expected.values():
        alphas[2] = 1.0
    torch.testing.assert_close(values(model), expected, rtol=2e-6, atol=0)
    other = build_model(attn_mapping="entmax:lr_factor=2|entmax|softmax|entmax:lr_factor=2")
    other.load_state_dict(model.state_dict())
    assert_same_values(other, model)


@pytest.mark.parametrize("options", MODELS, ids=str)
def test_every_reader_of_a_checkpoint_sees_the_values(options, tmp_path):
    model = trained(alpha_lr_factor=10, **options)
    path = save(model, tmp_path / "checkpoint.pt", alpha_lr_factor="10.0", **options)
    assert_same_values(load_model(path, tiny_task()).model, model)
    for row in value_table.model_values(read_model(path)):
        for name, own in row.values.items():
            expected = values(model)[row.attention, row.layer, name].tolist()
            expected = expected * (len(own) // len(expected))
            shown = [float("nan") if value is None else value for value in own]
            assert shown == pytest.approx(expected, rel=1e-6, nan_ok=True)


def test_a_pruned_model_can_be_trained_with_another_factor(tmp_path):
    options = {"attn_mapping": "entmax:lr_factor=10|softmax|entmax*2"}
    path = save(trained(**options), tmp_path / "checkpoint.pt", **options)
    output = str(tmp_path / "pruned.pt")
    prune_checkpoint(path, output, [Head("cross", 1, 1)])
    settings = read_model(output).args
    expected = "(entmax:lr_factor=10|softmax|entmax*2),(entmax:lr_factor=10|entmax*2)"
    assert settings.cross_attn_mapping == expected
    heads = {"cross_attn_heads": "4,3", "cross_attn_mapping": settings.cross_attn_mapping}
    further = build_model(alpha_lr_factor=7, seed=4, **options, **heads)
    further.load_state_dict(torch.load(output)["model"])
    assert_same_values(further, load_model(output, tiny_task()).model)


def test_mappings_that_share_a_parameter_need_the_same_factor():
    mappings = "entmax:share=attention:lr_factor=3,entmax:share=attention"
    with pytest.raises(ValueError, match=r"lr_factor=3 in one layer and 10 in another"):
        build_model(attn_mapping=mappings, alpha_lr_factor=10)
    shared = build_model(attn_mapping=mappings, alpha_lr_factor=3)
    assert shared.encoder.layers[1].self_attn.mapping.lr_factor == 3
