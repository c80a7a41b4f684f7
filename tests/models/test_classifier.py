"""The model that classifies: its encoder is fairseq's, its pooling the formula, its batches free."""

import math
from argparse import Namespace
from types import SimpleNamespace

import pytest
import torch
from fairseq.criterions.sentence_prediction import (
    SentencePredictionConfig,
    SentencePredictionCriterion,
)
from fairseq.models import ARCH_CONFIG_REGISTRY
from fairseq.models.transformer import TransformerConfig, TransformerEncoderBase

from fairseq_entmax.mappings import fusedmax, sparsemax
from fairseq_entmax.models import EntmaxClassifierModel
from fairseq_entmax.models.checkpoint_model import model_of_state
from tests.support import (
    EVERY_MAPPING,
    TINY,
    build_classifier,
    build_model,
    classification_task,
    padded,
)

HEAD = "sentence_classification_head"
ALONE = [[9, 7, 4, 8, 2], [5, 6, 2], [2], [4, 4, 4, 2]]
PAIRS = [[9, 7, 4, 2, 5, 6, 2], [5, 2, 7, 2], [4, 8, 2, 2], [2, 9, 2], [4, 4, 4, 2, 10, 11, 12, 2]]


def run(model, sources, head=HEAD):
    tokens = padded(sources)
    lengths = torch.tensor([len(source) for source in sources])
    return model(tokens, lengths, features_only=True, classification_head_name=head)


def sample(sources=ALONE, targets=(0, 1, 2, 0)):
    lengths = torch.tensor([len(source) for source in sources])
    net_input = {"src_tokens": padded(sources), "src_lengths": lengths}
    return {
        "net_input": net_input,
        "target": torch.tensor(targets)[:, None],
        "ntokens": int(lengths.sum()),
    }


def criterion(task=None, **options):
    return SentencePredictionCriterion(
        SentencePredictionConfig(**options), task or classification_task()
    )


@pytest.mark.parametrize(
    "options", [{}, {"encoder_normalize_before": True, "layernorm_embedding": True}]
)
def test_with_softmax_the_encoder_is_fairseqs_to_the_bit(options):
    model = build_classifier(attn_mapping="softmax", **options)
    cfg = TransformerConfig.from_namespace(Namespace(**{**TINY, **options}))
    task = classification_task()
    embedding = torch.nn.Embedding(len(task.source_dictionary), 16, 1)
    stock = TransformerEncoderBase(cfg, task.source_dictionary, embedding).eval()
    stock.load_state_dict(model.encoder.state_dict())
    for layer in stock.layers:
        layer.can_use_fastpath = False  # torch's fused layer rounds otherwise
    tokens = padded(ALONE)
    encoded = [one(tokens, torch.tensor([5, 3, 1, 4])) for one in (model.encoder, stock)]
    assert torch.equal(encoded[0]["encoder_out"][0], encoded[1]["encoder_out"][0])


def test_the_same_seed_gives_the_same_weights_whatever_the_mappings():
    first = build_classifier(attn_mapping="softmax").state_dict()
    for mapping, pooling in (("entmax", "softmax"), ("sparsemax", "entmax:tv=learned")):
        own = build_classifier(attn_mapping=mapping, pooling_mapping=pooling).state_dict()
        assert all(torch.equal(own[name], value) for name, value in first.items())


@pytest.mark.parametrize("mapping", EVERY_MAPPING)
@pytest.mark.parametrize("is_pair", [False, True])
def test_a_text_is_classified_alone_as_in_any_batch(mapping, is_pair):
    pooling = "fusedmax" if "|" in mapping else mapping
    model = build_classifier(
        attn_mapping=mapping, pooling_mapping=pooling, pooling_heads=2, pair_attention=is_pair
    )
    sources = PAIRS if is_pair else ALONE
    scores, extra = run(model, sources)
    for row, source in enumerate(sources):
        alone, own = run(model, [source])
        torch.testing.assert_close(alone[0], scores[row], atol=1e-5, rtol=1e-5)
        for name, weights in extra["pooling"].items():
            assert (weights[row, :, len(source) :] == 0).all()
            torch.testing.assert_close(
                own["pooling"][name][0], weights[row, :, : len(source)], atol=1e-5, rtol=1e-5
            )


