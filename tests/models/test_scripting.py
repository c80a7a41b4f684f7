"""Models in TorchScript, quantised, and traced for ONNX."""

import pytest
import torch
from fairseq.sequence_generator import EnsembleModel, SequenceGenerator
from torch import nn

from fairseq_entmax.attention import MultiheadAttention
from fairseq_entmax.mappings import parse_mapping, parse_mappings
from tests.language_models import ADAPTIVE, build_text_model, text_batch
from tests.support import all_gates, batch, build_model, build_roberta, padded, spread_scores

pytestmark = pytest.mark.slow

# Learned alphas, per-head mappings, fewer heads, gates, a layer without heads
SHAPES = {
    "learned": {"attn_mapping": "entmax"},
    "all kinds": {
        "encoder_self_attn_mapping": "softmax|sparsemax",
        "decoder_self_attn_mapping": "entmax15",
        "cross_attn_mapping": "entmax|softmax:temperature=2|entmax:alpha=1.3|entmax",
        "encoder_self_attn_heads": "2",
        "head_gates": "encoder-self,cross",
        "decoder_normalize_before": True,
    },
    "without heads": {
        "attn_mapping": "sparsemax:temperature=0.5",
        "decoder_self_attn_heads": "0",
        "checkpoint_activations": True,
    },
}
SMALL = {"encoder_layers": 1, "decoder_layers": 1}


def model_of(shape):
    model = spread_scores(build_model(**SMALL, **SHAPES[shape]))
    with torch.no_grad():
        for gate in all_gates(model):
            gate.weight.copy_(torch.linspace(-0.1, 0.1, gate.num_heads))
    return model


@pytest.fixture(scope="module", params=SHAPES)
def pair(request):
    """A model and its scripted version."""
    model = model_of(request.param)
    return model, torch.jit.script(model)


def sources(sample):
    inputs = sample["net_input"]
    return {name: inputs[name] for name in ("src_tokens", "src_lengths")}


def inputs_of(sample):
    return *sources(sample).values(), sample["net_input"]["prev_output_tokens"]


def generator(*models):
    return SequenceGenerator(models, models[0].decoder.dictionary, beam_size=3, max_len_b=8)


@torch.no_grad()
def test_a_scripted_model_gives_the_same_scores(pair):
    model, scripted = pair
    inputs = inputs_of(batch([9, 7, 4], [6, 8, 3]))
    output, extra = scripted(*inputs)
    expected, expected_extra = model(*inputs)
    torch.testing.assert_close(output, expected, atol=1e-5, rtol=0)
    torch.testing.assert_close(extra["attn"][0], expected_extra["attn"][0], atol=1e-5, rtol=0)
    probs = scripted.get_normalized_probs((output, extra), True)
    expected = model.get_normalized_probs((expected, expected_extra), True)
    torch.testing.assert_close(probs, expected, atol=1e-5, rtol=0)


@torch.no_grad()
def test_a_scripted_beam_search_finds_the_same(pair):
    model, _ = pair
    sample = {"net_input": sources(batch([9, 7, 4], [6, 8, 3]))}
    expected = generator(model).generate([model], sample)
    found = torch.jit.script(generator(model))(sample)
    for ours, theirs in zip(found, expected, strict=True):
        assert len(ours) == len(theirs) == 3
        for one, other in zip(ours, theirs, strict=True):
            for name in ("tokens", "score", "attention"):
                torch.testing.assert_close(one[name], other[name], atol=1e-5, rtol=0)


def test_scripting_leaves_the_model_trainable():
    model = model_of("all kinds").train()
    before = {name: type(part) for name, part in model.named_modules()}
    torch.jit.script(EnsembleModel([model]))
    assert {name: type(part) for name, part in model.named_modules()} == before
    model(*inputs_of(batch([4], [3])))[0].sum().backward()
    assert all(gate.weight.grad is not None for gate in all_gates(model))


@torch.no_grad()
def test_a_quantised_model_gives_the_same_result_scripted():
    model = build_model(**SMALL, attn_mapping="entmax")
    quantised = torch.ao.quantization.quantize_dynamic(model, {nn.Linear}, dtype=torch.qint8)
    inputs = inputs_of(batch([9, 4], [6, 3]))
    output = quantised(*inputs)[0]
    assert 0 < (output - model(*inputs)[0]).abs().max() < 0.5
    torch.testing.assert_close(torch.jit.script(quantised)(*inputs)[0], output, atol=1e-5, rtol=0)


@torch.no_grad()
def test_a_scripted_language_model_gives_the_same_probabilities():
    model = build_text_model(decoder_layers=1, attn_mapping="entmax")
    scripted = torch.jit.script(model)
    tokens = text_batch()["net_input"]["src_tokens"]
    found = scripted.get_normalized_probs(scripted(tokens), False)
    expected = model.get_normalized_probs(model(tokens), False)
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=0)


@torch.no_grad()
def test_the_encoder_of_a_roberta_can_be_scripted():
    encoder = build_roberta(attn_mapping="entmax").encoder.sentence_encoder
    tokens = padded([[5, 6, 7, 2], [5, 8, 2]])
    expected = encoder(tokens)["encoder_out"][0]
    modules = list(encoder.modules())
    found = torch.jit.script(encoder)(tokens)["encoder_out"][0]
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=0)
    assert list(encoder.modules()) == modules


class Attentions(nn.Sequential):
    """Self-attention, six times; nothing else refers to its modules."""

    def __init__(self):
        mapping = parse_mapping("entmax15")
        super().__init__(
            *(
                MultiheadAttention(16, 4, mapping=mapping.build(4), self_attention=True)
                for _ in range(6)
            )
        )

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        for attention in self:
            states = attention(states, states, states)[0]
        return states


