"""The model that copies: its distribution, decoding, embeddings, options and checkpoints."""

from argparse import Namespace

import pytest
import torch
from fairseq.models import ARCH_CONFIG_REGISTRY, ARCH_MODEL_INV_REGISTRY, ARCH_MODEL_REGISTRY
from fairseq.sequence_generator import EnsembleModel

from fairseq_entmax.mappings import Entmax, PerHeadMapping
from fairseq_entmax.models.copy_transformer import check_dictionaries
from tests.support import (
    EVERY_MAPPING,
    MARKERS,
    assert_steps_equal_the_whole_pass,
    batch,
    build_model,
    dictionary_of,
    marked_task,
    search,
    settings_of,
    spread_scores,
)

COPY = "entmax_copy_transformer"


def model_of(mapping="softmax", **options):
    options = {"source_position_markers": MARKERS, **options}
    return spread_scores(build_model(COPY, task=marked_task(), attn_mapping=mapping, **options))


def sample(target_lengths=(6, 8, 5)):
    """A batch with a marker twice in the first source, and only markers in the last."""
    made = batch([9, 7, 4], list(target_lengths), left_pad_source=True, left_pad_target=False)
    source = made["net_input"]["src_tokens"]
    first = len(marked_task().source_dictionary) - MARKERS
    source[0, 2] = source[0, 5] = first + 1
    source[2, -4:-1] = torch.tensor([first, first + 2, first])
    made["net_input"]["prev_output_tokens"][0, 2] = first + 1
    return made


@pytest.mark.parametrize(
    ("mapping", "dtype"),
    [("entmax", torch.float32), ("entmax", torch.float16), ("sparsemax", torch.bfloat16)],
)
def test_probabilities_sum_to_one_in_every_precision(mapping, dtype):
    model = model_of(mapping).to(dtype)
    output = model(**sample()["net_input"])
    for log_probs in (output[0], model.get_normalized_probs(output, log_probs=True)):
        sums = log_probs.double().exp().sum(-1)
        torch.testing.assert_close(sums, torch.ones_like(sums), atol=1e-6, rtol=0)


@pytest.mark.parametrize(
    ("mapping", "options", "layer", "heads"),
    [
        *((mapping, {"copy_heads": "2"}, 1, [2]) for mapping in EVERY_MAPPING),
        ("entmax", {"copy_heads": "0,3", "copy_layer": -2}, 0, [0, 3]),
    ],
)
def test_the_copy_distribution_is_the_mean_weight_of_the_copy_heads(mapping, options, layer, heads):
    model, made = model_of(mapping, **options).double(), sample()["net_input"]
    weights = []
    with model.decoder.layers[layer].encoder_attn.observed(weights.append):
        log_probs, extra = model(**made)
    g = torch.sigmoid(extra["copy"].switch)
    with torch.no_grad():
        logits, _ = model(**made, mixed=False)
    expected = torch.zeros_like(log_probs)
    expected[..., : logits.size(-1)] = g[..., None] * logits.softmax(-1)
    copied = weights[0][:, heads].mean(1)
    for sentence, words in enumerate(made["src_tokens"].tolist()):
        for position, word in enumerate(words):
            expected[sentence, :, word] += (1 - g[sentence]) * copied[sentence, :, position]
    torch.testing.assert_close(log_probs.exp(), expected, atol=1e-9, rtol=0)
    torch.testing.assert_close(extra["attn"][0], copied, atol=1e-9, rtol=0)


def test_only_markers_of_the_source_have_a_probability():
    log_probs, _ = model_of()(**sample()["net_input"])
    first = len(marked_task().source_dictionary) - MARKERS
    reachable = (log_probs[:, :, first:] > -torch.inf).all(1)
    expected = [[False, True, False], [False, False, False], [True, False, True]]
    assert reachable.tolist() == expected
    assert (log_probs[..., :first] > -torch.inf).all()


@pytest.mark.parametrize("is_shared", [False, True])
def test_markers_have_no_embedding_and_use_that_of_the_unknown_word(is_shared):
    model, dictionary = model_of(share_all_embeddings=is_shared), marked_task().source_dictionary
    num_words = len(dictionary) - MARKERS
    words = torch.tensor([[len(dictionary) - 1, 6, dictionary.unk()]])
    for embedding in (model.encoder.embed_tokens, model.decoder.embed_tokens):
        assert embedding.num_embeddings == num_words
        vectors = embedding(words)
        assert torch.equal(vectors[0, 0], vectors[0, 2])
        assert not torch.equal(vectors[0, 0], vectors[0, 1])
    generator = model.decoder.output_projection.weight
    assert generator.size(0) == num_words
    assert (generator is model.encoder.embed_tokens.weight) == is_shared
    assert model(**sample()["net_input"])[0].size(-1) == len(dictionary)


