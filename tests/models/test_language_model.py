"""Language models: with softmax they match fairseq's, and other mappings are ours."""

from argparse import Namespace

import pytest
import torch
from fairseq.criterions.adaptive_loss import AdaptiveLoss
from fairseq.criterions.cross_entropy import CrossEntropyCriterion

from fairseq_entmax.models.checkpoint_model import use_counterpart
from tests.language_models import ADAPTIVE, build_text_model, text_batch, text_task
from tests.support import (
    EVERY_MAPPING,
    assert_steps_equal_the_whole_pass,
    course,
    search,
    spread_scores,
)

DROPOUT = {"dropout": 0.1, "attention_dropout": 0.1}


def pair(**options):
    ours = build_text_model(attn_mapping="softmax", **options)
    return ours, build_text_model("transformer_lm", **options)


def loss_of(model, sample, criterion=CrossEntropyCriterion):
    return criterion(text_task(), sentence_avg=False)(model, sample)[0]


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"decoder_normalize_before": True, "activation_fn": "gelu"},
        {"share_decoder_input_output_embed": True, "decoder_learned_pos": True},
        {"decoder_input_dim": 8, "decoder_output_dim": 12, "layernorm_embedding": True},
        {"decoder_layers_to_keep": "1"},
        {"character_embeddings": True, "character_filters": "[(1, 4), (2, 8)]"},
        ADAPTIVE,
    ],
    ids=lambda options: next(iter(options), "plain"),
)
def test_several_updates_have_bitwise_fairseqs_losses(options):
    criterion = AdaptiveLoss if options is ADAPTIVE else CrossEntropyCriterion
    (ours, our_weights), (stock, stock_weights) = (
        course(model, lambda one, update: loss_of(one, text_batch(seed=update % 2), criterion))
        for model in pair(**options, **DROPOUT)
    )
    assert ours == stock
    assert ours[2] < 0.95 * ours[0]
    names = [name for name in stock_weights if not name.endswith("_float_tensor")]
    assert all(torch.equal(our_weights[name], stock_weights[name]) for name in names)


@pytest.mark.parametrize("options", [{}, {"sampling": True, "sampling_topk": 5}])
def test_generation_after_a_prefix_is_bitwise_fairseqs(options):
    sample = text_batch((4, 4, 4))
    ours, stock = (search(spread_scores(model), sample, text_task(), **options) for model in pair())
    assert ours == stock
    prefixes = text_batch((4, 4, 4))["net_input"]["src_tokens"]
    for prefix, sentence in zip(prefixes.tolist(), ours, strict=True):
        assert all(tokens[:3] == prefix[1:] for tokens, _ in sentence)


@pytest.mark.parametrize("mapping", [*EVERY_MAPPING, "sparsemax,softmax"])
def test_stepwise_decoding_matches_the_whole_pass(mapping):
    model = spread_scores(build_text_model(attn_mapping=mapping)).double()
    assert_steps_equal_the_whole_pass(model, text_batch())


def test_a_stock_checkpoint_is_read_as_its_counterpart_with_softmax():
    stock = build_text_model("transformer_lm")
    settings = Namespace(**{**vars(stock.decoder.args), "arch": "transformer_lm_gpt"})
    use_counterpart(settings)
    assert (settings.arch, settings.attn_mapping) == ("entmax_transformer_lm_gpt", "softmax")
    model = build_text_model(seed=2)
    model.load_state_dict(stock.state_dict())
    learned = [name for name in model.state_dict() if "mapping" in name]
    assert sorted(model.state_dict().keys() - stock.state_dict().keys()) == sorted(learned)
    assert all(torch.equal(model.state_dict()[name], v) for name, v in stock.state_dict().items())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"head_gates": "cross"}, "this model has no cross attention, only decoder-self"),
        ({"cross_attn_heads": "3"}, "--cross-attn-heads got '3': this model has no cross"),
        ({"freeze_decoder": True}, "--freeze-decoder needs a model with an encoder"),
        ({"base_layers": 1}, "--base-layers 1: this model has no layers without attention"),
        (
            {"character_embeddings": True, "character_filters": "__import__('os').abort()"},
            "__import__.* is not a plain value",
        ),
    ],
)
def test_unsuitable_options_are_refused_before_building_a_model(options, message):
    with pytest.raises(ValueError, match=message):
        build_text_model(**options)