@torch.no_grad()
def test_other_modules_may_contain_several_attentions():
    model, states = Attentions().eval(), torch.randn(5, 2, 16)
    expected = model(states)
    torch.testing.assert_close(torch.jit.script(model)(states), expected, atol=1e-5, rtol=0)


@pytest.mark.parametrize("mapping", ["softmax", "entmax15:temperature=2|sparsemax"])
@torch.no_grad()
def test_a_finite_mask_is_added_before_the_temperature(mapping):
    torch.manual_seed(4)
    (spec,) = parse_mappings(mapping)
    module = MultiheadAttention(16, 2, mapping=spec.build(2), self_attention=True).eval()
    states, mask = torch.randn(5, 2, 16), torch.randn(5, 5)
    expected = module(states, states, states, attn_mask=mask)
    found = torch.jit.script(module)(states, states, states, attn_mask=mask)
    torch.testing.assert_close(found, expected, atol=1e-6, rtol=0)


@pytest.mark.parametrize(
    ("build", "sentence"),
    [
        (lambda: build_model(attn_mapping="fusedmax"), "mapping fusedmax .* cannot be scripted"),
        (lambda: build_model(output_alpha=1.5), "--output-alpha 1.5 cannot .* model.decoder"),
        (lambda: build_model("entmax_copy_transformer"), "copies cannot .* fairseq-generate"),
        (build_roberta, "neither can fairseq's own: script model.encoder.sentence_encoder"),
        (lambda: build_text_model(**ADAPTIVE), "--adaptive-input.* cannot be scripted"),
    ],
    ids=["structured", "sparse output", "copying", "roberta", "adaptive"],
)
def test_models_that_cannot_be_scripted_say_so_in_one_line(build, sentence):
    model = build()
    with pytest.raises(ValueError, match=sentence) as refusal:
        torch.jit.script(model)
    assert "\n" not in str(refusal.value)
    with pytest.raises(ValueError, match=sentence):
        model.prepare_for_onnx_export_()


class Encoder(nn.Module):
    """The encoder's output as a tensor, which a tracer understands."""

    def __init__(self, encoder):
        super().__init__()
        self.encoder = encoder

    def forward(self, tokens, lengths):
        return self.encoder(tokens, lengths)["encoder_out"][0]


@torch.no_grad()
def test_a_trace_for_onnx_has_only_torchs_operations_and_allows_other_lengths(monkeypatch):
    model = model_of("all kinds")
    long, short = (tuple(sources(batch(sizes, sizes)).values()) for sizes in ([9, 7, 4], [3, 2]))
    expected = model.encoder(*short)["encoder_out"][0]
    with monkeypatch.context() as patch:
        patch.setattr(torch.onnx, "is_in_onnx_export", lambda: True)
        encoder = model.encoder.requires_grad_(False)
        with pytest.raises(RuntimeError, match="prepare_for_onnx_export_"):
            torch.jit.trace(lambda *given: encoder(*given)["encoder_out"][0], long)
    model.prepare_for_onnx_export_()
    assert not any(isinstance(part, MultiheadAttention) for part in model.modules())
    traced = torch.jit.trace(Encoder(model.encoder), long)
    assert " = ^" not in str(traced.inlined_graph)  # calls of functions in Python
    torch.testing.assert_close(traced(*short), expected, atol=1e-5, rtol=0)


def attention(kind=MultiheadAttention):
    module = MultiheadAttention(8, 2, parse_mapping("entmax").build(2), self_attention=True).eval()
    module.__class__ = kind
    return module


def test_a_sentence_of_padding_alone_gives_the_same_result_scripted(tmp_path):
    module, path = attention(), str(tmp_path / "attention.pt")
    inputs = torch.randn(5, 3, 8, generator=torch.Generator().manual_seed(1)) * 3
    padding = torch.tensor([[False] * 5, [False] * 4 + [True], [True] * 5])
    torch.jit.script(module).save(path)
    found = torch.jit.load(path)(inputs, inputs, inputs, padding, need_head_weights=True)
    expected = module(inputs, inputs, inputs, padding, need_head_weights=True)
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=0)


@torch.no_grad()
def test_a_trace_gives_the_same_result_for_other_words_and_padding():
    module = attention().requires_grad_(False)
    attend = lambda words, padding: module(words, words, words, padding, need_weights=False)[0]  # noqa: E731
    torch.manual_seed(1)
    first, other = ((torch.randn(length, 3, 8), torch.rand(3, length) < 0.3) for length in (5, 9))
    found = torch.jit.trace(attend, first)(*other)
    torch.testing.assert_close(found, attend(*other), atol=1e-5, rtol=0)


def test_scripted_attentions_have_separate_caches():
    first, second = (torch.jit.script(attention()) for _ in range(2))
    state = first.set_incremental_state({}, "key", {"a": torch.tensor([1])})
    state = second.set_incremental_state(state, "key", {"a": torch.tensor([2])})
    assert first.get_incremental_state(state, "key")["a"] == 1
    assert second.get_incremental_state(state, "key")["a"] == 2


class Changed(MultiheadAttention):
    def forward(self, *args, **options):
        return super().forward(*args, **options)


def test_a_subclass_that_changes_attention_is_refused():
    with pytest.raises(ValueError, match=r"Changed cannot be .* it overrides forward of Multihead"):
        torch.jit.script(attention(Changed))
