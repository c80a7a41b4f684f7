"""Tiny data and checkpoints of language models and encoder-only models."""

import random
from argparse import Namespace

import torch
from fairseq.data import Dictionary
from fairseq.tasks.language_modeling import LanguageModelingTask
from fairseq.tasks.masked_lm import MaskedLMConfig, MaskedLMTask
from fairseq.tasks.sentence_prediction import SentencePredictionConfig, SentencePredictionTask

import fairseq_entmax.models  # noqa: F401
from fairseq_entmax import cli
from fairseq_entmax.analysis import document
from fairseq_entmax.models.language_model import stock_defaults
from tests import support
from tests.support import TINY, binarise, random_sentences, settings_of, spread_scores

LM, CLASSES, MASKED = "language_modeling", "sentence_prediction", "masked_lm"
HEAD = "sentence_classification_head"
LABELS = ("old", "<b>new</b>")
SAMPLE = 16  # tokens
LENGTHS = [5, 9, 3, 7, 11, 4, 6, 8, 30, 12, 14]
LANGUAGE_MODEL = {**TINY, "tokens_per_sample": SAMPLE, "max_target_positions": 128}
# fairseq's gelu computes in float32 even in a float64 model
ENCODER = {"attention_dropout": 0.0, "activation_fn": "relu", "max_positions": 64}
BLOCKS = {"sample_break_mode": "eos", "tokens_per_sample": 64}


def write(folder, words, sentences, split="valid"):
    """Write a dictionary and a binarised text like ``fairseq-preprocess --only-source``."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "dict.txt").write_text(words, encoding="utf-8")
    binarise(folder / split, sentences)


def words(markers=0):
    """The tiny task's 20 words with sentencepiece's word marks; the last ones are markers."""
    own = [f"{'▁' * (number % 2)}w{number}" for number in range(20 - markers)]
    return "".join(f"{word} 9\n" for word in [*own, *(f"<unk-{n}>" for n in range(markers))])


def state_of(model, args, task, criterion):
    return {
        "args": None,
        "cfg": {"_name": None, "model": args, "task": task, "criterion": criterion},
        "model": model.state_dict(),
        "optimizer_history": [{"num_updates": 3, "optimizer_name": "adam"}],
        "extra_state": {},
    }


def built(arch, task, seed=3, **options):
    """A model with spread scores, and its options as training saves them."""
    args = settings_of(arch, **options)
    return spread_scores(support.built(args, task, seed), 8), args


def save_language_model(path, dictionary, arch="entmax_transformer_lm", of_task=(), **options):
    task = LanguageModelingTask(Namespace(add_bos_token=False), dictionary)
    options = {**stock_defaults(), **LANGUAGE_MODEL, **options}
    model, args = built(arch, task, **options)
    settings = {"_name": "language_modeling", "tokens_per_sample": SAMPLE, **dict(of_task)}
    torch.save(state_of(model, args, settings, {"_name": "cross_entropy"}), path)


def language_models(folder):
    """Write ``bin`` with a text, and checkpoints beside it."""
    write(folder / "bin", words(), random_sentences(LENGTHS))
    write(folder / "bin", words(), random_sentences([100, 90], seed=2), "long")
    dictionary = Dictionary.load(str(folder / "bin" / "dict.txt"))
    adaptive = {"adaptive_softmax_cutoff": "8,16", "adaptive_input": True}
    adaptive |= {"adaptive_input_cutoff": "8,16"}
    own = "entmax_transformer_lm"
    for name, arch, options in (
        ("softmax", "transformer_lm", {}),
        ("entmax15", own, {"attn_mapping": "entmax15"}),
        ("pruned", own, {"attn_mapping": "entmax", "decoder_self_attn_heads": "0,3"}),
        ("sparse", own, {"attn_mapping": "entmax15", "output_alpha": 1.5}),
        ("adaptive", own, {"attn_mapping": "sparsemax", **adaptive}),
    ):
        save_language_model(folder / f"{name}.pt", dictionary, arch, **options)
    return folder


def robertas(folder, is_pair=False):
    """Write ``bin`` with labelled texts or pairs, and checkpoints; ``softmax`` is a stock one."""
    rng = random.Random(1)
    lengths = [[rng.randint(low, 12) for _ in range(60)] for low in (3, 4)]
    write(folder / "bin" / "input0", words(), random_sentences(lengths[0]))
    if is_pair:
        write(folder / "bin" / "input1", words(), random_sentences(lengths[1], seed=5))
    labels = [torch.tensor([4 + rng.randint(0, 1), 2]) for _ in range(60)]
    write(folder / "bin" / "label", "".join(f"{label} 30\n" for label in LABELS), labels)
    options = {"num_classes": len(LABELS), "init_token": 0, "separator_token": 2}
    options |= {"regression_target": False, "classification_head_name": HEAD}
    config = SentencePredictionConfig(data=str(folder / "bin"), seed=1, **options)
    settings = {"_name": CLASSES, "max_positions": 64, **options}
    settings["classification_head_name"] = "${criterion.classification_head_name}"
    criterion = {"_name": CLASSES, "classification_head_name": HEAD}
    save_robertas(folder, SentencePredictionTask.setup_task(config), settings, criterion)
    return folder


def masked_models(folder):
    """Write ``bin`` with a text, and checkpoints of masked language models beside it."""
    write(folder / "bin", words(), random_sentences(LENGTHS))
    config = MaskedLMConfig(data=str(folder / "bin"), **BLOCKS)
    save_robertas(folder, MaskedLMTask.setup_task(config), {"_name": MASKED, **BLOCKS}, {})
    return folder


def save_robertas(folder, task, settings, criterion):
    for name, arch, mapping in (
        ("softmax", "roberta", "softmax"),
        ("sparse", "entmax_roberta", "entmax15"),
        ("learned", "entmax_roberta", "entmax"),
    ):
        model, args = built(arch, task, **ENCODER, attn_mapping=mapping)
        spread_scores(model, 100)  # RoBERTa's initial weights are small
        if settings["_name"] == CLASSES:
            model.register_classification_head(HEAD, num_classes=len(LABELS))
        torch.save(state_of(model, args, settings, criterion), folder / f"{name}.pt")


def slope(loss, columns, step=1e-6):
    """The derivative of a loss in a factor on part of a weight, by finite differences."""
    losses = []
    original = columns.detach().clone()
    with torch.no_grad():
        for factor in (1 + step, 1 - step):
            columns.copy_(original * factor)
            losses.append(loss())
        columns.copy_(original)
    return ((losses[0] - losses[1]).abs() / (2 * step)).tolist()


def analysed(folder, task, names, output, *more):
    """The document of an analysis of the models with these names."""
    assert run("analyze", folder, task, names, output, f"--names={','.join(names)}", *more) == 0
    return document.read(output / "analysis.json")


def model_of(analysis, name):
    return next(model for model in analysis["models"] if model["name"] == name)


def run(command, folder, task, paths, output, *more):
    """Run a command of this package on ``folder`` and return its exit status."""
    path = ":".join(str(folder / f"{name}.pt") for name in paths)
    given = [str(folder / "bin"), f"--task={task}", f"--path={path}", f"--output={output}"]
    return cli.main([command, *given, "--cpu", "--num-workers=0", "--no-progress-bar", *more])
