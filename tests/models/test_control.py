"""With softmax, the model is fairseq's transformer: the test that guards all others."""

from argparse import Namespace

import pytest
import torch
from fairseq.criterions.adaptive_loss import AdaptiveLoss
from fairseq.criterions.label_smoothed_cross_entropy import LabelSmoothedCrossEntropyCriterion
from fairseq.models import ARCH_CONFIG_REGISTRY, ARCH_MODEL_INV_REGISTRY
from fairseq.modules import MultiheadAttention as FairseqMultiheadAttention

from tests.support import batch, build_model, spread_scores, tiny_task


def pair(**options):
    ours = build_model("entmax_transformer", attn_mapping="softmax", **options)
    stock = build_model("transformer", **options)
    return ours, stock


@pytest.mark.parametrize("mapping", ["softmax", "sparsemax,entmax"])
def test_the_same_seed_gives_the_same_weights_whatever_the_mapping(mapping):
    stock = build_model("transformer").state_dict()
    ours = build_model("entmax_transformer", attn_mapping=mapping).state_dict()
    assert all(torch.equal(ours[name], value) for name, value in stock.items())


def course(model, criterion):
    """The losses of some updates, and the weights behind them."""
    optimizer, losses = torch.optim.SGD(model.train().parameters(), lr=0.02), []
    for step in range(4):
        torch.manual_seed(step)
        loss, size, _ = criterion(model, batch([9, 7, 4], [6, 8, 5]))
        optimizer.zero_grad()
        (loss / size).backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, model.state_dict()


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
        {"quant_noise_pq": 0.3},
    ],
    ids=lambda options: next(iter(options), "plain"),
)
def test_training_takes_the_course_of_fairseqs(options):
    ours, stock = pair(dropout=0.1, **options)
    if "quant_noise_pq" in options:
        # torch's fused attention, which fairseq calls otherwise, reads the weights without it
        for module in stock.modules():
            if isinstance(module, FairseqMultiheadAttention):
                module.skip_embed_dim_check = True
    criterion = LabelSmoothedCrossEntropyCriterion(tiny_task(), False, 0.1)
    if "adaptive_softmax_cutoff" in options:
        criterion = AdaptiveLoss(tiny_task(), False)
    (losses, weights), (expected, of_stock) = (course(model, criterion) for model in (ours, stock))
    assert losses == pytest.approx(expected, rel=1e-6)
    assert losses[-1] < losses[0] or "quant_noise_pq" in options
    for name, value in of_stock.items():
        torch.testing.assert_close(weights[name], value, atol=1e-6, rtol=1e-5, msg=name)


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
    stock = ARCH_MODEL_INV_REGISTRY["transformer"]
    assert {"transformer", "transformer_iwslt_de_en", "transformer_tiny"} <= set(stock)
    for name in stock:
        ours, theirs = Namespace(), Namespace()
        ARCH_CONFIG_REGISTRY[f"entmax_{name}"](ours)
        ARCH_CONFIG_REGISTRY[name](theirs)
        assert vars(theirs).items() <= vars(ours).items()
        assert ours.attn_mapping == "entmax"
