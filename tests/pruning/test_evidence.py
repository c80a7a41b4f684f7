"""Heads are kept by evidence: those with the highest numbers, and no others."""

import hashlib
import json
import math

import pytest
import torch

from fairseq_entmax.cli import main
from fairseq_entmax.head_names import Head
from fairseq_entmax.models.checkpoint_model import model_of_state
from fairseq_entmax.pruning import Choice, prune_state
from tests.pruning.test_surgery import gates_of, logits, rebuilt, state_of, trained, without

ATTENTIONS = ("encoder-self", "decoder-self", "cross")
HEADS = [Head(name, layer, head) for name in ATTENTIONS for layer in (0, 1) for head in range(4)]
# A different number for each head, in an order unlike that of the names
SCORES = {head: (7 * place) % 24 - 9.5 for place, head in enumerate(HEADS)}


def best(number, heads=HEADS, scores=SCORES):
    return {*sorted(heads, key=scores.__getitem__)[-number:]}


def ablation(scores=SCORES, **settings):
    """What ablate writes, including heads that were removed together."""
    removals = [{"heads": [str(head)], "loss": {"change": one}} for head, one in scores.items()]
    removals.append({"heads": [str(HEADS[0]), str(HEADS[1])], "loss": {"change": 99.0}})
    return {"removals": removals, "checkpoint": "some.pt", "settings": settings}


def analysis(name):
    heads = [SCORES[head] for head in HEADS]
    entries = [
        {"attention": one, "layer": layer, "heads": [{name: heads.pop(0)} for _ in range(4)]}
        for one in ATTENTIONS
        for layer in (0, 1)
    ]
    return {
        "models": [{"attentions": entries, "checkpoint": "some.pt", "checkpoint_sha256": "0" * 64}]
    }


def measured_on(path, document):
    """An ablation or analysis of the checkpoint in a file."""
    if isinstance(document, dict):
        for one in (document.get("settings", {}), *document.get("models", ())):
            one["checkpoint_sha256"] = hashlib.sha256(path.read_bytes()).hexdigest()
    return document


@pytest.fixture
def remaining(tmp_path):
    """A function that returns the heads that a choice keeps, given the evidence."""

    def keep(state, number, by, document=None, seed=1):
        path, checkpoint = tmp_path / "evidence.json", tmp_path / "it.pt"
        torch.save(state, checkpoint)
        path.write_text(json.dumps(measured_on(checkpoint, document or {})), encoding="utf-8")
        choice = Choice(number, by, None if document is None else str(path), seed)
        return {*HEADS} - choice.removed(model_of_state(state, str(checkpoint)))

    return keep


@pytest.mark.parametrize("by", ["loss", "gradient", "confidence"])
def test_the_heads_with_the_highest_numbers_stay(by, remaining):
    document, state = ablation() if by == "loss" else analysis(by), state_of(trained())
    assert remaining(state, "8", by, document) == best(8)
    assert remaining(state, "24", by, document) == {*HEADS}
    expected = best(3, HEADS[:8]) | best(1, HEADS[16:]) | {*HEADS[8:16]}
    assert remaining(state, "encoder-self=3,cross=1", by, document) == expected


def test_gates_choose_by_log_a_and_random_heads_follow_the_seed(remaining):
    gated = trained(head_gates="encoder-self,cross")
    state = state_of(gated, head_gates="encoder-self,cross")
    log_a = {
        Head(name, layer, head): value
        for name, layer, gate in gates_of(gated)
        for head, value in enumerate(gate.log_a.tolist())
    }
    of_cross = [head for head in log_a if head.attention == "cross"]
    closed = {head for head in of_cross if log_a[head] < -3}  # removed although not named
    assert remaining(state, "cross=2", "gates") - closed == best(2, of_cross, log_a) | {*HEADS[:16]}
    against = ablation({head: -value for head, value in log_a.items()})  # closed heads do not count
    assert len(remaining(state, "cross=2", "loss", against) & {*of_cross} - closed) == 2
    draws = [remaining(state_of(trained()), "8", "random", None, seed) for seed in (1, 1, 2)]
    assert [len(draw) for draw in draws] == [8, 8, 8]
    assert draws[0] == draws[1] != draws[2]