@pytest.mark.parametrize("mapping", EVERY_MAPPING)
def test_stepwise_decoding_matches_the_whole_pass(mapping):
    assert_steps_equal_the_whole_pass(model_of(mapping).double(), sample())


@torch.no_grad()
def last_step(models, made, temperature=1.0):
    """What fairseq's search receives for the last word, computed word by word."""
    ensemble = EnsembleModel(models)
    encoder_outs, states = ensemble.forward_encoder(made), [{} for _ in models]
    tokens = made["prev_output_tokens"]
    for n in range(tokens.size(1)):
        step = ensemble.forward_decoder(tokens[:, : n + 1], encoder_outs, states, temperature)
    return step


@pytest.mark.parametrize("temperature", [0.5, 3.0])
def test_the_temperature_acts_on_the_mixture(temperature):
    model, made = model_of("sparsemax"), sample((6, 6, 6))["net_input"]
    log_probs, _ = last_step([model], made, temperature)
    with torch.no_grad():
        last = model(**made)[0][:, -1].double()
    expected = (last / temperature).log_softmax(-1)
    torch.testing.assert_close(log_probs.double(), expected, atol=1e-5, rtol=1e-5)


def test_an_ensemble_averages_its_mixtures():
    models = [model_of("sparsemax"), model_of("softmax", seed=2)]
    made = sample((6, 6, 6))["net_input"]
    log_probs, attention = last_step(models, made)
    with torch.no_grad():
        single = [model(**made) for model in models]
    mean = sum(output[:, -1].double().exp() for output, _ in single) / 2
    torch.testing.assert_close(log_probs.double().exp(), mean, atol=1e-6, rtol=0)
    expected = sum(extra["attn"][0][:, -1] for _, extra in single) / 2
    torch.testing.assert_close(attention, expected, atol=1e-6, rtol=0)


@pytest.mark.parametrize("sampling", [False, True])
def test_a_search_copies_only_markers_of_its_own_sentence(sampling):
    model, made = model_of("sparsemax"), sample()
    with torch.no_grad():
        model.decoder.copy_switch.bias.fill_(-2.0)
    found = search(model, made, marked_task(), max_len_b=8, sampling=sampling)
    first, markers = len(marked_task().source_dictionary) - MARKERS, []
    for source, hypotheses in zip(made["net_input"]["src_tokens"].tolist(), found, strict=True):
        words = {word for tokens, _ in hypotheses for word in tokens if word >= first}
        assert words <= set(source)
        markers += words
    assert markers


def test_recomputed_layers_give_the_same_gradients():
    gradients = []
    for recomputed in (False, True):
        model = model_of("entmax", checkpoint_activations=recomputed).train()
        log_probs, _ = model(**sample()["net_input"])
        log_probs.exp().square().sum().backward()
        gradients.append([p.grad for p in model.parameters()])
    torch.testing.assert_close(*gradients, atol=1e-5, rtol=1e-4)


def test_copy_heads_can_have_another_mapping():
    model = model_of("entmax", copy_mapping="sparsemax", copy_heads="1")
    mapping = model.decoder.copy_attention().mapping
    assert isinstance(mapping, PerHeadMapping)
    assert mapping.part_of == (0, 1, 0, 0)
    assert [part.fixed_alpha for part in mapping.parts] == [None, 2.0]
    assert isinstance(model.decoder.layers[0].encoder_attn.mapping, Entmax)
    per_head = model_of(cross_attn_mapping="softmax,sparsemax|entmax15*3", copy_mapping="softmax")
    assert str(per_head.attention_options.specs["cross"][1]) == "softmax|entmax15*3"


@pytest.mark.parametrize("arch", ["transformer", "entmax_transformer"])
def test_a_checkpoint_without_copying_can_be_loaded(arch, caplog):
    start = build_model(arch)
    model = build_model(COPY, seed=7)
    switch = model.decoder.copy_switch.weight.clone()
    model.load_state_dict(start.state_dict())
    assert torch.equal(model.decoder.copy_switch.weight, switch)
    assert torch.equal(model.encoder.layers[0].fc1.weight, start.encoder.layers[0].fc1.weight)
    assert "no switch between generating and copying" in caplog.text


