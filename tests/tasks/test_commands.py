"""The task in fairseq's commands and in this package's, from two short trainings."""

import json
import re
from types import SimpleNamespace

import pytest

from fairseq_entmax.models import EntmaxTransformerModel
from tests.commands import (
    SIZES,
    generate,
    hypotheses,
    logged,
    train,
)

pytestmark = pytest.mark.slow

TASK = "--task=entmax_summarization"
SEARCH = [
    TASK,
    *("--length-penalty=wu", "--lenpen=0.9", "--coverage-penalty=5", "--min-len=5"),
    *("--no-repeat-ngram-size=3", "--no-repeat-ngram-except=."),
]
BLEU_ARGUMENTS = {"beam": 2, "max_len_b": 10, "lenpen": 0.9, "no_repeat_ngram_size": 3}


@pytest.fixture(scope="module")
def trained(data, tmp_path_factory):
    """Checkpoints of both tasks, whose trainings had scored their searches by BLEU."""
    folder = tmp_path_factory.mktemp("summaries")
    scored = ["--eval-bleu", f"--eval-bleu-args={json.dumps(BLEU_ARGUMENTS)}"]
    search = ["--length-penalty=wu", "--coverage-penalty=5", "--no-repeat-ngram-except=."]
    log = train(data, folder / "ours", TASK, "--max-update=8", *search, *scored)
    train(data, folder / "stock", "--max-update=8", *scored, arch="transformer")
    paths = {name: folder / name / "checkpoint_last.pt" for name in ("ours", "stock")}
    return SimpleNamespace(log=log, **paths)


def test_training_scores_the_search_by_bleu(trained):
    assert all(float(epoch["valid_bleu"]) >= 0 for epoch in logged(trained.log, "valid"))
    assert logged(trained.log, "valid")


def test_an_ensemble_of_both_searches_with_every_option(data, trained):
    both = f"{trained.stock}:{trained.ours}"
    options = ["--temperature=1.2", "--prefix-size=1", "--nbest=2", "--print-alignment"]
    output = generate(data, both, *SEARCH, *options).stdout
    assert len(re.findall(r"^H-", output, re.MULTILINE)) == 2 * SIZES["test"]
    for text in hypotheses(output).values():
        words = text.split()
        trigrams = [tuple(words[place : place + 3]) for place in range(len(words) - 2)]
        blocked = [trigram for trigram in trigrams if "." not in trigram]
        assert len(blocked) == len(set(blocked))
        assert len(words) >= 5


def test_a_checkpoint_keeps_its_search_in_python(data, trained):
    hub = EntmaxTransformerModel.from_pretrained(
        str(trained.ours.parent), "checkpoint_last.pt", data_name_or_path=str(data / "bin")
    )
    line = (data / "test.bpe.es").read_text(encoding="utf-8").splitlines()[0]
    tokens = hub.binarize(line)
    how = {"beam": 3, "max_len_b": 30, "lenpen": 0.9, "min_len": 5, "no_repeat_ngram_size": 3}
    words = hub.string(hub.generate(tokens, **how)[0]["tokens"])
    assert words == hypotheses(generate(data, trained.ours, *SEARCH).stdout)["H-0"]
    with pytest.raises(ValueError, match=r"--coverage-penalty 5 .* --sampling draws"):
        hub.generate(tokens, sampling=True)


def test_a_wrong_option_is_refused_before_a_model_is_loaded(data, tmp_path):
    unread = tmp_path / "no-model.pt"
    unread.write_text("no model")
    result = generate(data, unread, TASK, "--no-repeat-ngram-except=☃", check=False)
    assert result.returncode == 2
    said = result.stderr.splitlines()[-1]
    assert said.startswith("fairseq-generate: error: --no-repeat-ngram-except got '☃', which is n")