def test_a_pair_is_pooled_as_a_plain_loop_does_it():
    model = build_classifier(
        pair_attention=True, pooling_mapping="sparsemax", pair_mapping="fusedmax:tv=0.05"
    ).double()
    scores, extra = run(model, PAIRS)
    states = extra["encoder_out"]["encoder_out"][0]
    hypothesis, premise = model.poolings["hypothesis"], model.poolings["premise"]
    for row, source in enumerate(PAIRS):
        end = source.index(2)
        sides = [range(end + 1), range(end + 1, len(source))]
        words = [[at for at in side if source[at] > 3] or list(side) for side in sides]

        def pool(pooling, query, own, mapping, row=row):
            keys = [pooling.k_proj(states[at, row]) @ query / math.sqrt(16) for at in own]
            probs = mapping(torch.stack(keys))
            values = torch.stack([pooling.v_proj(states[at, row]) for at in own])
            return pooling.out_proj(probs @ values), probs

        second, of_second = pool(hypothesis, hypothesis.query[0], words[1], sparsemax)
        asked = premise.q_proj(second)
        first, of_first = pool(premise, asked, words[0], lambda z: fusedmax(z, 0.05))
        features = torch.tanh(model.combine(torch.cat([first, second])))
        expected = model.classification_heads[HEAD].out_proj(features)
        torch.testing.assert_close(scores[row], expected, atol=1e-10, rtol=0)
        for name, own, probs in (
            ("hypothesis", words[1], of_second),
            ("premise", words[0], of_first),
        ):
            weights = scores.new_zeros(extra["pooling"][name].size(2))
            weights[own] = probs
            torch.testing.assert_close(extra["pooling"][name][row, 0], weights, atol=1e-10, rtol=0)


def test_a_source_without_a_second_text_is_refused_by_a_model_of_pairs():
    with pytest.raises(ValueError, match="--pair-attention: source 1 of a batch"):
        run(build_classifier(pair_attention=True), [PAIRS[0], ALONE[0]])


@pytest.mark.parametrize("is_pair", [False, True])
def test_every_parameter_learns_and_the_loss_falls(is_pair):
    model = build_classifier(
        pair_attention=is_pair, pooling_mapping="entmax:tv=learned", alpha_init=1.5
    ).train()
    sources, targets = (PAIRS, (0, 1, 2, 0, 1)) if is_pair else (ALONE, (0, 1, 2, 0))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    losses = []
    for _ in range(20):
        loss, size, log = criterion()(model, sample(sources, targets))
        losses.append(loss.item())
        optimizer.zero_grad()
        loss.backward()
        if len(losses) == 1:
            assert all(parameter.grad is not None for parameter in model.parameters())
        optimizer.step()
    assert losses[-1] < losses[0] / 2
    assert (size, log["nsentences"]) == (len(sources), len(sources))


def test_probabilities_are_the_softmax_of_the_scores_and_heads_share_the_encoder():
    model = build_classifier()
    model.register_classification_head("other", num_classes=5)
    output = run(model, ALONE, "other")
    assert output[0].shape == (4, 5)
    for log_probs, function in ((False, torch.softmax), (True, torch.log_softmax)):
        found = model.get_normalized_probs(output, log_probs)
        torch.testing.assert_close(found, function(output[0].float(), -1))
    features, extra = model(padded(ALONE))
    assert features.shape == (4, 16)
    torch.testing.assert_close(model.classification_heads["other"](features), output[0])
    assert list(extra["pooling"]) == ["pooling"]


def test_the_mapping_of_pooling_is_that_of_the_top_layer_unless_it_is_named():
    def texts(**options):
        model = build_classifier(**options)
        return {name: str(spec) for name, spec in model.attention_options.pooling.specs.items()}

    assert texts(attn_mapping="softmax,sparsemax") == {"pooling": "sparsemax"}
    assert texts(attn_mapping="softmax", pooling_mapping="fusedmax") == {"pooling": "fusedmax"}
    assert texts(pair_attention=True, pooling_mapping="entmax15") == {
        "hypothesis": "entmax15",
        "premise": "entmax15",
    }
    assert texts(pair_attention=True, pair_mapping="softmax") == {
        "hypothesis": "entmax",
        "premise": "softmax",
    }


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"pooling_heads": 3}, "--pooling-heads 3 does not divide the width --encoder-embed-dim"),
        ({"pooling_heads": "0"}, "--pooling-heads: must be a whole number from 1"),
        ({"pooling_mapping": "hardmax"}, "--pooling-mapping: unknown mapping 'hardmax'"),
        (
            {"pooling_mapping": "softmax,softmax"},
            "--pooling-mapping: must be the mapping of one layer, not the list 'softmax,softmax'",
        ),
        ({"pair_mapping": "fusedmax"}, "--pair-mapping fusedmax is of --pair-attention, which is"),
        (
            {"attn_mapping": "softmax|sparsemax*3"},
            "--pooling-mapping \\(the mapping of the encoder's top layer\\): .* names 4 heads",
        ),
        (
            {"pair_attention": True, "pair_mapping": "softmax|sparsemax"},
            "--pair-mapping: .*names 2 heads",
        ),
        ({"cross_attn_mapping": "softmax"}, "this model has no cross attention, only encoder-self"),
        ({"output_alpha": 1.5}, "--output-alpha with alpha 1.5: this model writes no words"),
    ],
)
def test_a_wrong_option_is_refused_in_one_sentence(options, message):
    with pytest.raises(ValueError, match=message):
        build_classifier(**options)


