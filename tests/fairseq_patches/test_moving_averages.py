"""``--store-ema`` when training starts from a checkpoint without a moving average."""

import pytest
import torch

from tests.support import build_model
from tests.training import make_trainer, save, train

OPTIONS = {"attn_mapping": "entmax", "head_gates": "cross", "alpha_lr_factor": 10.0}


def values(model):
    return {name: value.clone() for name, value in model.state_dict().items()}


@pytest.fixture(scope="module")
def stock(tmp_path_factory):
    """A checkpoint of fairseq's own model, trained without a moving average."""
    trainer = make_trainer(build_model("transformer"))
    train(trainer)
    return save(trainer, tmp_path_factory.mktemp("stock") / "stock.pt")


@pytest.mark.parametrize("precision", [[], ["--ema-fp32"]])
def test_a_moving_average_starts_from_a_stock_checkpoint_and_is_resumed(stock, precision, tmp_path):
    options = ["--store-ema", "--ema-decay=0.75", *precision]
    trainer = make_trainer(build_model(**OPTIONS, seed=2), *options)
    trainer.load_checkpoint(stock)
    start = values(trainer.get_model())
    torch.testing.assert_close(values(trainer.ema.get_model()), start, rtol=0, atol=0)
    train(trainer)
    end, average = values(trainer.get_model()), values(trainer.ema.get_model())
    for name in (
        f"decoder.layers.0.{x}" for x in ("fc1.weight", "encoder_attn.mapping.alpha_logit")
    ):
        assert not torch.equal(start[name], end[name])
        torch.testing.assert_close(average[name], 0.75 * start[name] + 0.25 * end[name])

    resumed = make_trainer(build_model(**OPTIONS, seed=3), *options)
    resumed.load_checkpoint(save(trainer, tmp_path / "next.pt"))
    torch.testing.assert_close(values(resumed.ema.get_model()), average, rtol=0, atol=0)
    assert resumed.cfg.ema.store_ema


def test_without_a_checkpoint_the_average_starts_at_the_model(tmp_path):
    trainer = make_trainer(build_model(**OPTIONS), "--store-ema")
    assert trainer.load_checkpoint(str(tmp_path / "none.pt")) is None
    assert trainer.cfg.ema.store_ema
    models = (trainer.get_model(), trainer.ema.model)
    assert torch.equal(*(model.encoder.embed_tokens.weight for model in models))


def test_a_stock_model_is_left_to_fairseq(stock):
    with pytest.raises(KeyError, match="model"):
        make_trainer(build_model("transformer"), "--store-ema").load_checkpoint(stock)
