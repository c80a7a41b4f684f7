"""With softmax, the model is fairseq's transformer: all other tests build on this one."""

from argparse import Namespace

import pytest
import torch
from fairseq.criterions.adaptive_loss import AdaptiveLoss
from fairseq.criterions.label_smoothed_cross_entropy import LabelSmoothedCrossEntropyCriterion
from fairseq.models import ARCH_CONFIG_REGISTRY, ARCH_MODEL_INV_REGISTRY, ARCH_MODEL_REGISTRY
from fairseq.models.transformer_lm import TransformerLanguageModelConfig
from fairseq.modules import MultiheadAttention as FairseqMultiheadAttention

from fairseq_entmax.models import (
    EntmaxBARTModel,
    EntmaxRobertaModel,
    EntmaxTransformerLanguageModel,
    EntmaxTransformerModel,
)
from tests.support import build_model, course, sample, search, spread_scores, tiny_task


def pair(**options):
    ours = build_model("entmax_transformer", attn_mapping="softmax", **options)
    stock = build_model("transformer", **options)
    return ours, stock


@pytest.mark.parametrize("mapping", ["softmax", "sparsemax,entmax"])
def test_the_same_seed_gives_the_same_weights_for_every_mapping(mapping):
    stock, random = build_model("transformer").state_dict(), torch.get_rng_state()
    ours = build_model("entmax_transformer", attn_mapping=mapping).state_dict()
    assert torch.equal(torch.get_rng_state(), random)
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
        {"quant_noise_pq": 0.3},
    ],
    ids=lambda options: next(iter(options), "plain"),
)
def test_training_with_softmax_matches_fairseqs(options):
    ours, stock = pair(dropout=0.1, **options)
    if "quant_noise_pq" in options:
        # fairseq otherwise calls torch's fused attention, which ignores the noise on weights
        for module in stock.modules():
            if isinstance(module, FairseqMultiheadAttention):
                module.skip_embed_dim_check = True
    criterion = LabelSmoothedCrossEntropyCriterion(tiny_task(), False, 0.1)
    if "adaptive_softmax_cutoff" in options:
        criterion = AdaptiveLoss(tiny_task(), False)

    def loss_of(model, update):
        loss, size, _ = criterion(model, sample())
        return loss / size

    courses = (course(model, loss_of, torch.optim.SGD, lr=0.02) for model in (ours, stock))
    (losses, weights), (expected, of_stock) = courses
    assert losses == pytest.approx(expected, rel=1e-6)
    assert losses[-1] < losses[0] or "quant_noise_pq" in options
    torch.testing.assert_close(weights, of_stock, atol=1e-6, rtol=1e-5)


def test_translations_match_fairseqs():
    found = [search(spread_scores(model), sample(), beam=4) for model in pair()]
    first, second = ([[tokens for tokens, _ in one] for one in sentences] for sentences in found)
    assert first == second


@pytest.mark.parametrize(
    ("stock", "number", "model_class"),
    [
        ("transformer", 8, EntmaxTransformerModel),
        ("roberta", 5, EntmaxRobertaModel),
        ("bart", 5, EntmaxBARTModel),
        ("transformer_lm", 21, EntmaxTransformerLanguageModel),
    ],
)
def test_every_architecture_of_fairseq_has_its_counterpart_with_its_defaults(
    stock, number, model_class
):
    names = [name for name in ARCH_MODEL_INV_REGISTRY[stock] if "entmax" not in name]
    assert len(names) >= number
    # fairseq takes what a language model's function leaves open from its dataclass, in this order
    plain = vars(TransformerLanguageModelConfig()) if stock == "transformer_lm" else {}
    for name in names:
        ours, theirs = Namespace(), Namespace()
        ARCH_CONFIG_REGISTRY[f"entmax_{name}"](ours)
        ARCH_CONFIG_REGISTRY[name](theirs)
        expected = {**plain, **vars(theirs)}
        if plain:
            expected = {k: v for k, v in expected.items() if k != "_name" and "${" not in str(v)}
        assert expected.items() <= vars(ours).items()
        assert ours.attn_mapping == "entmax"
        assert ARCH_MODEL_REGISTRY[f"entmax_{name}"] is model_class