# --- checkpoints ------------------------------------------------------------------


def test_a_head_of_other_classes_starts_anew_and_is_logged(caplog):
    first = build_classifier(seed=1)
    second = build_classifier(seed=2, task=classification_task(num_classes=7))
    before = second.classification_heads[HEAD].out_proj.weight.clone()
    second.check_criterion(SimpleNamespace(task=None))  # as fairseq's trainer is made
    second.load_state_dict(first.state_dict())
    assert torch.equal(second.classification_heads[HEAD].out_proj.weight, before)
    assert torch.equal(second.poolings["pooling"].query, first.poolings["pooling"].query)
    assert f"{HEAD} of the checkpoint, of 3 classes, is left out" in caplog.text


def test_another_task_than_that_of_classes_is_refused():
    with pytest.raises(ValueError, match="give --task sentence_prediction"):
        build_model("entmax_classifier")


def test_a_head_that_nobody_trained_for_these_classes_is_refused_outside_of_training():
    state = build_classifier().state_dict()
    other = build_classifier(task=classification_task(num_classes=7))
    message = f"has no classification head {HEAD} of 7 classes, but {HEAD} of 3: give"
    with pytest.raises(ValueError, match=message):
        other.load_state_dict(state)
    named = build_classifier(task=classification_task(classification_head_name="mine"))
    with pytest.raises(ValueError, match="has no classification head mine of 3 classes, but sen"):
        named.load_state_dict(state)


def test_the_encoder_of_a_translation_model_starts_a_classifier(caplog):
    translation = build_model("entmax_transformer", seed=5)
    task = classification_task()
    task.source_dictionary.add_symbol("<mask>")  # as fairseq's task adds it to the data's
    model = build_classifier(seed=2, task=task)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    model.load_state_dict(translation.state_dict())
    state, theirs = model.state_dict(), translation.state_dict()
    for name, value in state.items():
        if name == "encoder.embed_tokens.weight":
            assert torch.equal(value[:-1], theirs[name])
            assert torch.equal(value[-1], before[name][-1])
        elif name.startswith("encoder."):
            assert torch.equal(value, theirs[name])
        else:
            assert torch.equal(value, before[name])
    assert "its encoder is taken" in caplog.text


def test_the_encoder_of_a_pruned_translation_model_brings_its_heads(tmp_path):
    heads = {"encoder_self_attn_heads": "3,2", "decoder_self_attn_heads": "4,1"}
    translation = build_model("entmax_transformer", **heads)
    args = Namespace(arch="entmax_transformer", **TINY, **heads)
    path = tmp_path / "pruned.pt"
    torch.save({"model": translation.state_dict(), "args": args}, path)
    model = build_classifier(save_dir=str(tmp_path / "new"), finetune_from_model=str(path))
    assert model.attention_options.heads == {"encoder-self": [3, 2]}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"pair_attention": True}, "pools by pooling, the model by hypothesis and premise"),
        ({"pooling_heads": 2}, "give the --pooling-heads that it was trained with"),
        ({"pooling_mapping": "softmax"}, "poolings.pooling.mapping.alpha_logit of other mappings"),
    ],
)
def test_a_checkpoint_that_pools_otherwise_is_refused(options, message):
    state = build_classifier().state_dict()
    with pytest.raises(ValueError, match=message):
        build_classifier(**options).load_state_dict(state)


def test_what_the_mapping_of_pooling_learns_beyond_the_checkpoint_starts_anew(caplog):
    model = build_classifier(pooling_mapping="entmax:tv=learned", tv_init=0.3)
    before = model.poolings["pooling"].mapping.raw_tv.clone()
    first = build_classifier(seed=7)
    model.load_state_dict(first.state_dict())
    mapping = model.poolings["pooling"].mapping
    assert torch.equal(mapping.raw_tv, before)
    assert torch.equal(mapping.alpha_logit, first.poolings["pooling"].mapping.alpha_logit)
    assert "no value for poolings.pooling.mapping.raw_tv, which start as in a new" in caplog.text


def test_which_model_is_in_a_checkpoint_is_read_from_its_settings():
    task = classification_task()
    args = Namespace(arch="entmax_classifier_small", pair_attention=True)
    ARCH_CONFIG_REGISTRY[args.arch](args)
    model = EntmaxClassifierModel.build_model(args, task)
    saved = model_of_state({"model": model.state_dict(), "args": args}, "x.pt")
    assert saved.options.pooling.is_pair
    assert saved.options.heads == {"encoder-self": [4, 4]}
