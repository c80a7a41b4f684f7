"""Every way in which a checkpoint gets into fairseq or a command of this package."""

from argparse import Namespace
from pathlib import Path

from fairseq import checkpoint_utils
from fairseq.models.transformer import TransformerModel

from fairseq_entmax import checkpoints
from fairseq_entmax.cli import main
from fairseq_entmax.models import EntmaxTransformerModel
from tests.commands import USER_DIR, run
from tests.security.harmless import LANGUAGES


def _pretrained(model):
    def load(path, data, good):
        model.from_pretrained(str(path.parent), path.name, data_name_or_path=str(data))

    return load


def _package_command(*arguments):
    """Run a command of this package; @ is the checkpoint, % the data, and + a new path."""

    def load(path, data, good):
        new = f"{path}.{arguments[0]}"
        places = {"@": str(path), "%": str(data), "+": new}
        given = [places.get(argument, argument) for argument in arguments]
        if main(given) != 0:
            raise ValueError("refused")

    return load


# One head, to be quick
FEW = ("--heads=cross:0.1", "--trials=5", "--max-len-b=5")

IN_PROCESS = {
    "load_checkpoint": lambda path, *_: checkpoints.load_checkpoint(str(path)),
    "load_checkpoint_to_cpu": lambda path, *_: checkpoint_utils.load_checkpoint_to_cpu(str(path)),
    "load_model_ensemble": lambda path, data, good: checkpoint_utils.load_model_ensemble(
        [str(path)], {"data": str(data)}
    ),
    "ensemble_after_a_good_one": lambda path, data, good: (
        checkpoint_utils.load_model_ensemble_and_task([str(good), str(path)], {"data": str(data)})
    ),
    "moving_averages": lambda path, *_: checkpoint_utils.load_ema_from_checkpoint(str(path)),
    "EntmaxTransformerModel": _pretrained(EntmaxTransformerModel),
    "TransformerModel": _pretrained(TransformerModel),
    "alpha": _package_command("alpha", "@"),
    "prune": _package_command("prune", "@", "--heads=cross:0.1", "--output", "+"),
    "print_config": _package_command("prune", "@", "--print-config"),
    "analyze": _package_command("analyze", "%", "--path", "@", "--output", "+", "--cpu"),
    "ablate": _package_command("ablate", "%", "--path", "@", "--output", "+", "--cpu", *FEW),
}


def command(name, path, data, good):
    """Run one of fairseq's commands in a separate process."""
    plugin = f"--user-dir={USER_DIR}"
    training = ("--arch=entmax_transformer", "--optimizer=adam", "--max-tokens=400")
    save_dir = Path(f"{path}.{name}")
    save_dir.mkdir(exist_ok=True)
    start = [f"--save-dir={save_dir}", "--max-update=4", "--num-workers=0"]
    start.append(f"--{name.replace('_', '-')}={path}")  # restore-file or finetune-from-model
    commands = {
        "generate": ("fairseq-generate", data, f"--path={path}"),
        "ensemble": ("fairseq-generate", data, f"--path={good}:{path}"),
        "interactive": ("fairseq-interactive", data, f"--path={path}"),
        "validate": ("fairseq-validate", data, f"--path={path}", "--max-tokens=400"),
        "eval_lm": ("fairseq-eval-lm", data, f"--path={path}"),
    }
    given = commands.get(name) or ("fairseq-train", data, *training, *start)
    own = [] if name == "eval_lm" else [*LANGUAGES, "--task=translation"]
    return run(*given, *own, plugin, stdin="w1 w2\n", check=False)


def settings_of(state):
    """Container and name of every setting in a checkpoint, for the fuzzer."""
    found = []
    for group, values in state["cfg"].items():
        values = vars(values) if isinstance(values, Namespace) else values
        if isinstance(values, dict):
            found += [(values, name) for name in values]
        else:
            found.append((state["cfg"], group))
    return found
