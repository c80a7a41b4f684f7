"""Heads are kept by what is known of them: those of the highest numbers, and no others."""

import json

import pytest
import torch

from fairseq_entmax.cli import main
from fairseq_entmax.head_names import Head
from fairseq_entmax.models.checkpoint_model import model_of_state
from fairseq_entmax.pruning import Choice, checkpoint_heads, prune_state
from tests.pruning.test_surgery import gates_of, logits, rebuilt, state_of, trained, without

ATTENTIONS = ("encoder-self", "decoder-self", "cross")
HEADS = [Head(name, layer, head) for name in ATTENTIONS for layer in (0, 1) for head in range(4)]
# Each head another number, in no order that their names have
SCORES = {head: (7 * place) % 24 - 9.5 for place, head in enumerate(HEADS)}


def best(number, heads=HEADS, scores=SCORES):
    return sorted(heads, key=scores.__getitem__)[-number:]


def ablation(scores=SCORES):
    """What ablate writes: also of heads that were removed together."""
    removals = [{"heads": [str(head)], "loss": {"change": one}} for head, one in scores.items()]
    removals.append({"heads": [str(HEADS[0]), str(HEADS[1])], "loss": {"change": 99.0}})
    return {"removals": removals}


def analysis(name, scores=SCORES):
    entries = [
        {"attention": attention, "layer": layer, "heads": heads}
        for attention in ATTENTIONS
        for layer in (0, 1)
        for heads in [[{name: scores[Head(attention, layer, head)]} for head in range(4)]]
    ]
    return {"models": [{"attentions": [*entries, {"attention": "pooling", "heads": []}]}]}


@pytest.fixture
def written(tmp_path):
    """A function that writes a file of evidence; its path."""

    def write(document):
        path = tmp_path / "evidence.json"
        path.write_text(json.dumps(document), encoding="utf-8")
        return str(path)

    return write


def kept(model, *choice):
    return {*HEADS} - Choice(*choice).removed(model_of_state(model, "it.pt"))


@pytest.mark.parametrize("by", ["loss", "gradient", "confidence"])
def test_the_heads_of_the_highest_numbers_stay(by, written):
    document = ablation() if by == "loss" else analysis(by)
    state, file = state_of(trained()), written(document)
    assert kept(state, "8", by, file) == {*best(8)}
    of_encoder, of_cross = (
        [head for head in HEADS if head.attention == name] for name in ATTENTIONS[::2]
    )
    expected = {*best(3, of_encoder), *best(1, of_cross), *HEADS[8:16]}
    assert kept(state, "encoder-self=3,cross=1", by, file) == expected


def test_gates_choose_by_their_own_order_among_open_heads():
    gated = trained(head_gates="encoder-self,cross")
    state = state_of(gated, head_gates="encoder-self,cross")
    log_a = {
        Head(name, layer, head): value
        for name, layer, gate in gates_of(gated)
        for head, value in enumerate(gate.log_a.tolist())
    }
    of_cross = [head for head in log_a if head.attention == "cross"]
    removed = Choice("cross=2", "gates").removed(model_of_state(state, "it.pt"))
    assert {*best(2, of_cross, log_a)}.isdisjoint(removed)
    # Closed ones go without being named
    assert removed == {head for head in of_cross if log_a[head] > -3} - {*best(2, of_cross, log_a)}


def test_random_heads_are_as_many_and_follow_the_seed():
    state = state_of(trained())
    draws = [kept(state, "8", "random", None, seed) for seed in (1, 1, 2)]
    assert [len(draw) for draw in draws] == [8, 8, 8]
    assert draws[0] == draws[1] != draws[2]


def test_heads_that_a_model_copies_by_stay():
    copying = {"arch": "entmax_copy_transformer", "copy_heads": "1,3", "copy_layer": -1}
    model = trained(**copying)
    state = state_of(model, **copying)
    for seed in range(4):
        assert {Head("cross", 1, 1), Head("cross", 1, 3)} <= kept(
            state, "cross=2", "random", None, seed
        )


def test_the_command_keeps_them_and_gives_what_the_whole_model_gives_without_the_others(
    tmp_path, written
):
    model = trained()
    torch.save(state_of(model), tmp_path / "whole.pt")
    output = ["--output", str(tmp_path / "small.pt")]
    choice = ["--keep", "8", "--by", "loss", "--evidence", written(ablation())]
    assert main(["prune", str(tmp_path / "whole.pt"), *output, *choice]) == 0
    assert sum(map(sum, checkpoint_heads(str(tmp_path / "small.pt")).values())) == 8
    small = rebuilt(torch.load(tmp_path / "small.pt", weights_only=False))
    expected = without(model, {*HEADS} - {*best(8)})
    torch.testing.assert_close(logits(small), logits(expected), atol=1e-5, rtol=0)


@pytest.mark.parametrize(
    ("by", "document", "messages"),
    [
        # Of the model before heads were taken out of it
        ("loss", ablation({**SCORES, Head("cross", 1, 5): 1.0}), ["of another model", "cross:1.5"]),
        ("loss", ablation(dict([*SCORES.items()][1:])), ["says nothing of encoder-self:0.0"]),
        ("loss", {"removals": [{"heads": ["cross:0.0"], "loss": None}]}, ["has no such number"]),
        ("gradient", analysis("relevance"), ["--by gradient", "has no such number", "gradient"]),
        ("gradient", {"models": analysis("gradient")["models"] * 2}, ["of one model's heads"]),
        ("loss", [], ["has no such number"]),
    ],
)
def test_evidence_that_does_not_say_it_of_every_head_of_the_model_is_refused(
    by, document, messages, written
):
    with pytest.raises(ValueError, match=r"evidence\.json") as caught:
        kept(state_of(trained()), "8", by, written(document))
    for message in messages:
        assert message in str(caught.value)


def test_what_prune_does_not_know_to_be_of_which_head_is_refused_where_heads_go():
    state = state_of(trained())
    state["model"]["encoder.layers.0.self_attn.head_scale"] = torch.ones(4)
    assert prune_state(state, "it.pt", [Head("cross", 0, 1)])
    with pytest.raises(ValueError, match=r"encoder\.layers\.0\.self_attn\.head_scale, of which"):
        prune_state(state, "it.pt", [Head("encoder-self", 0, 1)])
