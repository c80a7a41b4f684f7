"""Layer-wise relevance propagation, compared with dense matrices and its conservation laws."""

import pytest
import torch

from fairseq_entmax.analysis.importance.relevance import head_relevance
from fairseq_entmax.attention import attention_modules
from tests.analysis.importance.relevance_reference import Reference
from tests.support import batch, build_model, spread_scores, tiny_task

PRE_NORM = {"encoder_normalize_before": True, "decoder_normalize_before": True}
ALL = "encoder-self,decoder-self,cross"
PRUNED = {"encoder_self_attn_heads": "0,3", "decoder_self_attn_heads": "2,0"}
PRUNED |= {"cross_attn_heads": "1,0"}
CONFIGURATIONS = {
    "post-norm": {},
    "pre-norm": PRE_NORM,
    "softmax": {"attn_mapping": "softmax"},
    "sparsemax, pre-norm": {"attn_mapping": "sparsemax", **PRE_NORM},
    "gates": {"head_gates": ALL},
    "pruned": PRUNED,
    "pruned, pre-norm": {**PRUNED, **PRE_NORM},
    "pre-norm encoder alone": {"encoder_normalize_before": True},
    "no final norm": {**PRE_NORM, "no_decoder_final_norm": True},
    "gelu, normalised embeddings": {"activation_fn": "gelu", "layernorm_embedding": True},
    "uneven layers and widths": {"encoder_layers": 3, "decoder_layers": 1}
    | {"encoder_embed_dim": 8, "encoder_attention_heads": 2},
    "projected output": {"decoder_output_dim": 6, "decoder_input_dim": 6, **PRE_NORM},
    "shared embeddings": {"share_all_embeddings": True},
    "no cross-attention": {"no_cross_attention": True},
}


def make(seed=1, **options):
    """A model whose parameters are all random, including biases and norms."""
    model = spread_scores(build_model(seed=seed, **options), 2.0)
    torch.manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.dim() == 1 and ".mapping." not in name:
                parameter.add_(0.4 * torch.randn_like(parameter))
    return model


def lost(result):
    """The largest deviation from 1 of the total relevance at any boundary."""
    return max((total - 1).abs().max() for total in result.totals.values())


def sentences(sample):
    """Each source and decoder input of a batch as a batch of one, without padding."""
    pad = tiny_task().source_dictionary.pad()
    net_input = sample["net_input"]
    rows = zip(net_input["src_tokens"], net_input["prev_output_tokens"], strict=True)
    return [(source[source != pad][None], target[target != pad][None]) for source, target in rows]


def alone(source, previous):
    return {"net_input": {"src_tokens": source, "prev_output_tokens": previous}}


def every_head(result):
    return [(a, n, heads) for a, layers in result.heads.items() for n, heads in layers.items()]


@pytest.mark.parametrize("options", CONFIGURATIONS.values(), ids=CONFIGURATIONS)
def test_relevance_matches_dense_matrices_and_is_conserved(options):
    model = make(**options).double()
    sample = batch([5], [4])
    ((source, previous),) = sentences(sample)
    result = head_relevance(model, sample)
    boundaries = ["decoder output", "encoder output"]
    for side, stack in (("decoder", model.decoder), ("encoder", model.encoder)):
        boundaries += [f"{side} layer {number} input" for number in range(len(stack.layers))]
    assert set(result.totals) == set(boundaries)
    assert all(total.shape == (4,) for total in result.totals.values())
    assert lost(result) < 1e-9
    reference = Reference(model, source, previous)
    logits = model(source, torch.tensor([5]), previous)[0][0].detach()
    torch.testing.assert_close(reference.logits.values, logits, atol=1e-9, rtol=0)
    for position in range(4):
        for (attention, number), heads in reference.relevance_of_heads(position).items():
            found = result.heads[attention][number][position]
            torch.testing.assert_close(found, heads, atol=1e-10, rtol=0)


def test_shares_are_relevance_divided_by_that_of_the_layer():
    result = head_relevance(make(), batch([5, 3], [4, 2]))
    for attention, number, heads in every_head(result):
        shares = result.shares()[attention][number]
        torch.testing.assert_close(shares.sum(dim=1), torch.ones(6), atol=1e-6, rtol=0)
        ratio = heads[:, :1] / heads[:, 1:2]
        torch.testing.assert_close(shares[:, :1] / shares[:, 1:2], ratio, atol=0, rtol=1e-4)


