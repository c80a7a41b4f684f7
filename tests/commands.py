"""fairseq's own commands on a slice of the shipped corpus, for the end-to-end tests."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import sentencepiece
import torch

import fairseq_entmax.models  # with which torch.load reads checkpoints
from tests import preloaded
from tests.examples.miniatures import corpus

ROOT = Path(__file__).resolve().parent.parent
USER_DIR = Path(fairseq_entmax.__file__).resolve().parent
COMMANDS = Path(sys.executable).parent
SIZES = {"train": 600, "valid": 40, "test": 24}

SIZE = {"layers": 2, "embed-dim": 32, "ffn-embed-dim": 32, "attention-heads": 4}
SMALL_MODEL = [
    *(f"--{side}-{name}={size}" for name, size in SIZE.items() for side in ("encoder", "decoder")),
    "--share-all-embeddings",
]
TRAINING = [
    *("--criterion=label_smoothed_cross_entropy", "--label-smoothing=0.1", "--optimizer=adam"),
    *("--lr=0.003", "--lr-scheduler=inverse_sqrt", "--warmup-updates=10", "--max-tokens=1500"),
    *("--update-epoch-batch-itr=True", "--num-workers=0", "--no-epoch-checkpoints", "--seed=3"),
    *("--log-format=json", "--log-interval=5"),
]

GATED = [
    "--criterion=label_smoothed_cross_entropy_with_head_l0",
    "--head-gates=encoder-self,decoder-self,cross",
]
# Fewer than the model's six attentions, so at least one of them loses all heads
BUDGET = 5

# Commands without --cpu, or with another name for it
WITHOUT_DEVICE = ("fairseq-preprocess", "fairseq-entmax", "fairseq-score", "fairseq-hydra-train")


def run(command, *arguments, cwd=None, stdin=None, check=True):
    """Run an installed command on the CPU, and return the finished process with its output."""
    device = [] if command in WITHOUT_DEVICE else ["--cpu"]
    words, environment = [*map(str, arguments), *device], {**os.environ, "OMP_NUM_THREADS": "1"}
    how = {"cwd": cwd, "input": stdin, "capture_output": True, "text": True, "check": False}
    if command in preloaded.COMMANDS and preloaded.is_possible(environment):
        result = preloaded.run(command, words, environment, **how)
    else:
        result = subprocess.run([COMMANDS / command, *words], env=environment, **how)
    if check:
        assert result.returncode == 0, result.stdout[-3000:] + result.stderr[-3000:]
    return result


def refusal_of(result):
    """The last line of a command's output, after checking that it is the only error."""
    text = result.stdout + result.stderr
    assert result.returncode == 2, text[-2000:]
    assert "Traceback" not in text
    assert "EOFError" not in text
    assert text.count("error:") == 1
    return text.strip().splitlines()[-1]


def prepare(folder):
    """Write a binarised slice of the corpus, its plain text, and its BPE model."""
    verses, start = corpus()[::30], 0
    for split, size in SIZES.items():
        for side, language in enumerate(("es", "en")):
            lines = [f"{verse[side]}\n" for verse in verses[start : start + size]]
            (folder / f"{split}.{language}").write_text("".join(lines), encoding="utf-8")
        start += size
    assert start <= len(verses)
    sentencepiece.SentencePieceTrainer.train(
        input=f"{folder}/train.es,{folder}/train.en",
        model_prefix=f"{folder}/bpe",
        model_type="bpe",
        vocab_size=500,
        minloglevel=2,
    )
    bpe = sentencepiece.SentencePieceProcessor(model_file=f"{folder}/bpe.model")
    for split in SIZES:
        for language in ("es", "en"):
            lines = (folder / f"{split}.{language}").read_text(encoding="utf-8").splitlines()
            pieces = "".join(" ".join(bpe.encode(line, out_type=str)) + "\n" for line in lines)
            (folder / f"{split}.bpe.{language}").write_text(pieces, encoding="utf-8")
    prefixes = [f"--{split}pref={folder}/{split}.bpe" for split in SIZES]
    options = ["--source-lang=es", "--target-lang=en", "--joined-dictionary"]
    run("fairseq-preprocess", *options, *prefixes, f"--destdir={folder}/bin")