def test_copy_heads_stay(remaining):
    copying = {"arch": "entmax_copy_transformer", "copy_heads": "1,3", "copy_layer": -1}
    state = state_of(trained(**copying), **copying)
    for seed in range(4):
        of_cross = remaining(state, "cross=2", "random", None, seed) & {*HEADS[16:]}
        assert of_cross == {Head("cross", 1, 1), Head("cross", 1, 3)}


def test_the_command_matches_the_whole_model_without_the_removed_heads(tmp_path):
    whole, small, evidence = (tmp_path / name for name in ("whole.pt", "small.pt", "it.json"))
    torch.save(state_of(trained()), whole)
    evidence.write_text(json.dumps(measured_on(whole, ablation())), encoding="utf-8")
    choice = ["--keep", "8", "--by", "loss", "--evidence", str(evidence)]
    assert main(["prune", str(whole), "--output", str(small), *choice]) == 0
    found = logits(rebuilt(torch.load(small)))
    expected = logits(without(trained(), {*HEADS} - best(8)))
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=0)


MORE = {**SCORES, Head("cross", 1, 5): 1.0}  # from before some heads were pruned
FEWER = {head: SCORES[head] for head in HEADS[1:]}
NO_MODELS = r"\(it has no 'models'\): give this checkpoint's ablation\.json for"
NO_LOSS = [{"heads": ["cross:0.0"], "loss": None}]


@pytest.mark.parametrize(
    ("by", "document", "message"),
    [
        ("loss", ablation(MORE), "cross:1.5, or .*it.pt has no such"),
        ("loss", ablation(FEWER), "no score for encoder-self:0.0"),
        ("loss", {**ablation(), "removals": NO_LOSS}, r".* \(it is malformed\)"),
        ("loss", ablation({**SCORES, HEADS[3]: math.nan}), r".* \(a score is not finite\)"),
        ("loss", ["nothing"], "no such score for every head of"),
        ("gradient", analysis("relevance"), r"no such score for .* \(it has no 'gradient'\)"),
        ("gradient", ablation(), NO_MODELS),
    ],
)
def test_evidence_that_does_not_cover_the_models_heads_is_refused(by, document, message, remaining):
    with pytest.raises(ValueError, match=rf"--by {by}: .*evidence\.json .*{message}"):
        remaining(state_of(trained()), "8", by, document)


def test_evidence_of_another_checkpoint_is_refused(tmp_path):
    evidence, checkpoint = tmp_path / "it.json", tmp_path / "it.pt"
    torch.save(state_of(trained()), checkpoint)
    model = model_of_state(torch.load(checkpoint), str(checkpoint))
    evidence.write_text(json.dumps(ablation(checkpoint_sha256="0" * 64)), encoding="utf-8")
    of_another = r"\(it is of another checkpoint, some\.pt\)"
    with pytest.raises(ValueError, match=of_another):
        Choice("8", "loss", str(evidence)).removed(model)
    (other,), own = analysis("gradient")["models"], measured_on(checkpoint, analysis("gradient"))
    evidence.write_text(json.dumps({"models": [other, other]}), encoding="utf-8")
    with pytest.raises(ValueError, match=of_another):
        Choice("8", "gradient", str(evidence)).removed(model)
    other["attentions"] = []
    evidence.write_text(json.dumps({"models": [other, *own["models"]]}), encoding="utf-8")
    assert {*HEADS} - Choice("8", "gradient", str(evidence)).removed(model) == best(8)


def test_parameters_of_unknown_heads_are_refused_where_heads_are_removed():
    state = state_of(trained())
    state["model"]["encoder.layers.0.self_attn.head_scale"] = torch.ones(4)
    assert prune_state(state, "it.pt", [Head("cross", 0, 1)])
    with pytest.raises(ValueError, match=r"encoder\.layers\.0\.self_attn\.head_scale, which"):
        prune_state(state, "it.pt", [Head("encoder-self", 0, 1)])
