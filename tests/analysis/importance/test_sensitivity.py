"""The gradient of the loss in a factor on each head, and finite differences in float64."""

from functools import partial

import pytest

from fairseq_entmax.analysis.importance.sensitivity import head_sensitivity
from fairseq_entmax.attention import attention_modules
from tests.analysis.brute_force import sentence_losses
from tests.analysis.data_types.small import slope
from tests.analysis.importance.test_relevance import ALL, PRE_NORM, make
from tests.support import batch, build_model, tiny_task

PAD = tiny_task().source_dictionary.pad()
PRUNED = {"encoder_self_attn_heads": "0,3", "cross_attn_heads": "1,0"}


def assert_matches_differences(result, model, sample):
    losses = partial(sentence_losses, model, sample)
    for attention, layer, module in attention_modules(model):
        for head in range(module.num_heads):
            columns = module.out_proj.weight[:, head * module.head_dim :][:, : module.head_dim]
            expected = slope(losses, columns, step=1e-5)
            found = result[attention][layer][:, head]
            assert found.tolist() == pytest.approx(expected, abs=1e-8, rel=1e-6)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"attn_mapping": "softmax"},
        PRE_NORM,
        {"head_gates": ALL},
        PRUNED,
        {"no_cross_attention": True},
        {"checkpoint_activations": True},
    ],
    ids=lambda options: ",".join(options) or "plain",
)
def test_sensitivity_is_the_derivative_of_each_sentences_loss(options):
    model = make(dropout=0.3, **options).double()
    sample = batch([7, 3, 5], [5, 2, 4])
    assert sample["target"].eq(PAD).any()
    result = head_sensitivity(model.train(), sample)
    shapes = {(a, n): tuple(s.shape) for a, layers in result.items() for n, s in layers.items()}
    assert shapes == {(a, n): (3, m.num_heads) for a, n, m in attention_modules(model)}
    assert_matches_differences(result, model.eval(), sample)


def test_the_model_is_left_unchanged_even_by_an_error():
    model = make().train()
    sample = batch([6], [5])
    sample["target"] = sample["target"] + 1000  # tokens outside the vocabulary
    with pytest.raises(IndexError):
        head_sensitivity(model, sample)
    assert all(module.training for module in model.modules())
    assert all(parameter.requires_grad for parameter in model.parameters())
    assert not any(module._forward_pre_hooks for module in model.modules())


def test_an_adaptive_softmax_is_refused_by_name():
    model = build_model(adaptive_softmax_cutoff="8,16")
    with pytest.raises(ValueError, match="with --adaptive-softmax-cutoff: leave the gradient out"):
        head_sensitivity(model, batch([6], [5]))