def training(data, save_dir, *options, arch="entmax_transformer"):
    """The command line of a training."""
    own = [f"--user-dir={USER_DIR}", f"--arch={arch}", f"--save-dir={save_dir}"]
    return ["fairseq-train", data / "bin", *own, *SMALL_MODEL, *TRAINING, *options]


def train(data, save_dir, *options, arch="entmax_transformer", check=True):
    return run(*training(data, save_dir, *options, arch=arch), check=check)


def start(words, **streams):
    """Start a command in a separate process, on the CPU."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen([COMMANDS / words[0], *words[1:], "--cpu"], env=environment, **streams)


def keep_log(result, folder):
    """Write what a command printed into a folder, for :func:`logged`."""
    (folder / "log.txt").write_text(result.stdout + result.stderr, encoding="utf-8")


def logged(result, kind):
    """The numbers that fairseq's JSON log shows under ``train_inner``, ``train`` or ``valid``.

    ``result`` is a finished process, or a folder that :func:`keep_log` has written to.
    """
    if isinstance(result, Path):
        lines = (result / "log.txt").read_text(encoding="utf-8").splitlines()
    else:
        lines = (result.stdout + result.stderr).splitlines()
    found = [line.split(" | ")[-1] for line in lines if f"| {kind} | " in line]
    return [json.loads(line) for line in found if line.startswith("{")]


def generate(data, checkpoint, *options, check=True):
    own = [f"--user-dir={USER_DIR}", f"--path={checkpoint}", "--beam=3", "--max-len-b=30"]
    own.append("--required-batch-size-multiple=1")
    return run("fairseq-generate", data / "bin", *own, *options, check=check)


def hub(model_class, path, data, **options):
    """The hub interface of a checkpoint with the data in a folder."""
    options["data_name_or_path"] = str(data)
    if not model_class.__module__.startswith("fairseq_entmax"):
        options["user_dir"] = str(USER_DIR)
    return model_class.from_pretrained(str(path.parent), path.name, **options)


def loss_in_bits(result):
    """What fairseq-eval-lm prints; the stream depends on which library sets up logging first."""
    return float(re.search(r"Loss \(base 2\): ([\d.]+)", result.stdout + result.stderr)[1])


def hypotheses(output):
    lines = [line.split("\t") for line in output.splitlines() if line.startswith("H-")]
    return {line[0]: line[2] for line in lines}


def hydra_train(data, save_dir, recipe, name, *overrides):
    """Train from a recipe's YAML file with ``fairseq-hydra-train``."""
    return run(
        "fairseq-hydra-train",
        *("--config-dir", ROOT / "examples" / recipe / "configs", "--config-name", name),
        *(f"common.user_dir={USER_DIR}", "common.cpu=true"),
        *(f"task.data={data / 'bin'}", f"checkpoint.save_dir={save_dir}", *overrides),
        cwd=save_dir.parent,
    )


def killed_at(update, data, save_dir, *options):
    """Train, kill the process after its checkpoint of an update, and go back to that checkpoint."""
    silent = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    process = start(training(data, save_dir, *options), **silent)
    deadline = time.monotonic() + 300
    while not list(save_dir.glob(f"checkpoint_*_{update}.pt")):
        assert process.poll() is None, "the training ended before it could be killed"
        assert time.monotonic() < deadline
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.wait()
    (middle,) = save_dir.glob(f"checkpoint_*_{update}.pt")
    middle.replace(save_dir / "checkpoint_last.pt")


def weights(path):
    return torch.load(path)["model"]


def train_in_two_processes(data, save_dir, *options):
    """Train in two processes that communicate by gloo, and return their outputs."""
    common = training(
        *(data, save_dir, *options, "--distributed-world-size=2", "--distributed-no-spawn"),
        "--distributed-backend=gloo",
        "--ddp-backend=legacy_ddp",  # fairseq's other backend assumes a GPU for each process
        f"--distributed-init-method=file://{save_dir}.meet",
    )
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    workers = [start([*common, f"--distributed-rank={rank}"], **streams) for rank in range(2)]
    outputs = [worker.communicate(timeout=300)[0] for worker in workers]
    Path(f"{save_dir}.meet").unlink(missing_ok=True)
    assert [worker.returncode for worker in workers] == [0, 0], outputs[0][-3000:]
    return outputs
