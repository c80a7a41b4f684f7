"""Everything in fairseq that runs code or commands, and attacks through what a file can reach."""

import ast
import importlib.util
from pathlib import Path

import pytest

from fairseq_entmax.fairseq_patches.installing import LOADING
from tests.commands import USER_DIR, refusal_of, run

# A call, why no checkpoint, data folder or YAML file can run code through it, and its modules in
# fairseq; tests/fairseq_patches/test_literals.py tests eval
ROWS = [
    (
        "importlib.import_module",
        "imports the modules in a folder of fairseq's own, or the --user-dir of the command",
        "optim optim.lr_scheduler optim.fused_adam tasks criterions models models.ema "
        "models.huggingface model_parallel.criterions model_parallel.models scoring data.encoders data.audio utils",
    ),
    (
        "np.load",
        "reads no pickles unless told to",
        "speech_generator tasks.text_to_speech data.audio.audio_utils data.codedataset "
        "data.audio.feature_transforms.global_cmvn data.fasta_dataset",
    ),
    (
        "subprocess.check_output",
        "hands the name of a file to a shell: refused by fairseq_patches",
        "data.fasta_dataset",
    ),
    ("subprocess.check_output", "asks scontrol for the hosts of a job", "distributed.utils"),
    ("subprocess.Popen", "starts plasma_store, without a shell", "data.plasma_utils"),
    (
        "subprocess.call",
        "runs --post-save-script, which a checkpoint may not bring along",
        "tasks.audio_pretraining",
    ),
    ("yaml.load", "has PyYAML's FullLoader, which calls nothing", "data.audio.data_cfg"),
    ("pickle.loads", "reads what other processes of a training sent", "distributed.utils"),
    ("torch.load", "reads what other processes of a training sent", "distributed.utils"),
    ("torch.hub.load", "is of notebooks alone", "models.speech_to_text.hub_interface"),
    *(("torch.load", "is torch's safe loader", name.removeprefix("fairseq.")) for name in LOADING),
]
TABLE = {(module, call) for call, _, where in ROWS for module in where.split()}

RUNS = ("exec", "compile", "__import__", "os.system", "os.popen", "torch.hub.load")
LOADS = ("torch.load", "np.load", "numpy.load", "pickle.load", "pickle.loads", "yaml.load")
WHOLE = ("subprocess", "importlib", "runpy", "dill", "joblib", "marshal", "shelve")


def _calls(tree):
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            name = ast.unparse(node.func)
            if name in (*RUNS, *LOADS) or name.partition(".")[0] in WHOLE:
                yield name


def _modules():
    for package in ("fairseq", "fairseq_cli"):
        (folder,) = importlib.util.find_spec(package).submodule_search_locations
        for path in sorted(Path(folder).rglob("*.py")):
            parts = [package, *path.relative_to(folder).with_suffix("").parts]
            if parts[1] != "examples":  # these are separate programs
                name = ".".join(part for part in parts if part != "__init__")
                yield name.removeprefix("fairseq."), path


def test_the_table_lists_every_such_call_in_the_installed_fairseq():
    missing = [
        f"{module}: {call}"
        for module, path in _modules()
        for call in _calls(ast.parse(path.read_text(encoding="utf-8")))
        if (module, call) not in TABLE
    ]
    assert missing == []


COMMAND = "$(touch mark)"  # in the folder where a command of fairseq runs


@pytest.fixture
def fasta(attack_data, tmp_path):
    """A data folder with a shell command in its name and in its files' names."""
    folder = tmp_path / f"data{COMMAND}"
    folder.mkdir()
    words = (attack_data / "dict.txt").read_text()
    for side in ("", "a.", f"b{COMMAND}."):
        (folder / f"dict.{side}txt").write_text(words, encoding="utf-8")
        for split in ("train", "valid", "test"):
            name = f"{split}.a-b{COMMAND}.{side}" if side else f"{split}."
            (folder / f"{name}fasta").write_text(">x\nw1\n>y\nw2\n")
            for ending in ("idx", "bin") if side else ():
                (folder / f"{name}{ending}").touch()  # fairseq checks that they exist
    return folder


TRAINING = ("--optimizer=adam", "--max-tokens=2000", "--max-update=1", "--save-dir=checkpoints")
TRANSLATION = ("--task=translation", "-s=a", f"-t=b{COMMAND}", "--dataset-impl=fasta")
WAYS = {
    "train": ("train", *TRANSLATION, "--arch=entmax_transformer", *TRAINING),
    "generate": ("generate", *TRANSLATION, "--path={good}"),
    # No option asks for fasta: fairseq recognises it by the file's name
    "language_model": (
        *("train", "--task=language_modeling", "--arch=entmax_transformer_lm", *TRAINING),
    ),
}


@pytest.mark.parametrize("way", WAYS)
def test_names_of_data_files_run_no_command(way, fasta, good_file, tmp_path):
    command, *options = (word.format(good=good_file) for word in WAYS[way])
    user_dir = f"--user-dir={USER_DIR}"
    result = run(f"fairseq-{command}", fasta, user_dir, *options, cwd=tmp_path, check=False)
    assert not (tmp_path / "mark").exists()
    assert "drop --dataset-impl fasta" in refusal_of(result)


def test_names_in_a_yaml_file_run_no_command(fasta, tmp_path):
    task = f"{{_name: translation, data: '{fasta}', source_lang: a, target_lang: 'b{COMMAND}'}}"
    (tmp_path / "settings.yaml").write_text(
        f"common: {{user_dir: {USER_DIR}, cpu: true}}\ntask: {task}\n"
        "dataset: {dataset_impl: fasta, max_tokens: 99}\n"
        "model: {_name: entmax_transformer}\ncriterion: {_name: cross_entropy}\n"
        "optimizer: {_name: adam}\noptimization: {max_update: 1}\n"
        f"checkpoint: {{save_dir: '{tmp_path}/checkpoints'}}\n"
    )
    where = ("--config-dir", tmp_path, "--config-name", "settings")
    result = run("fairseq-hydra-train", *where, cwd=tmp_path, check=False)
    assert not list(tmp_path.rglob("mark"))
    assert "drop --dataset-impl fasta" in result.stdout + result.stderr
