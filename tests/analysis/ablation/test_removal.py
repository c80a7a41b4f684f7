"""A model without heads matches the pruned model, and scores match fairseq's."""

import pytest
import sacrebleu
import torch
from omegaconf import OmegaConf

from fairseq_entmax.analysis.ablation.removal import (
    Scorer,
    heads_of,
    names_of,
    text_of,
    without_heads,
)
from fairseq_entmax.head_names import Head, parse_heads
from fairseq_entmax.pruning import prune_state
from tests.analysis.brute_force import target_log_probs
from tests.pruning.test_surgery import ALL, PRENORM, rebuilt, state_of, trained, translations
from tests.support import MARKERS, batch, build_model, logits, marked_task, search, tiny_task

ENTMAX = {"attn_mapping": "entmax"}
WHOLE_LAYER = "decoder-self:1.0,1.1,1.2,1.3"
REMOVALS = [
    "encoder-self:0.0,1.3;cross:1.1,1.2",
    WHOLE_LAYER,
    "cross:0.0,0.1,0.2,0.3;cross:1.0,1.1,1.2,1.3",
]


def pruned(model, heads, **options):
    """A second, smaller model without the heads."""
    state, _ = prune_state(state_of(model, **options), "some.pt", heads)
    return rebuilt(state)


def batches():
    """Three batches of one data set, with its sentences in another order."""
    samples = [batch([9, 7, 4], [6, 8, 5]), batch([5, 5], [3, 9]), batch([11], [2])]
    for sample, ids in zip(samples, ([4, 0, 2], [5, 1], [3]), strict=True):
        sample["id"] = torch.tensor(ids)
    return samples


def config(post_process=None, **generation):
    generation = {"beam": 3, "max_len_b": 7, "prefix_size": 0, **generation}
    settings = {"generation": generation, "common_eval": {"post_process": post_process}}
    return OmegaConf.create({**settings, "common": {"seed": 1}, "bpe": None, "tokenizer": None})


def scorer(model, scores=("loss", "bleu"), samples=None, **options):
    return Scorer(model, tiny_task(), config(**options), samples or batches(), scores)


@pytest.mark.parametrize("removal", REMOVALS)
@pytest.mark.parametrize(
    "options",
    [
        ENTMAX,
        {"attn_mapping": "softmax", **PRENORM},
        {**ENTMAX, "head_gates": ALL, "gate_stretch": "-0.3,1.2"},
    ],
    ids=["entmax", "softmax-pre-norm", "gates"],
)
def test_a_model_without_heads_matches_the_pruned_model(options, removal):
    model, heads = trained(**options), parse_heads(removal)
    smaller = pruned(model, heads, **options)
    before = logits(model)
    with without_heads(model, heads):
        found = logits(model)
        texts = translations(model)
    torch.testing.assert_close(found, logits(smaller), atol=1e-5, rtol=0)
    assert texts == translations(smaller)
    assert not torch.allclose(found, before, atol=1e-3)


def test_the_model_is_restored_even_after_an_error():
    model = trained(**ENTMAX)
    before = logits(model)
    with pytest.raises(KeyError), without_heads(model, parse_heads(WHOLE_LAYER)):
        raise KeyError
    assert torch.equal(logits(model), before)


def test_a_removed_head_contributes_nothing_even_if_infinite():
    model = trained(**ENTMAX)
    with torch.no_grad():  # infinity, as can happen in half precision
        model.encoder.layers[0].self_attn.v_proj.bias[8:12] = torch.inf
    assert not logits(model).isfinite().all()
    with without_heads(model, parse_heads("encoder-self:0.2")):
        assert logits(model).isfinite().all()


def test_a_removal_is_written_as_a_short_text_that_can_be_read_back():
    removal = tuple(sorted(parse_heads("encoder-self:0.3;cross:1.1,0.2")))
    assert names_of(removal) == ("cross:0.2", "cross:1.1", "encoder-self:0.3")
    assert text_of(names_of(removal)) == "cross:0.2,1.1;encoder-self:0.3"
    assert parse_heads(text_of(names_of(removal))) == set(removal)
    assert text_of(()) == ""


def test_translations_are_in_the_order_of_the_data_set():
    model, words = trained(**ENTMAX), tiny_task().target_dictionary
    found = scorer(model).score(())
    for sample in batches():
        hypotheses = search(model, sample, max_len_b=7)
        for number, ((tokens, _), *_) in zip(sample["id"], hypotheses, strict=True):
            text = " ".join(words[token] for token in tokens if token not in (0, 2))
            assert found.translations[number] == text
    with pytest.raises(ValueError, match="cannot generate with these options: min_len cannot be"):
        scorer(model, min_len=20).score(())


def test_losses_and_references_are_in_the_order_of_the_data_set():
    """Expected values come from each sentence alone, unpadded, in float64."""
    model, words = trained(**ENTMAX), tiny_task().target_dictionary
    found = scorer(model)
    scores = found.score(())
    assert found.ids == [0, 1, 2, 3, 4, 5]
    model.double()
    for sample in batches():
        log_probs = target_log_probs(model, sample)
        for number, target, logs in zip(sample["id"], sample["target"], log_probs, strict=True):
            assert scores.nll[number] == pytest.approx(-float(logs.sum()), rel=1e-5)
            assert found.target_tokens[number] == len(logs)
            text = " ".join(words[token] for token in target[: len(logs) - 1])
            assert found.references[number] == text


@pytest.mark.parametrize("options", [{"beam": 2}, {"beam": 1, "sampling": True}])
def test_scores_do_not_depend_on_what_was_scored_before(options):
    """A generator with a beam changes how cross-attention interprets a batch."""
    model = trained(**ENTMAX)
    alone = scorer(model, ["loss"]).score(())
    several = scorer(model, **options)
    first = several.score(parse_heads("cross:0.1"))
    again = several.score(())
    assert again == scorer(model, **options).score(())
    assert again.nll == alone.nll != first.nll


def test_a_target_that_is_not_in_the_dictionary_matches_no_hypothesis():
    samples = batches()
    samples[2]["target"][0, 0] = tiny_task().target_dictionary.unk()
    (reference,) = scorer(trained(**ENTMAX), ["bleu"], samples).references[3].split()
    # The unknown word in a hypothesis
    hypothesis = tiny_task().target_dictionary.string(torch.tensor([3]))
    assert sacrebleu.corpus_bleu([hypothesis], [[reference]]).counts[0] == 0


def test_markers_in_the_targets_that_cannot_be_copied_are_refused():
    task = marked_task()
    options = {"attn_mapping": "softmax", "source_position_markers": MARKERS}
    model = build_model("entmax_copy_transformer", task=task, **options)
    assert Head("cross", 1, 0) not in heads_of(model)  # the copy head
    assert len(heads_of(model)) == 23
    samples = batches()
    samples[0]["target"][0, 0] = len(task.target_dictionary) - 1
    with pytest.raises(ValueError, match="markers in the targets cannot be copied"):
        Scorer(model, task, config(), samples, ["loss"]).score([])
