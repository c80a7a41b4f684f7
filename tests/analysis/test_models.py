"""Loading models and data for an analysis."""

import pytest
import torch

from fairseq_entmax.analysis.models import loaded as models
from fairseq_entmax.analysis.models.loaded import load_model
from fairseq_entmax.attention import attention_modules
from tests.analysis.data_types.small import state_of
from tests.support import batch, build_model, settings_of, spread_scores, tiny_task


def save(path, model, arch="entmax_transformer", languages=("a", "b"), **options):
    args = settings_of(arch, **options)
    task = {"source_lang": languages[0], "target_lang": languages[1]}
    torch.save(state_of(model, args, task, {"_name": "cross_entropy"}), path)
    return str(path)


def alphas_of(model, by=0.0):
    """The values in one line of a record, for a model's alphas plus an offset."""
    found = {}
    for attention, layer, module in attention_modules(model):
        if module.mapping is not None:
            values = module.mapping.head_values()["alpha"].tolist()
            found.setdefault(attention, {})[str(layer)] = [value + by for value in values]
    return found


@pytest.mark.parametrize(
    ("arch", "options"),
    [
        ("entmax_transformer", {"attn_mapping": "entmax15"}),
        ("entmax_transformer", {"attn_mapping": "entmax", "encoder_self_attn_heads": "0,3"}),
        ("entmax_transformer", {"attn_mapping": "entmax", "head_gates": "encoder-self,cross"}),
        ("transformer", {}),
        ("transformer_iwslt_de_en", {}),
    ],
)
def test_a_checkpoint_is_loaded_as_its_model(tmp_path, arch, options):
    model = spread_scores(build_model(arch, **options))
    loaded = load_model(save(tmp_path / "m.pt", model, arch, **options), tiny_task())
    assert (loaded.architecture, loaded.updates) == (arch, 3)
    assert not loaded.model.training
    sample = batch([7, 5, 2], [6, 3, 4])
    with torch.no_grad():
        expected = model(**sample["net_input"])[0]
        assert torch.allclose(loaded.model(**sample["net_input"])[0], expected, atol=1e-5)


def test_other_languages_and_another_dictionary_are_refused(tmp_path):
    path = save(tmp_path / "m.pt", build_model(), languages=("b", "a"))
    with pytest.raises(ValueError, match="give --source-lang b --target-lang a"):
        load_model(path, tiny_task())
    saved = torch.load(save(path, build_model()), weights_only=False)
    saved["model"]["encoder.embed_tokens.weight"] = torch.zeros(99, 16)
    torch.save(saved, path)
    with pytest.raises(ValueError, match="99 encoder tokens, but the data's dictionary has 24"):
        load_model(path, tiny_task())


@pytest.mark.parametrize(
    ("paths", "mappings", "names"),
    [
        (("r/a.pt", "r/b.pt"), ["softmax", "entmax"], ["softmax", "entmax"]),
        (("r/a.pt", "r/b.pt"), ["entmax", "entmax"], ["a", "b"]),
        (("one/x/c.pt", "two/x/c.pt"), ["entmax", "entmax"], ["one", "two"]),
        (("x/1/a.pt", "x/1/b.pt", "x/2/a.pt"), None, ["x/1/a.pt", "x/1/b.pt", "x/2/a.pt"]),
        (("r/a.pt",), ["entmax15"], ["entmax15"]),
    ],
)
def test_models_are_named_by_what_distinguishes_them(paths, mappings, names):
    assert models._names(list(paths), mappings or ["entmax"] * len(paths)) == names
    with pytest.raises(ValueError, match="the same checkpoint twice"):
        models._names([paths[0], paths[0]], ["entmax"] * 2)
