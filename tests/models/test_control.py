"""With softmax, the model is fairseq's transformer: the test that guards all others."""

from argparse import Namespace

import pytest
import torch
from fairseq.criterions.label_smoothed_cross_entropy import LabelSmoothedCrossEntropyCriterion
from fairseq.modules import MultiheadAttention as FairseqMultiheadAttention

from fairseq_entmax import compat
from tests.support import batch, build_model, spread_scores, tiny_task


def pair(**options):
    ours = build_model("entmax_transformer", attn_mapping="softmax", **options)
    stock = build_model("transformer", **options)
    return ours, stock


def criterion():
    return LabelSmoothedCrossEntropyCriterion(tiny_task(), False, 0.1)


def test_the_same_seed_gives_the_same_weights_whatever_the_mapping():
    stock = build_model("transformer").state_dict()
    for mapping in ("softmax", "entmax", "sparsemax,entmax"):
        ours = build_model("entmax_transformer", attn_mapping=mapping).state_dict()
        assert all(torch.equal(ours[name], value) for name, value in stock.items())


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"share_all_embeddings": True},
        {"encoder_normalize_before": True, "decoder_normalize_before": True},
        {"no_cross_attention": True},
        {"cross_self_attention": True, "no_cross_attention": True},
        {"adaptive_softmax_cutoff": "5,10"},
        {"layernorm_embedding": True, "encoder_learned_pos": True},
        {"checkpoint_activations": True},
        {"decoder_attention_heads": 2},
    ],
)
def test_the_loss_is_that_of_fairseq(options):
    ours, stock = pair(**options)
    sample = batch([9, 7, 4], [6, 8, 5])
    if "adaptive_softmax_cutoff" in options:
        with torch.no_grad():
            features = [model(**sample["net_input"])[0] for model in (ours, stock)]
        torch.testing.assert_close(*features, atol=1e-6, rtol=1e-6)
        return
    losses = [criterion()(model, sample)[0].item() for model in (ours, stock)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-6)


def test_the_gradients_are_those_of_fairseq():
    ours, stock = pair()
    for model in (ours, stock):
        criterion()(model, batch([9, 7, 4], [6, 8, 5]))[0].backward()
    expected = dict(stock.named_parameters())
    for name, parameter in ours.named_parameters():
        torch.testing.assert_close(parameter.grad, expected[name].grad, atol=2e-6, rtol=1e-4)


def test_quantisation_noise_acts_on_the_projections_of_attention_too():
    # torch's fused attention, which fairseq calls otherwise, reads the weights without it
    ours, stock = pair(quant_noise_pq=0.3)
    for module in stock.modules():
        if isinstance(module, FairseqMultiheadAttention):
            module.skip_embed_dim_check = True
    losses = []
    for model in (ours.train(), stock.train()):
        torch.manual_seed(0)
        losses.append(criterion()(model, batch([9, 7, 4], [6, 8, 5]))[0].item())
    assert losses[0] == pytest.approx(losses[1], rel=1e-6)


def test_training_takes_the_same_course():
    curves = []
    for model in pair(dropout=0.1):
        model.train()
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
        curve = []
        for step in range(20):
            torch.manual_seed(step)
            loss = criterion()(model, batch([9, 7, 4], [6, 8, 5]))[0]
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            curve.append(loss.item())
        curves.append(curve)
    assert curves[0] == pytest.approx(curves[1], rel=1e-4)
    assert curves[0][-1] < 0.9 * curves[0][0]


def test_translations_are_those_of_fairseq():
    task = tiny_task()
    found = []
    for model in pair():
        spread_scores(model)
        generator = task.build_generator([model], Namespace(beam=4, max_len_a=0, max_len_b=12))
        hypotheses = task.inference_step(generator, [model], batch([9, 7, 4], [6, 8, 5]))
        found.append([[hypo["tokens"].tolist() for hypo in sentence] for sentence in hypotheses])
    assert found[0] == found[1]


def test_every_architecture_of_fairseq_has_its_counterpart_with_its_defaults():
    from fairseq.models import ARCH_CONFIG_REGISTRY

    stock = compat.stock_architectures()
    assert {"transformer", "transformer_iwslt_de_en", "transformer_tiny"} <= set(stock)
    for name in stock:
        ours, theirs = Namespace(), Namespace()
        ARCH_CONFIG_REGISTRY[f"entmax_{name}"](ours)
        ARCH_CONFIG_REGISTRY[name](theirs)
        assert vars(theirs).items() <= vars(ours).items()
        assert ours.attn_mapping == "entmax"
