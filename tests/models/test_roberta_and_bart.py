"""RoBERTa and BART: with softmax they are bitwise fairseq's, and fairseq's checkpoints load."""

from argparse import Namespace

import pytest
import torch
from fairseq.criterions.label_smoothed_cross_entropy import LabelSmoothedCrossEntropyCriterion
from fairseq.criterions.masked_lm import MaskedLmConfig, MaskedLmLoss
from fairseq.criterions.sentence_prediction import (
    SentencePredictionConfig,
    SentencePredictionCriterion,
)
from fairseq.models import ARCH_MODEL_REGISTRY

from fairseq_entmax.models.checkpoint_model import model_of_state, use_counterpart
from fairseq_entmax.pruning import prune_state
from tests.support import (
    batch,
    built,
    classification_task,
    course,
    padded,
    search,
    settings_of,
    spread_scores,
    tiny_task,
)

ROBERTA, BART = "roberta_base", "bart_base"
DROPOUT = {"dropout": 0.1, "attention_dropout": 0.1}
HEAD = "sentence_classification_head"


def task_of(stock):
    return classification_task() if stock == ROBERTA else tiny_task()


def build(stock, ours=True, seed=1, head=True, **options):
    """A tiny model, ours or fairseq's, with a head for three classes, and its ``settings``."""
    task, name = task_of(stock), f"entmax_{stock}" if ours else stock
    if ours:
        options = {"attn_mapping": "softmax", **options}
    args = settings_of(name, task="", **{"max_positions": 64, **options})
    model = built(args, task, seed)
    model.settings = args
    if head:
        model.register_classification_head(HEAD, num_classes=3)
    return model.eval()


def texts(seed=0):
    """Two texts between ``<s>`` and ``</s>``, with padding."""
    generator = torch.Generator().manual_seed(seed)
    rows = [torch.randint(4, 24, (n,), generator=generator).tolist() for n in (7, 4)]
    return padded([[0, *row, 2] for row in rows])


def loss_of_texts(criterion, model, tokens, target):
    net_input = {"src_tokens": tokens, "src_lengths": (tokens != 1).sum(1)}
    sample = {"net_input": net_input, "target": target, "ntokens": 13, "nsentences": 2}
    return criterion(model, sample)[0]


def masked_loss(model, update):
    tokens = texts(update % 2)
    mask = torch.zeros_like(tokens, dtype=torch.bool)
    mask[:, 2:4] = True
    criterion = MaskedLmLoss(MaskedLmConfig(), task_of(ROBERTA))
    # This dictionary has no <mask>, so another word stands for it
    words = tokens.masked_fill(mask, 5)
    return loss_of_texts(criterion, model, words, tokens.masked_fill(~mask, 1))


def class_loss(model, update):
    criterion = SentencePredictionCriterion(SentencePredictionConfig(), task_of(ROBERTA))
    return loss_of_texts(criterion, model, texts(update % 2), torch.tensor([[update % 2], [2]]))


def translation_loss(model, update):
    criterion = LabelSmoothedCrossEntropyCriterion(tiny_task(), False, 0.1)
    return criterion(model, batch([5, 7], [6 + update % 2, 3]))[0]


def logits(model):
    if isinstance(model, ARCH_MODEL_REGISTRY[BART]):
        return model(**batch([5, 7], [6, 3])["net_input"])[0]
    return model(texts())[0]


@pytest.mark.parametrize(
    ("stock", "loss_of", "options"),
    [
        (ROBERTA, masked_loss, {}),
        (ROBERTA, masked_loss, {"encoder_normalize_before": True, "untie_weights_roberta": True}),
        (ROBERTA, masked_loss, {"encoder_layers": 3, "encoder_layers_to_keep": "0,2"}),
        (ROBERTA, class_loss, {}),
        (BART, translation_loss, {}),
        (BART, translation_loss, {"decoder_normalize_before": True, "no_scale_embedding": False}),
    ],
)
def test_several_updates_have_bitwise_fairseqs_losses(stock, loss_of, options):
    models = (build(stock, is_ours, **options, **DROPOUT) for is_ours in (True, False))
    (ours, our_weights), (theirs, weights) = (course(model, loss_of) for model in models)
    assert ours == theirs
    assert ours[2] != ours[0]
    # The gradients that encoder and decoder give shared weights are summed in another order
    tolerance = {"atol": 0, "rtol": 0} if stock == ROBERTA else {"atol": 1e-4, "rtol": 1e-5}
    torch.testing.assert_close(our_weights, weights, **tolerance)


