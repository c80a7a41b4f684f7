"""The task in fairseq's commands and in this package's, from two short trainings."""

import json
import re
import subprocess
from types import SimpleNamespace

import pytest

from fairseq_entmax.models import EntmaxTransformerModel
from tests.commands import (
    COMMANDS,
    ROOT,
    SIZES,
    USER_DIR,
    generate,
    hypotheses,
    logged,
    run,
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


@pytest.mark.parametrize("name", ["ours", "stock"])
def test_both_tasks_generate_the_same_without_options(data, trained, name):
    path = getattr(trained, name)
    texts = [hypotheses(generate(data, path, task).stdout) for task in ("--nbest=1", TASK)]
    assert texts[0] == texts[1]
    assert len(texts[0]) == SIZES["test"]


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


def test_interactive_finds_what_generate_finds(data, trained):
    lines = (data / "test.bpe.es").read_text(encoding="utf-8").splitlines(keepends=True)[:3]
    options = [f"--user-dir={USER_DIR}", f"--path={trained.ours}", "--beam=3", "--max-len-b=30"]
    result = run(
        "fairseq-interactive", data / "bin", *SEARCH, *options, stdin="".join(lines)
    ).stdout
    found = hypotheses(generate(data, trained.ours, *SEARCH).stdout)
    assert hypotheses(result) == {name: found[name] for name in hypotheses(result)}
    assert len(hypotheses(result)) == 3


def test_the_package_reads_and_prunes_checkpoints_of_the_task(data, trained, tmp_path):
    small = tmp_path / "small.pt"
    heads = "encoder-self:0.1;cross:1.2"
    run("fairseq-entmax", "prune", trained.ours, "--heads", heads, "--output", small)
    assert len(hypotheses(generate(data, small, *SEARCH).stdout)) == SIZES["test"]
    arguments = ["--path", trained.ours, "--gen-subset=test", "--measures=entropy", "--cpu"]
    run("fairseq-entmax", "analyze", data / "bin", *arguments, "--output", tmp_path / "analysis")
    assert (tmp_path / "analysis" / "analysis.json").exists()


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


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--coverage-penalty=5", "--sampling", "--nbest=3"], "--sampling draws them"),
        (["--length-penalty=wu", "--unnormalized"], "--unnormalized forbids it"),
        (["--length-penalty=gnmt"], "--length-penalty got 'gnmt': give average or wu"),
        (["--no-repeat-ngram-except=☃"], "--no-repeat-ngram-except got '☃', which is not in"),
    ],
)
def test_options_are_refused_before_a_model_is_loaded(data, options, message, tmp_path):
    unread = tmp_path / "no-model.pt"
    unread.write_text("no model")
    result = generate(data, unread, TASK, *options, check=False)
    assert result.returncode == 2
    said = result.stderr.splitlines()[-1]
    assert said.startswith("fairseq-generate: error: ")
    assert message in said


def test_hydra_trains_with_the_task(data, tmp_path):
    recipe = ROOT / "examples" / "bible_es_en" / "configs" / "entmax.yaml"
    text = recipe.read_text(encoding="utf-8")
    assert "  _name: translation\n" in text
    own = "  _name: entmax_summarization\n  length_penalty: wu\n  coverage_penalty: 5\n"
    (tmp_path / "summaries.yaml").write_text(text.replace("  _name: translation\n", own))
    result = subprocess.run(
        [
            *(COMMANDS / "fairseq-hydra-train", "--config-dir", tmp_path),
            *("--config-name", "summaries", f"common.user_dir={USER_DIR}", "common.cpu=true"),
            *(f"task.data={data / 'bin'}", f"checkpoint.save_dir={tmp_path / 'run'}"),
            *("optimization.max_update=3", "optimization.max_epoch=1"),
        ],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stdout[-3000:] + result.stderr[-3000:]
    assert hypotheses(generate(data, tmp_path / "run" / "checkpoint_last.pt", *SEARCH).stdout)
