"""Models and data for analysis."""

from argparse import Namespace

import pytest
import torch

from fairseq_entmax.analysis import models
from fairseq_entmax.analysis.models import load_model
from tests.support import TINY, batch, build_model, spread_scores, tiny_task


def save(path, model, arch="entmax_transformer", languages=("a", "b"), **options):
    torch.save(
        {
            "args": None,
            "cfg": {
                "_name": None,
                "model": Namespace(arch=arch, _name=arch, **{**TINY, **options}),
                "task": {"source_lang": languages[0], "target_lang": languages[1]},
            },
            "model": model.state_dict(),
            "optimizer_history": [{"num_updates": 3, "optimizer_name": "adam"}],
            "extra_state": {},
        },
        path,
    )
    return str(path)


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
def test_a_checkpoint_becomes_the_model_it_is_of(tmp_path, arch, options):
    model = spread_scores(build_model(arch, **options))
    loaded = load_model(save(tmp_path / "m.pt", model, arch, **options), tiny_task())
    assert (loaded.architecture, loaded.updates) == (arch, 3)
    assert not loaded.model.training
    sample = batch([7, 5, 2], [6, 3, 4])
    with torch.no_grad():
        expected = model(**sample["net_input"])[0]
        assert torch.allclose(loaded.model(**sample["net_input"])[0], expected, atol=1e-5)


def test_other_languages_are_refused_with_the_options_to_give(tmp_path):
    path = save(tmp_path / "m.pt", build_model(), languages=("b", "a"))
    with pytest.raises(ValueError, match="give --source-lang b --target-lang a"):
        load_model(path, tiny_task())


def test_another_dictionary_is_refused(tmp_path):
    model = build_model()
    state = {**model.state_dict()}
    path = tmp_path / "m.pt"
    save(path, model)
    saved = torch.load(path, weights_only=False)
    state["encoder.embed_tokens.weight"] = torch.zeros(99, 16)
    torch.save({**saved, "model": state}, path)
    with pytest.raises(ValueError, match="99 encoder tokens, and the data's dictionary has 24"):
        load_model(str(path), tiny_task())


@pytest.mark.parametrize(
    ("paths", "mappings", "names"),
    [
        (("r/a.pt", "r/b.pt"), ["softmax", "entmax"], ["softmax", "entmax"]),
        (("r/a.pt", "r/b.pt"), ["entmax", "entmax"], ["a", "b"]),
        (("one/x/c.pt", "two/x/c.pt"), ["entmax", "entmax"], ["one", "two"]),
        (("one/a.pt", "one/b.pt", "two/a.pt"), None, ["one/a.pt", "one/b.pt", "two/a.pt"]),
        (("r/a.pt",), ["entmax15"], ["entmax15"]),
    ],
)
def test_models_are_called_by_what_tells_them_apart(paths, mappings, names):
    assert models._names(list(paths), mappings or ["entmax"] * len(paths)) == names


def test_the_same_checkpoint_twice_is_refused():
    with pytest.raises(ValueError, match="the same checkpoint twice"):
        models._names(["a.pt", "a.pt"], ["entmax"] * 2)
