"""The dump of a model's attention is what the model computes with."""

import pytest
import torch

from fairseq_entmax.mappings.functional import map_scores
from tests.scripts.support import load


@pytest.fixture
def dump(monkeypatch):
    return load("dump_attention", monkeypatch)


def model_of(monkeypatch, mapping):
    synthetic = load("synthetic", monkeypatch)
    size = {"layers": 1, "embed_dim": 16, "ffn_embed_dim": 16, "attention_heads": 2}
    task = synthetic.task_of(24)
    return synthetic.build("entmax_transformer", task, size, attn_mapping=mapping).eval()


def read(model):
    source = torch.randint(4, 20, (2, 7), generator=torch.Generator().manual_seed(0))
    source[1, :3] = 1  # padding stands on the left
    with torch.no_grad():
        model(source, torch.tensor([7, 4]), torch.randint(4, 20, (2, 5)))


def test_every_attention_is_there_with_its_masks(dump, monkeypatch):
    layers = []
    model = model_of(monkeypatch, "entmax")
    dump.watched(model, layers)
    read(model)
    encoder, decoder, cross = layers
    assert encoder["query"].shape == (2, 2, 7, 8)
    assert encoder["padding"].sum() == 3
    assert decoder["causal"]
    assert decoder["padding"] is None
    assert cross["query"].shape[2] == 5
    assert cross["key"].shape[2] == 7
    assert not cross["causal"]
    alpha = model.decoder.layers[0].encoder_attn.mapping.alpha.detach().view(-1)
    torch.testing.assert_close(1 + cross["epsilon"], alpha)


def test_a_dump_gives_the_weights_of_the_model(dump, monkeypatch):
    layers, seen = [], []
    model = model_of(monkeypatch, "entmax:alpha=1.5")
    dump.watched(model, layers)
    with model.encoder.layers[0].self_attn.observed(seen.append):
        read(model)
    (own,) = (layer for layer in layers if layer["name"].startswith("encoder"))
    scores = own["scale"] * own["query"] @ own["key"].mT
    scores = scores.masked_fill(own["padding"][:, None, None], -torch.inf)
    probs = map_scores(scores, 1 + own["epsilon"].view(-1, 1, 1))
    torch.testing.assert_close(probs, seen[0], atol=1e-6, rtol=1e-5)


def test_joined_sentences_end_once(dump):
    class Pairs(list):
        collater = staticmethod(lambda samples: samples)

    pairs = Pairs(
        {"source": torch.tensor([number, 5, 2]), "target": torch.tensor([number, 2])}
        for number in range(10, 15)
    )
    first, second = dump.joined(pairs, 8, 2)
    assert first["source"].tolist() == [10, 5, 11, 5, 2]
    assert second["target"].tolist() == [12, 13, 2]