@pytest.mark.parametrize("shared", [True, False])
def test_rows_of_markers_in_a_checkpoint_are_left_out(shared):
    options = {"share_all_embeddings": shared}
    start = build_model("transformer", task=marked_task(), **options)
    model = model_of(seed=7, **options)
    model.load_state_dict(start.state_dict())
    words = model.decoder.num_generated
    assert words == start.decoder.embed_tokens.num_embeddings - MARKERS
    for ours, theirs in (
        (model.encoder.embed_tokens, start.encoder.embed_tokens),
        (model.decoder.output_projection, start.decoder.output_projection),
    ):
        assert torch.equal(ours.weight, theirs.weight[:words])


def test_a_checkpoint_with_another_vocabulary_is_refused():
    model = build_model(COPY)
    state = model.state_dict()
    state["decoder.embed_tokens.weight"] = state["decoder.embed_tokens.weight"][:-1]
    with pytest.raises(ValueError, match="the checkpoint has 23 words in decoder"):
        model.load_state_dict(state)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"copy_layer": 2}, "--copy-layer 2: the decoder has 2 layers, from 0 to 1, or from -1"),
        ({"copy_layer": "top"}, "--copy-layer: must be a whole number from"),
        ({"copy_heads": "4"}, "--copy-heads 4: layer 1 of the cross attention has heads 0 to 3"),
        ({"copy_heads": "0,0"}, "--copy-heads: a head is named twice"),
        ({"copy_heads": ""}, "--copy-heads: heads must be whole numbers"),
        ({"copy_mapping": "softmin"}, "--copy-mapping: .*softmin"),
        ({"copy_mapping": "softmax|sparsemax*3"}, "--copy-mapping: must be one mapping"),
        ({"cross_attn_heads": "4,0"}, "--copy-heads 0: layer 1 .* no heads, as they were pruned"),
        ({"source_position_markers": -1}, "--source-position-markers: must be a whole number"),
        ({"no_cross_attention": True}, "--no-cross-attention leaves no cross-attention to copy"),
        ({"adaptive_softmax_cutoff": "8,12"}, "adaptive-softmax-cutoff has no single distribution"),
    ],
)
def test_invalid_options_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        model_of(**options)


@pytest.mark.parametrize(
    ("words", "markers", "message"),
    [
        (["a"], 3, "ends with 0 words <unk-0>, .*: make it with 'fairseq-entmax oov vocabulary'"),
        (["a", "<unk-0>", "<unk-1>"], 3, "ends with 2 words .*: give --source-position-markers 2"),
        (["a", "<unk-1>", "<unk-2>"], 2, "ends with 0 words"),
        (["a", "<unk-0>", "b", "<unk-0>x"], 1, "ends with 0 words"),
    ],
)
def test_source_and_target_need_one_dictionary_that_ends_with_markers(words, markers, message):
    dictionary = dictionary_of(words)
    with pytest.raises(ValueError, match=message):
        check_dictionaries(dictionary, dictionary, markers)
    with pytest.raises(ValueError, match=r"needs one dictionary .* --joined-dictionary"):
        check_dictionaries(dictionary, dictionary_of(["a", "c"]), 0)
    check_dictionaries(*[dictionary_of(["<unk-0>", "<unk-1>"])] * 2, 2)


def test_the_opennmt_architecture_has_the_sizes_of_the_paper():
    args = Namespace(arch="entmax_copy_transformer_opennmt", decoder_layers=3)
    ARCH_CONFIG_REGISTRY[args.arch](args)
    for side in ("encoder", "decoder"):
        assert getattr(args, f"{side}_embed_dim") == 512
        assert getattr(args, f"{side}_ffn_embed_dim") == 2048
        assert getattr(args, f"{side}_attention_heads") == 8
        assert getattr(args, f"{side}_normalize_before")
    assert (args.encoder_layers, args.decoder_layers) == (4, 3)
    assert args.share_all_embeddings


def test_every_transformer_architecture_has_a_copying_one_with_extra_options():
    plain = ARCH_MODEL_INV_REGISTRY["entmax_transformer"]
    expected = {name.replace("entmax_", "entmax_copy_", 1) for name in plain}
    assert set(ARCH_MODEL_INV_REGISTRY[COPY]) == expected | {"entmax_copy_transformer_opennmt"}
    assert "copy_layer" in ARCH_MODEL_REGISTRY[COPY]._option_names()
    assert not hasattr(settings_of(), "copy_layer")
