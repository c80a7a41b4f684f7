"""The loss of models that copy, compared with an explicit mixture, and what sparse heads need."""

import math

import pytest
import torch
from fairseq.criterions.label_smoothed_cross_entropy import LabelSmoothedCrossEntropyCriterion
from fairseq.logging import metrics

from fairseq_entmax.criterions.copying import NAME, CopyCrossEntropyCriterion, _values_of_copy_heads
from fairseq_entmax.criterions.teacher import Teacher
from tests.support import MARKERS, build_model, marked_task, sample, spread_scores, tiny_task
from tests.training import make_trainer, train

COPY = "entmax_copy_transformer"


def criterion(task=None, **options):
    defaults = {"sentence_avg": False, "label_smoothing": 0.1}
    return CopyCrossEntropyCriterion(task or tiny_task(), **{**defaults, **options})


def marked_sample():
    """Sentence 0 has a marker in source and target, sentence 1 an orphan in the target."""
    made = sample()
    first = len(marked_task().target_dictionary) - MARKERS
    made["net_input"]["src_tokens"][0, 3] = first
    made["target"][0, 1] = first
    made["target"][1, 2] = first + 1
    return made


def model_of(mapping="softmax", task=None, **options):
    task = task or tiny_task()
    if task is marked_task():
        options["source_position_markers"] = MARKERS
    return spread_scores(build_model(COPY, task=task, attn_mapping=mapping, **options))


@pytest.mark.parametrize("mapping", ["softmax", "sparsemax", "entmax", "fusedmax"])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_without_markers_loss_and_gradients_match_fairseqs_loss_of_the_mixture(mapping, smoothing):
    theirs = LabelSmoothedCrossEntropyCriterion(tiny_task(), False, smoothing, report_accuracy=True)
    results = []
    for loss_of in (criterion(label_smoothing=smoothing, report_accuracy=True), theirs):
        model = model_of(mapping)
        loss, size, logged = loss_of(model, sample())
        loss.backward()
        gradients = {name: p.grad for name, p in model.named_parameters()}
        numbers = {name: float(logged[name]) for name in ("nll_loss", "n_correct", "total")}
        results.append((loss.item(), size, numbers, gradients))
    (*ours, our_gradients), (*expected, gradients) = results
    assert ours[0] == pytest.approx(expected[0], abs=1e-4)
    assert ours[1] == expected[1]
    assert ours[2] == pytest.approx(expected[2], abs=1e-4)
    torch.testing.assert_close(our_gradients, gradients, atol=1e-4, rtol=1e-4)


def test_smoothing_spreads_over_the_vocabulary_and_orphans_cost_only_smoothing():
    task, made = marked_task(), marked_sample()
    model = model_of(task=task)
    eps, first = 0.1, len(task.target_dictionary) - MARKERS
    per_word, _, logged = criterion(task, label_smoothing=eps)(model, made, reduce=False)
    with torch.no_grad():
        log_probs = model(**made["net_input"])[0].double()
    target = made["target"]
    expected = torch.zeros(target.shape, dtype=torch.float64)
    for sentence, step in (target != task.target_dictionary.pad()).nonzero().tolist():
        row, word = log_probs[sentence, step], int(target[sentence, step])
        smooth = -row[:first].sum()
        if word < first:
            each = eps / (first - 1)
            cost = (1 - eps - each) * -row[word] + each * smooth
        elif row[word] > -torch.inf:
            cost = (1 - eps) * -row[word] + eps / first * smooth
        else:
            cost = eps / first * smooth
        expected[sentence, step] = cost
    torch.testing.assert_close(per_word.view_as(target).double(), expected, atol=1e-5, rtol=1e-5)
    assert logged["unreachable"] == 1
    assert per_word.isfinite().all()


def test_gradients_of_a_batch_with_orphans_are_finite():
    for mapping in ("softmax", "sparsemax"):
        model = model_of(mapping, marked_task())
        criterion(marked_task(), copy_loss_weight=0.5)(model, marked_sample())[0].backward()
        assert all(p.grad.isfinite().all() for p in model.parameters() if p.grad is not None)