@pytest.mark.parametrize("stock", [ROBERTA, BART])
def test_a_stock_checkpoint_is_read_as_its_counterpart_with_its_logits(stock):
    theirs = build(stock, ours=False)
    settings = Namespace(**{**vars(theirs.settings), "arch": stock})
    use_counterpart(settings)
    assert (settings.arch, settings.attn_mapping) == (f"entmax_{stock}", "softmax")
    same, sparse = build(stock, seed=2), build(stock, seed=2, attn_mapping="entmax:alpha=1.5")
    for model in (same, sparse):
        model.load_state_dict(theirs.state_dict())
    assert torch.equal(logits(same), logits(theirs))
    assert not torch.equal(logits(sparse), logits(theirs))


def test_a_roberta_with_the_parameter_names_of_older_releases_loads():
    theirs = build(ROBERTA, ours=False)
    named = {
        name.replace("encoder.sentence_encoder", "decoder.sentence_encoder"): value
        for name, value in theirs.state_dict().items()
    }
    ours = build(ROBERTA, seed=2)
    ours.load_state_dict(named)
    assert torch.equal(logits(ours), logits(theirs))
    # Still older ones have the three projections in one
    for start in {name.split("q_proj")[0] for name in named if "q_proj" in name}:
        for kind in ("weight", "bias"):
            parts = [named.pop(f"{start}{part}_proj.{kind}") for part in "qkv"]
            named[f"{start}in_proj_{kind}"] = torch.cat(parts)
    found = model_of_state({"cfg": {"model": theirs.settings}, "model": named}, "old.pt")
    assert len(found.attentions) == 2
    torch.testing.assert_close(found.state["model"], theirs.state_dict(), atol=0, rtol=0)
    ours.load_state_dict(named)
    assert torch.equal(logits(ours), logits(theirs))


def test_generation_by_bart_is_bitwise_fairseqs():
    models = (spread_scores(build(BART, is_ours)) for is_ours in (True, False))
    ours, theirs = (search(model, batch([5, 5], [4, 4])) for model in models)
    assert ours == theirs


@pytest.mark.parametrize("kernel", ["auto", "torch"])
def test_a_beam_search_leaves_the_losses_of_a_bart_as_they_were(kernel, monkeypatch):
    monkeypatch.setenv("FAIRSEQ_ENTMAX_KERNEL", kernel)
    model, sentences = spread_scores(build(BART, attn_mapping="entmax")), batch([5, 7], [6, 3])
    before = model(**sentences["net_input"])[0]
    search(model, sentences, beam=2)
    assert torch.equal(model(**sentences["net_input"])[0], before)


@pytest.mark.parametrize(("stock", "gated"), [(ROBERTA, "encoder-self"), (BART, "cross")])
def test_a_gated_model_is_pruned_without_changing_its_logits(stock, gated):
    model = build(stock, attn_mapping="entmax", head_gates=gated)
    gates = model.head_gates()[gated].values()
    for gate, is_open in zip(gates, (True, False), strict=True):
        gate.decide(torch.tensor([is_open, False, False, is_open]))
    args = Namespace(**vars(model.settings))
    state = {"cfg": {"model": args}, "args": None, "model": model.state_dict()}
    pruned, report = prune_state(state, "gated.pt")
    assert report.heads_after[gated] == [2, 0]
    checkpoint = model_of_state(pruned, "small.pt")
    small = checkpoint.model_class.build_model(checkpoint.args, task_of(stock))
    small.register_classification_head(HEAD, num_classes=3)
    small.load_state_dict(pruned["model"], strict=True)
    torch.testing.assert_close(logits(small.eval()), logits(model))


def test_a_scripted_bart_gives_the_same_logits():
    # fairseq's own classification heads cannot be scripted
    model = spread_scores(build(BART, head=False, attn_mapping="sparsemax"))
    inputs = batch([5, 7], [6, 3])["net_input"]
    scripted = torch.jit.script(model)
    found = scripted(inputs["src_tokens"], inputs["src_lengths"], inputs["prev_output_tokens"])[0]
    torch.testing.assert_close(found, logits(model))