@pytest.mark.parametrize("norm", [{}, PRE_NORM], ids=["post-norm", "pre-norm"])
@pytest.mark.parametrize("how", ["columns", "values", "gate"])
def test_a_head_with_zero_output_has_exactly_no_relevance(how, norm):
    model = make(head_gates=ALL, **norm)
    with torch.no_grad():
        for number, (_, _, attention) in enumerate(attention_modules(model)):
            head = number % 4
            rows = slice(head * 4, (head + 1) * 4)
            if how == "columns":
                attention.out_proj.weight[:, rows] = 0.0
            elif how == "values":
                attention.v_proj.weight[rows] = attention.v_proj.bias[rows] = 0.0
            else:
                attention.gate.decide(torch.ones(4).index_fill(0, torch.tensor([head]), 0.0))
    result = head_relevance(model, batch([6, 4], [5, 3]))
    for number, (attention, layer, _) in enumerate(attention_modules(model)):
        heads = result.heads[attention][layer]
        assert not heads[:, number % 4].any()
        assert heads.sum(dim=1).all()
    assert lost(result) < 1e-4


@pytest.mark.parametrize("part", ["fc1", "fc2", "v_proj", "out_proj", "final_layer_norm"])
@pytest.mark.parametrize("size", [0.0, 1e-40])
@pytest.mark.parametrize("options", [{}, PRE_NORM], ids=["post-norm", "pre-norm"])
def test_vanishing_weights_lose_no_relevance(part, size, options):
    model = make(**options)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if f"{part}.weight" in name:
                parameter.view(len(parameter), -1)[::2] *= size
    result = head_relevance(model, batch([6], [5]))
    assert lost(result) < 1e-4
    assert all(heads.isfinite().all() for _, _, heads in every_head(result))


def test_heads_whose_layer_adds_its_bias_alone_have_no_relevance():
    model = make()
    with torch.no_grad():
        for _, _, attention in attention_modules(model):
            attention.out_proj.weight.zero_()
    result = head_relevance(model, batch([6], [5]))
    assert not any(own.any() for layers in result.shares().values() for own in layers.values())
    assert lost(result) < 1e-4


@pytest.mark.parametrize("at_once", [1, 3, 100])
def test_padding_other_sentences_and_chunking_make_no_difference(at_once):
    model = make()
    sample = batch([9, 3, 6], [7, 2, 5])
    assert sample["net_input"]["src_tokens"].eq(tiny_task().source_dictionary.pad()).any()
    together = head_relevance(model, sample, predictions_at_once=at_once)
    parts = [head_relevance(model, alone(*sentence)) for sentence in sentences(sample)]
    for attention, number, heads in every_head(together):
        apart = torch.cat([part.heads[attention][number] for part in parts])
        torch.testing.assert_close(heads, apart, atol=1e-6, rtol=1e-5)


def test_the_model_is_left_unchanged():
    model = make(dropout=0.3, encoder_layerdrop=0.5).train()
    model.decoder.layers[0].eval()
    modes = [module.training for module in model.modules()]
    first = head_relevance(model, batch([6], [5]))
    assert [module.training for module in model.modules()] == modes
    assert not any(module._forward_hooks for module in model.modules())
    second = head_relevance(model, batch([6], [5]))
    assert torch.equal(first.heads["cross"][0], second.heads["cross"][0])


@pytest.mark.parametrize(
    ("options", "option"),
    [
        ({"adaptive_softmax_cutoff": "8,16"}, "--adaptive-softmax-cutoff"),
        ({"cross_self_attention": True, "no_cross_attention": True}, "--cross-self-attention"),
        *(({f"scale_{one}": True}, f"--scale-{one}") for one in ("attn", "fc", "heads", "resids")),
    ],
)
def test_options_without_a_rule_are_refused_by_name(options, option):
    with pytest.raises(ValueError, match=f"with {option}: leave relevance out"):
        head_relevance(build_model(**options), batch([5], [4]))