def copy_scores_gradient(loss, model):
    """The gradient at the scores of the copy head, the first head."""
    gradient = torch.autograd.grad(loss, model.decoder.copy_attention().q_proj.weight)[0]
    return gradient[: gradient.size(0) // 4]


def copied_sample():
    """A batch whose target words occur in the source."""
    made = sample()
    made["target"][:, :3] = made["net_input"]["src_tokens"][:, -4:-1]
    return made


def sharp_model(mapping):
    """A model whose copy head gives most words zero weight."""
    return spread_scores(build_model(COPY, attn_mapping="softmax", copy_mapping=mapping), 400.0)


def test_the_copy_loss_gives_a_gradient_where_a_sparse_head_has_none():
    sizes = []
    for weight in (1.0, 0.0):
        model = sharp_model("sparsemax")
        loss = criterion(copy_loss_weight=weight)(model, copied_sample())[0]
        sizes.append(copy_scores_gradient(loss, model).abs().sum())
    assert sizes[0] > 10 * sizes[1]


def test_copy_heads_can_learn_from_the_copy_loss_alone():
    found = {}
    for weight in (1e-9, 1.0, 3.0):
        model = sharp_model("softmax")
        loss_of = criterion(copy_loss_weight=weight, copy_loss_alone=True)
        total, _, logged = loss_of(model, copied_sample())
        plain = criterion()(model, copied_sample())[0]
        torch.testing.assert_close(total, plain + weight * logged["copy_loss"])
        found[weight] = copy_scores_gradient(total, model)
    # The gradient at the copy head's scores, less the part through its output
    of_one, of_three = found[1.0] - found[1e-9], found[3.0] - found[1e-9]
    torch.testing.assert_close(of_three, 3 * of_one, atol=1e-3, rtol=1e-3)
    alone = criterion(copy_loss_weight=1.0)(model, copied_sample())[0]
    assert not torch.allclose(copy_scores_gradient(alone, model), found[1.0], atol=1e-3)


@pytest.mark.parametrize("alone", [True, False])
def test_copy_heads_can_learn_from_the_copy_loss_alone_despite_a_teacher(alone, monkeypatch):
    model, teacher, received = build_model(COPY).train(), object.__new__(Teacher), []
    teacher.model, teacher.path, teacher.weight = build_model(COPY, seed=7), "teacher.pt", 0.5
    loss_of = criterion(copy_loss_weight=1.0, copy_loss_alone=alone)
    teacher.teach(model, loss_of)
    make = model.decoder._parts

    def watched(*given):
        parts = make(*given)
        parts.weights.register_hook(lambda gradient: received.append(gradient.abs().max() > 0))
        return parts

    monkeypatch.setattr(model.decoder, "_parts", watched)
    loss_of(model, copied_sample())[0].backward()
    assert received == ([] if alone else [True])


@pytest.mark.parametrize("mapping", ["softmax", "sparsemax", "entmax15", "entmax"])
def test_the_copy_loss_compares_weights_with_occurrences(mapping):
    model, made = model_of(mapping, copy_heads="1,3"), sample()
    made["target"][:, 0] = made["net_input"]["src_tokens"][:, -2]
    made["target"][:, 1] = made["net_input"]["src_tokens"][:, -3]
    loss_of = criterion(copy_loss_weight=0.7)
    with_aid, _, logged = loss_of(model, made)
    without, _, _ = criterion()(model, made)
    torch.testing.assert_close(with_aid, without + 0.7 * logged["copy_loss"], atol=1e-4, rtol=1e-6)
    # Explicitly for sparsemax (alpha = 2): half the difference of squared distances to the scores
    if mapping == "sparsemax":
        model.decoder.give_copy_scores()
        parts = model(**made["net_input"], mixed=False)[1]["copy"]
        total = 0.0
        for sentence in range(3):
            for step, word in enumerate(made["target"][sentence].tolist()):
                at = [s for s, w in enumerate(parts.source[sentence].tolist()) if w == word]
                if word == tiny_task().target_dictionary.pad() or not at:
                    continue
                for head in range(2):
                    each = parts.head_scores, parts.head_weights
                    z, p = (of[head, sentence, step] for of in each)
                    q = torch.zeros_like(p)
                    q[at] = 1 / len(at)
                    real = z > -torch.inf
                    z, p, q = z[real], p[real], q[real]
                    total += 0.5 * (((q - z) ** 2).sum() - ((p - z) ** 2).sum()).item() / 2
        assert abs(total - logged["copy_loss"].item()) < 1e-3 * max(1.0, total)


@pytest.mark.parametrize("mapping", ["fusedmax", "sqpnormmax", "entmax:tv=learned"])
def test_the_copy_loss_is_refused_for_mappings_without_one(mapping):
    model = model_of("softmax", copy_mapping=mapping)
    with pytest.raises(ValueError, match="--copy-loss-weight needs copy heads with softmax"):
        criterion(copy_loss_weight=0.5).check_model(model)
    criterion().check_model(model)


@pytest.mark.parametrize("mapping", ["sparsemax:temperature=2", "entmax15:temperature=learned"])
def test_a_temperature_does_not_keep_copy_heads_from_their_loss(mapping):
    criterion(copy_loss_weight=0.5).check_model(model_of("softmax", copy_mapping=mapping))


def test_logged_alphas_are_those_of_the_copy_heads():
    model = model_of("sparsemax", copy_mapping="entmax:init=1.3", copy_heads="1,3")
    alphas = _values_of_copy_heads(model)["alpha"]
    torch.testing.assert_close(alphas.float(), torch.tensor([1.3, 1.3]))


def test_a_model_that_does_not_copy_is_refused():
    with pytest.raises(ValueError, match="needs a model that copies: give --arch entmax_copy"):
        criterion().check_model(build_model())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"copy_loss_weight": -0.1}, "--copy-loss-weight must be from 0 to 1e6, not -0.1"),
        ({"copy_loss_weight": float("nan")}, "--copy-loss-weight must be from 0 to 1e6, not nan"),
        ({"copy_loss_alone": True}, "--copy-loss-alone leaves copy heads nothing to learn from"),
        ({"label_smoothing": 1.0}, "--label-smoothing must be from 0 to below 1, not 1.0"),
    ],
)
def test_options_out_of_range_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        criterion(**options)


