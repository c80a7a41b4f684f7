"""Malicious checkpoints on every path into fairseq and the commands of this package."""

import contextlib
import sys
import traceback

import pytest
import torch

from fairseq_entmax.checkpoints import UnsafeCheckpointError
from fairseq_entmax.fairseq_patches.installing import LOADING
from fairseq_entmax.fairseq_patches.literals import read_literal
from tests.commands import USER_DIR, refusal_of, run
from tests.security import corpus, load_paths
from tests.security.harmless import LANGUAGES

# torch's advice on how to turn off or widen its safe loading
ADVICE = ("weights_only", "Weights only", "add_safe_globals", "likely succeed", "safe_globals")


@pytest.mark.parametrize("payload", corpus.PAYLOADS)
def test_the_pickles_of_the_corpus_run_code_where_loading_is_unsafe(payload, good_state, tmp_path):
    path = corpus.write(f"pickle_{payload}", good_state, tmp_path, tmp_path / "mark")
    torch.load(path, weights_only=False)
    assert (tmp_path / "mark").exists()


@pytest.mark.parametrize("form", corpus.FORMS)
def test_the_texts_of_the_corpus_run_code_when_evaluated_but_not_when_read(form, tmp_path):
    text = corpus.text_of(form, str(tmp_path / "mark"))
    with pytest.raises(ValueError, match="is not a plain value"):
        read_literal(text)
    assert not (tmp_path / "mark").exists()
    with contextlib.suppress(TypeError):  # raised after the code ran
        eval(text)
    assert (tmp_path / "mark").exists()


# Every kind is tried on the paths that all others use; some kinds are tried on every path
SOME_WAYS = ("load_checkpoint", "ensemble_after_a_good_one", "TransformerModel", "prune")
EVERY_WAY = ("pickle_open", "text_line_continuation", "fconv_bytes", "user_dir", "settings_as_yaml")


@pytest.mark.parametrize("kind", corpus.RUNS_CODE)
def test_no_path_runs_a_malicious_checkpoint_or_advises_to(
    kind, attack_data, good_state, good_file, tmp_path, capfd
):
    mark = tmp_path / "mark"
    path = corpus.write(kind, good_state, tmp_path, mark)
    for road in load_paths.IN_PROCESS if kind in EVERY_WAY else SOME_WAYS:
        output = ""
        try:
            load_paths.IN_PROCESS[road](path, attack_data, good_file)
        except Exception as error:  # fairseq's own errors too, for a text in place of a number
            output = "".join(traceback.format_exception(error))
        output += "".join(capfd.readouterr())
        assert not mark.exists(), road
        assert not any(advice in output for advice in ADVICE), road
        if kind not in corpus.READ_AS_PLAIN_VALUES:
            assert f"refused to load {path}: it" in output, road


@pytest.mark.parametrize("kind", ["pickle_open", "pickle_of_old_torch"])
def test_safe_loading_cannot_be_bypassed_by_the_environment_or_other_files(
    kind, good_state, tmp_path, monkeypatch
):
    monkeypatch.setenv("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD", "1")
    path = corpus.write(kind, good_state, tmp_path, tmp_path / "mark")
    for road in ("load_checkpoint", "load_checkpoint_to_cpu"):
        with pytest.raises(UnsafeCheckpointError):
            load_paths.IN_PROCESS[road](path, None, None)
    for module in LOADING:
        with pytest.raises(UnsafeCheckpointError, match="could run code"):
            sys.modules[module].torch.load(str(path), map_location="cpu")
    assert not (tmp_path / "mark").exists()


@pytest.mark.parametrize("road", load_paths.IN_PROCESS)
def test_a_good_checkpoint_loads_on_every_path(road, attack_data, good_state, good_file, tmp_path):
    state = {**good_state, "extra_state": {"ema": good_state["model"]}}
    torch.save(state, tmp_path / "good.pt")
    load_paths.IN_PROCESS[road](tmp_path / "good.pt", attack_data, good_file)


SLICE = {
    "generate": "text_line_continuation",
    "ensemble": "pickle_system",
    "interactive": "reference_to_a_text",
    "validate": "shell_by_fasta",
    "eval_lm": "reference_by_a_function",
    "restore_file": "pickle_in_last_optimizer_state",
    "finetune_from_model": "settings_as_yaml",
}


@pytest.mark.parametrize("command", SLICE)
def test_a_command_of_fairseq_refuses_a_malicious_checkpoint_in_one_line(
    command, attack_data, good_state, good_file, tmp_path
):
    mark = tmp_path / "mark"
    path = corpus.write(SLICE[command], good_state, tmp_path, mark)
    result = load_paths.command(command, path, attack_data, good_file)
    last = refusal_of(result)
    assert "error: refused to load" in last or "is not a plain value" in last
    assert not any(advice in result.stdout + result.stderr for advice in ADVICE)
    assert not mark.exists()


def test_code_in_a_command_line_option_is_refused_in_one_line(attack_data, tmp_path):
    code = "[(16, 3) for _ in range(2)]"
    result = run(
        *("fairseq-train", attack_data, "--arch=fconv", f"--encoder-layers={code}"),
        *(*LANGUAGES, "--max-tokens=400", f"--save-dir={tmp_path}", f"--user-dir={USER_DIR}"),
        check=False,
    )
    assert refusal_of(result).startswith(f"fairseq-train: error: {code!r} is not a plain value")
