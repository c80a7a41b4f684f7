"""fairseq-eval-lm counts words of probability zero, which make the perplexity infinite."""

import importlib
import inspect
import logging
import math
import re
from functools import partial

import pytest
import torch

from fairseq_entmax.fairseq_patches.perplexity import evaluate_with_zeros
from tests.language_models import build_text_model, text_batch, text_task

LENGTHS = (9, 9, 6, 12)


@pytest.fixture(scope="module")
def command():
    return importlib.import_module("fairseq_cli.eval_lm")


@pytest.fixture
def evaluate(command, caplog):
    """Return a function that evaluates a model like the command: results, formatted log."""
    stock = inspect.unwrap(command.eval_lm)

    def of_model(model, changed=True, batch=None, **options):
        caplog.clear()
        caplog.set_level(logging.INFO)
        given = ([model], text_task().dictionary, [batch or text_batch(LENGTHS)])
        how = partial(evaluate_with_zeros, stock) if changed else stock
        return how(*given, **options), [each.getMessage() for each in caplog.records]

    return of_model


def test_impossible_words_make_the_perplexity_infinite_and_are_counted(evaluate):
    model = build_text_model(output_alpha=1.5)
    with torch.no_grad():
        model.decoder.output_projection.weight.mul_(8)
    options = {"output_word_probs": True, "output_word_stats": True}
    results, messages = evaluate(model, **options)
    batch = text_batch(LENGTHS)
    with torch.no_grad():
        probs = model.get_normalized_probs(model(**batch["net_input"]), log_probs=False)
    of_target = probs.gather(-1, batch["target"][..., None])[batch["target"] != 1].double()
    possible, number = of_target[of_target > 0], int((of_target == 0).sum())
    assert 0 < number < len(of_target) == 36
    assert results == {"loss": math.inf, "perplexity": math.inf}
    assert [message for message in messages if "probability 0" in message] == [
        f"{number} of 36 tokens ({100 * number / 36:.1f} %) have probability 0, so the perplexity is "
        f"infinite; that of the others is {(-possible.log().mean()).exp():.2f}"
    ]
    lines = "\n".join(x for x in messages if x[0].isdigit() and "\t" in x)
    printed = list(map(float, re.findall(r" \[(.*?)\]", lines)))
    finite = sorted(value for value in printed if not math.isnan(value))
    assert finite == pytest.approx(sorted(possible.log().tolist()), abs=1e-4)
    assert len(printed) == 36


def test_a_start_of_sentence_that_fairseq_leaves_out_is_not_counted(evaluate):
    model, batch = build_text_model(output_alpha=1.5), text_batch(LENGTHS)
    batch["target"][:, 0] = text_task().dictionary.bos()
    with torch.no_grad():
        model.decoder.output_projection.weight.mul_(8)
    found = []
    for is_left_out in (False, True):
        _, messages = evaluate(model, batch=batch, remove_bos_token=is_left_out)
        (counts,) = (re.match(r"(\d+) of (\d+) tokens", each) for each in messages[-1:])
        found.append([*map(int, counts.groups())])
    first = model.get_normalized_probs(model(**batch["net_input"]), log_probs=False)[:, 0, 0]
    assert found[0][0] - found[1][0] == (first == 0).sum() > 0
    assert (found[0][1], found[1][1]) == (36, 32)


def test_without_zeros_the_evaluation_matches_fairseqs(evaluate):
    model = build_text_model()
    for options in ({}, {"output_word_probs": True, "output_word_stats": True}):
        both = (evaluate(model, changed, **options) for changed in (False, True))
        (stock, stock_log), (ours, our_log) = both
        assert torch.equal(stock["loss"], ours["loss"])
        assert torch.equal(stock["perplexity"], ours["perplexity"])
        stock_log, our_log = (
            [each for each in logged if not each.startswith("Evaluated")]  # the time
            for logged in (stock_log, our_log)
        )
        assert stock_log == our_log


def test_a_nan_loss_stays_nan(command, evaluate):
    before, model = command.SequenceScorer, build_text_model()
    with torch.no_grad():
        model.decoder.output_projection.weight[5] = math.nan
    results, messages = evaluate(model, output_word_probs=True)
    assert command.SequenceScorer is before
    assert math.isnan(results["loss"])
    assert not any("probability 0" in message for message in messages)
