"""The task in fairseq's commands and in Python, with a model trained for translation."""

import re

import pytest
import torch

from fairseq_entmax.models import EntmaxTransformerModel
from tests.commands import SIZES, generate, hub, hypotheses, refusal_of

pytestmark = pytest.mark.slow

TASK = "--task=entmax_summarization"
SEARCH = [
    TASK,
    *("--length-penalty=wu", "--lenpen=0.9", "--coverage-penalty=5", "--min-len=5"),
    *("--no-repeat-ngram-size=3", "--no-repeat-ngram-except=."),
]


def test_an_ensemble_runs_with_every_option(data, trained):
    both = f"{trained / 'checkpoint_best.pt'}:{trained / 'checkpoint_last.pt'}"
    options = ["--temperature=1.2", "--prefix-size=1", "--nbest=2", "--print-alignment"]
    output = generate(data, both, *SEARCH, *options).stdout
    assert len(re.findall(r"^H-", output, re.MULTILINE)) == 2 * SIZES["test"]
    for text in hypotheses(output).values():
        words = text.split()
        trigrams = [tuple(words[place : place + 3]) for place in range(len(words) - 2)]
        blocked = [trigram for trigram in trigrams if "." not in trigram]
        assert len(blocked) == len(set(blocked))
        assert len(words) >= 5


def test_a_checkpoint_keeps_its_search_options_in_python(data, trained, tmp_path):
    state = torch.load(trained / "checkpoint_best.pt")
    options = {"length_penalty": "wu", "coverage_penalty": 5.0, "no_repeat_ngram_except": "."}
    state["cfg"]["task"].update(_name="entmax_summarization", **options)
    torch.save(state, tmp_path / "summaries.pt")
    interface = hub(EntmaxTransformerModel, tmp_path / "summaries.pt", data / "bin")
    line = (data / "test.bpe.es").read_text(encoding="utf-8").splitlines()[0]
    tokens = interface.binarize(line)
    how = {"beam": 3, "max_len_b": 30, "lenpen": 0.9, "min_len": 5, "no_repeat_ngram_size": 3}
    words = interface.string(interface.generate(tokens, **how)[0]["tokens"])
    expected = hypotheses(generate(data, trained / "checkpoint_best.pt", *SEARCH).stdout)["H-0"]
    assert words == expected
    with pytest.raises(ValueError, match=r"--coverage-penalty 5 .* --sampling draws"):
        interface.generate(tokens, sampling=True)


def test_a_wrong_option_is_refused_before_a_model_is_loaded(data, tmp_path):
    unread = tmp_path / "no-model.pt"
    unread.write_text("no model")
    result = generate(data, unread, TASK, "--no-repeat-ngram-except=☃", check=False)
    expected = "fairseq-generate: error: --no-repeat-ngram-except got '☃', which is n"
    assert refusal_of(result).startswith(expected)
