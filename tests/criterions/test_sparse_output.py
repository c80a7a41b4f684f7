"""The entmax loss as a criterion, and the models that it trains, whose output has zeros."""

import math
from argparse import Namespace

import entmax
import pytest
import torch
from fairseq.criterions.label_smoothed_cross_entropy import LabelSmoothedCrossEntropyCriterion
from fairseq.logging import metrics

from fairseq_entmax.criterions import EntmaxLossCriterion
from tests.support import build_model, built, sample, settings_of, tiny_task

ALPHAS = [1.0, 1.33, 1.5, 2.0]


def criterion(alpha=1.5, smoothing=0.0, sentence_avg=False, **options):
    return EntmaxLossCriterion(tiny_task(), alpha, smoothing, sentence_avg, **options)


# Models whose output does not have one score per word
WITHOUT_SCORES = [
    {"arch": "entmax_transformer", "adaptive_softmax_cutoff": "5,10"},
    {"arch": "entmax_copy_transformer"},
]


def model_of(alpha=1.5, **options):
    """A model whose scores of words differ enough to give zeros."""
    model = build_model(output_alpha=alpha, **options)
    with torch.no_grad():
        model.decoder.output_projection.weight.mul_(4)
    return model


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("sentence_avg", [False, True])
def test_alpha_1_matches_fairseqs_label_smoothed_cross_entropy(smoothing, sentence_avg):
    ours, theirs = model_of(1.0), model_of(1.0)
    loss, size, logged = criterion(1.0, smoothing, sentence_avg)(ours, sample())
    options = (sentence_avg, smoothing, 0, True)  # reports its accuracy
    stock = LabelSmoothedCrossEntropyCriterion(tiny_task(), *options)
    expected, expected_size, expected_log = stock(theirs, sample())
    assert size == expected_size
    rising = model_of(1.5, loss_alpha_warmup_updates=9)  # its alpha is still 1
    for one in (loss, criterion(1.5, smoothing, sentence_avg)(rising, sample())[0]):
        torch.testing.assert_close(one, expected, rtol=1e-6, atol=1e-5)
    for name in ("nll_loss", "n_correct", "total", "ntokens", "nsentences"):
        assert float(logged[name]) == pytest.approx(float(expected_log[name]), rel=1e-6)
    loss.backward()
    expected.backward()
    gradients = ({name: p.grad for name, p in one.named_parameters()} for one in (ours, theirs))
    torch.testing.assert_close(*gradients, rtol=1e-4, atol=1e-5)


def test_unreduced_losses_sum_to_the_loss_and_skip_the_prefix():
    model, made = model_of(), sample()
    loss = criterion()(model, made)[0]
    each = criterion()(model, made, reduce=False)[0]
    torch.testing.assert_close(each.sum(), loss)
    skipped = criterion(ignore_prefix_size=2)(model, made)[0]
    counted = each.view_as(made["target"])[:, 2:]
    torch.testing.assert_close(skipped, counted.sum())


@pytest.mark.parametrize("alpha", ALPHAS)
def test_logged_numbers_describe_the_support(alpha):
    model, made = model_of(alpha), sample()
    with metrics.aggregate(new_root=True) as meters:
        logged = [criterion(alpha)(model, made)[2] for _ in range(2)]
        EntmaxLossCriterion.reduce_metrics(logged)
    target = made["target"]
    is_real = target != tiny_task().target_dictionary.pad()
    probs = model.get_normalized_probs(model(**made["net_input"]), log_probs=False)
    of_target = probs.gather(-1, target[..., None]).squeeze(-1)[is_real]
    values = meters.get_smoothed_values()
    loss = logged[0]["loss"].item() / logged[0]["sample_size"] / math.log(2)
    assert values["loss"] == pytest.approx(loss, abs=1e-3)
    support = (probs > 0).sum(-1)[is_real].double().mean()
    assert values["support"] == pytest.approx(support.item(), abs=1e-3)
    reached = 100 * (of_target > 0).double().mean()
    assert values["in_support"] == pytest.approx(reached.item(), abs=1e-3)
    correct = 100 * (probs.argmax(-1) == target)[is_real].double().mean()
    assert values["accuracy"] == pytest.approx(correct.item(), abs=1e-3)
    assert values["loss_alpha"] == pytest.approx(alpha, abs=1e-3)
    if alpha == 1:
        mean = -of_target.log2().double().mean().item()
        assert values["nll_loss"] == pytest.approx(mean, abs=1e-3)
        assert values["ppl"] == pytest.approx(2**mean, rel=2e-3)
    else:
        assert reached < 100
        assert not {"ppl", "nll_loss"} & set(values)


@pytest.mark.parametrize("alpha", ALPHAS)
def test_word_probabilities_match_entmax_and_sum_to_one(alpha):
    model, made = model_of(alpha), sample()
    net_output = model(**made["net_input"])
    probs = model.get_normalized_probs(net_output, log_probs=False)
    expected = entmax.entmax_bisect(net_output[0].double(), max(alpha, 1 + 1e-9), n_iter=100)
    if alpha == 1:
        expected = net_output[0].double().softmax(-1)
    torch.testing.assert_close(probs.double(), expected, atol=1e-6, rtol=1e-4)
    assert bool((probs == 0).any()) == (alpha > 1)
    logs = model.get_normalized_probs(net_output, log_probs=True)
    torch.testing.assert_close(logs.exp(), probs, atol=1e-6, rtol=1e-5)
    assert (logs == -math.inf).equal(probs == 0)


def test_the_output_alpha_defaults_to_the_alpha_of_the_loss():
    args = settings_of(criterion="entmax_loss", loss_alpha=1.3)
    built(args)
    again = Namespace(**{**vars(args), "criterion": None, "loss_alpha": None})
    assert built(again).output_alpha == args.output_alpha == 1.3
    assert (
        build_model(loss_alpha_warmup_updates=9).output_alpha == 1
    )  # a trained one, --loss-alpha 1
    for name in ("entmax_loss", "entmax_loss_with_head_l0"):
        assert build_model(criterion=name).output_alpha == 1.5
    other = build_model(criterion="label_smoothed_cross_entropy", loss_alpha=1.5)
    assert other.output_alpha == 1


@pytest.mark.parametrize(
    ("attempt", "message"),
    [
        (lambda: criterion(2.5), "--loss-alpha must be from 1"),
        (lambda: criterion(math.nan), "--loss-alpha must be from 1"),
        (lambda: criterion(smoothing=1.0), "--label-smoothing must be from 0 to below 1, not 1.0"),
        (
            lambda: criterion(1.5).check_model(model_of(1.2)),
            r"--loss-alpha 1\.5 is not the alpha of .*, 1\.2:",
        ),
        (
            lambda: criterion().check_model(build_model("transformer")),
            "needs a model of this package.*not TransformerModel",
        ),
        (
            lambda: build_model(criterion="cross_entropy", loss_alpha_warmup_updates=9),
            "--loss-alpha-warmup-updates 9 needs --criterion entmax_loss: add it",
        ),
        *(
            (
                lambda one=one, alpha=alpha: build_model(
                    criterion="entmax_loss", loss_alpha=alpha, **one
                ),
                f"--criterion entmax_loss with alpha {alpha}: ",
            )
            for one in WITHOUT_SCORES
            for alpha in (1.5, 1)
        ),
    ],
)
def test_options_that_do_not_fit_together_are_refused(attempt, message):
    with pytest.raises(ValueError, match=message):
        attempt()