def test_logged_numbers_count_target_words():
    made = marked_sample()
    model = model_of("sparsemax", marked_task())
    _, _, logged = criterion(marked_task(), copy_loss_weight=0.5)(model, made)
    switch = model(**made["net_input"], mixed=False)[1]["copy"].switch
    source, target = made["net_input"]["src_tokens"], made["target"]
    pad = marked_task().target_dictionary.pad()
    copyable = sum(
        int(word != pad and word in source[sentence].tolist())
        for sentence, words in enumerate(target.tolist())
        for word in words
    )
    assert logged["copyable"] == copyable
    with metrics.aggregate(new_root=True) as meters:
        CopyCrossEntropyCriterion.reduce_metrics([logged, logged])
    shown = meters.get_smoothed_values()
    tokens, orphans = logged["ntokens"], logged["unreachable"].item()
    for name, expected in (
        ("copy_support", 100 * logged["in_copy_support"].item() / copyable),
        ("unreachable", 100 * orphans / tokens),
        ("copy_share", 1 - switch.sigmoid()[target != pad].mean().item()),
        ("copy_loss", logged["copy_loss"].item() / copyable / math.log(2)),
        ("nll_loss", logged["nll_loss"].item() / (tokens - orphans) / math.log(2)),
    ):
        assert shown[name] == pytest.approx(expected, abs=1e-2)


def test_a_prefix_can_be_left_out():
    model, made = model_of("sparsemax"), sample()
    loss, _, _ = criterion(ignore_prefix_size=2)(model, made)
    per_word, _, _ = criterion()(model, made, reduce=False)
    expected = per_word.view_as(made["target"])[:, 2:].sum()
    torch.testing.assert_close(loss, expected, atol=1e-4, rtol=1e-6)


def test_the_copy_loss_trains_with_fairseqs_trainer_and_a_head_penalty():
    model = model_of("softmax", copy_mapping="sparsemax", head_gates="encoder-self")
    name = f"{NAME}_with_head_l0"
    options = ["--copy-loss-weight=0.5", "--l0-weight=0.1"]
    trainer = make_trainer(model, f"--criterion={name}", *options)
    before = [p.clone() for p in model.parameters()]
    train(trainer, 3)
    moved = [not torch.equal(p, old) for p, old in zip(model.parameters(), before, strict=True)]
    assert all(moved)
