"""fairseq-eval-lm where words have probability zero: counted, and infinite."""

import copy
import importlib
import inspect
import logging
import math

import pytest
import torch

from fairseq_entmax import fairseq_changes
from fairseq_entmax.perplexity import EVALUATION, evaluate_with_zeros
from tests.language_models import build_text_model, text_batch, text_task

LENGTHS = (9, 9, 6, 12)


@pytest.fixture(scope="module")
def command():
    return importlib.import_module(EVALUATION)


@pytest.fixture
def evaluate(command, caplog):
    """Evaluate a model as the command does; the results, and what was logged.

    A message that cannot be formatted, as fairseq's is, ends a test.
    """
    stock = inspect.unwrap(command.eval_lm)

    def of_model(model, changed=True, words=None, **options):
        caplog.clear()
        caplog.set_level(logging.INFO)
        words = text_task().dictionary if words is None else words
        given = ([model], words, [text_batch(LENGTHS)])
        results = (
            evaluate_with_zeros(stock, *given, **options) if changed else stock(*given, **options)
        )
        return results, [each.getMessage() for each in caplog.records]

    return of_model


@pytest.fixture(scope="module")
def sparse():
    """A model that finds many words of the batch impossible."""
    model = build_text_model(output_alpha=1.5)
    with torch.no_grad():
        model.decoder.output_projection.weight.mul_(8)
    return model


def words_with_pieces():
    """The dictionary, in which some words go on in the next token."""
    words = copy.deepcopy(text_task().dictionary)
    words.symbols = [
        f"{s}@@" if s.startswith("w") and n % 6 == 0 else s for n, s in enumerate(words.symbols)
    ]
    return words


def scored(model):
    """Each sample's tokens with the logarithms of their probabilities."""
    batch = text_batch(LENGTHS)
    with torch.no_grad():
        probs = model.get_normalized_probs(model(**batch["net_input"]), log_probs=False)
    samples = {}
    for number, targets, of_words in zip(batch["id"], batch["target"], probs, strict=True):
        real = [(int(token), p) for token, p in zip(targets, of_words, strict=True) if token != 1]
        logs = [math.log(p[token]) if p[token] > 0 else -math.inf for token, p in real]
        samples[int(number)] = list(zip([token for token, _ in real], logs, strict=True))
    return samples


def logs_of_words(model, words):
    """The logarithms of the probabilities of whole words."""
    logs = []
    for sample in scored(model).values():
        total = 0.0
        for position, (token, log) in enumerate(sample):
            total += log
            if not words[token].endswith("@@") or position == len(sample) - 1:
                logs.append(total)
                total = 0.0
    return logs


@pytest.mark.parametrize("post_process", [None, "@@ "])
def test_a_perplexity_with_impossible_words_is_infinite_and_says_how_many_there_are(
    sparse, evaluate, post_process
):
    words, name = words_with_pieces(), "words" if post_process else "tokens"
    results, messages = evaluate(sparse, words=words, post_process=post_process)
    logs = logs_of_words(sparse, words if post_process else text_task().dictionary)
    possible = [log for log in logs if log > -math.inf]
    number = len(logs) - len(possible)
    assert 0 < number < len(logs)
    assert len(logs) == 36 or post_process
    assert results == {"loss": math.inf, "perplexity": math.inf}
    assert [message for message in messages if "probability 0" in message] == [
        f"{number} of {len(logs)} {name} ({100 * number / len(logs):.1f} %) have probability 0, so the "
        f"perplexity is infinite; that of the others is {math.exp(-sum(possible) / len(possible)):.2f}"
    ]


def test_the_probabilities_of_words_that_are_printed_are_in_step_and_say_zero(sparse, evaluate):
    _, messages = evaluate(sparse, output_word_probs=True)
    words, samples = text_task().dictionary, scored(sparse)
    lines = dict(
        message.split(" ", 1) for message in messages if message[0].isdigit() and "\t" in message
    )
    assert set(lines) == {str(number) for number in samples}
    for number, sample in samples.items():
        items = [item.rpartition(" [") for item in lines[str(number)].split("\t")]
        assert [item[0] for item in items] == [words[token] for token, _ in sample]
        printed = [float(item[2].removesuffix("]")) for item in items]
        assert printed == pytest.approx([log for _, log in sample], abs=1e-4)
    assert "[-inf]" in "".join(lines.values())


def test_the_table_of_words_says_zero_of_words_that_were_impossible_once(sparse, evaluate):
    _, messages = evaluate(sparse, output_word_stats=True)
    table = {row.split("\t")[0]: row.split("\t") for row in messages if row.count("\t") == 5}
    totals = {}
    for sample in scored(sparse).values():
        for token, log in sample:
            word = text_task().dictionary[token]
            totals[word] = totals.get(word, 0.0) + log
    assert {word: float(row[2]) for word, row in table.items()} == pytest.approx(totals, abs=1e-4)
    assert -math.inf in totals.values()
    assert not any("nan" in message for message in messages)


def test_the_evaluation_of_a_model_without_zeros_is_fairseqs(evaluate):
    model = build_text_model()
    options = {"output_word_probs": True, "output_word_stats": True, "post_process": "@@ "}
    for given in ({}, options):
        (stock, said), (ours, also_said) = (
            evaluate(model, changed, words_with_pieces(), **given) for changed in (False, True)
        )
        assert torch.equal(stock["loss"], ours["loss"])
        assert torch.equal(stock["perplexity"], ours["perplexity"])
        said, also_said = (
            [each for each in logged if not each.startswith("Evaluated")]  # the time it took
            for logged in (said, also_said)
        )
        assert said == also_said


def test_a_loss_that_is_no_number_stays_one(command, evaluate):
    model = build_text_model()
    with torch.no_grad():
        model.decoder.output_projection.weight[5] = math.nan
    before = command.SequenceScorer
    results, messages = evaluate(model, output_word_probs=True)
    assert command.SequenceScorer is before
    assert math.isnan(results["loss"])
    assert any("[nan]" in message for message in messages)
    assert not any("-inf" in message or "probability 0" in message for message in messages)


def test_the_command_is_changed_where_it_is_loaded(command, monkeypatch):
    monkeypatch.setattr(command, "eval_lm", inspect.unwrap(command.eval_lm))
    fairseq_changes.install()
    assert inspect.unwrap(command.eval_lm) is not command.eval_lm
