"""fairseq's options in docs/fairseq_options.md, with α-entmax, with gates and after pruning.

Each runs for a few updates on a slice of the corpus, through fairseq's own functions.
"""

import math
import re
from types import SimpleNamespace

import pytest
import torch
from fairseq import checkpoint_utils
from fairseq.data import indexed_dataset
from torch import distributed

from fairseq_entmax.checkpoints import load_checkpoint
from fairseq_entmax.head_names import Head
from fairseq_entmax.pruning import checkpoint_layers, prune_checkpoint
from tests import in_process
from tests.commands import ROOT, SIZES, SMALL_MODEL
from tests.fairseq_rows import ENTMAX, GATES, GENERATION, PRUNED, REFUSALS, RUNS, Run

UPDATES = 3
SHARED = "--share-all-embeddings"
UNSHARED_MODEL = [option for option in SMALL_MODEL if option != SHARED]
TRAINING = [
    *("--optimizer=adam", "--lr=0.003", f"--max-update={UPDATES}", "--seed=3"),
    *("--max-tokens=300", "--batch-size=4", "--required-batch-size-multiple=1"),
    *("--no-epoch-checkpoints", "--no-progress-bar", "--log-format=none", "--save-interval=1"),
]
TASKS = {
    "translation": ["--task=translation", *UNSHARED_MODEL],
    "multilingual": [
        *("--task=translation_multi_simple_epoch", "--lang-pairs=es-en", *UNSHARED_MODEL),
        *("--encoder-langtok=src", "--decoder-langtok"),
        *("--sampling-method=uniform", "--virtual-epoch-size=200"),
    ],
    "text": [
        *("--task=language_modeling", "--tokens-per-sample=40", "--decoder-layers=2"),
        *("--decoder-embed-dim=32", "--decoder-input-dim=32", "--decoder-output-dim=32"),
        *("--decoder-ffn-embed-dim=32", "--decoder-attention-heads=4"),
    ],
}
PLAIN = Run()
# Options of every run, or of several
BESIDE = {"--arch", "--task", "--criterion", "--path", SHARED}
BESIDE |= {"--restore-file", "--finetune-from-model"}


def test_the_page_lists_only_options_that_are_tested_here():
    text = (ROOT / "docs" / "fairseq_options.md").read_text(encoding="utf-8")
    works = text.split("## What works")[1].split("## What needs")[0]
    words = [word for one in RUNS.values() for word in (*one.options, *one.beside)]
    tried = {word.split("=")[0] for word in (*words, *sum(GENERATION, ()))}
    assert set(re.findall(r"`(--[a-z][a-z0-9-]*)", works)) <= tried | BESIDE


@pytest.fixture(scope="module")
def folder(data, tmp_path_factory):
    """The corpus with word alignments, and in ``text`` its English side for language models."""
    made = tmp_path_factory.mktemp("fairseq-options")
    for file in (data / "bin").iterdir():
        (made / file.name).symlink_to(file)
    text = made / "text"
    text.mkdir()
    for split in ("train", "valid"):
        for kind in ("bin", "idx"):
            (text / f"{split}.{kind}").symlink_to(data / "bin" / f"{split}.es-en.en.{kind}")
    (text / "dict.txt").symlink_to(data / "bin" / "dict.en.txt")
    name = made / "train.align.es-en"
    builder = indexed_dataset.make_builder(f"{name}.bin", impl="mmap")
    texts = [(data / f"train.bpe.{side}").read_text().splitlines() for side in ("es", "en")]
    for source, target in zip(*texts, strict=True):
        length = min(len(source.split()), len(target.split()))
        builder.add_item(torch.arange(length, dtype=torch.int32).repeat_interleave(2))
    builder.finalize(f"{name}.idx")
    return made


def options_of(run, column):
    """The command line of a training."""
    criterion, is_text = run.criterion, run.task == "text"
    arch = f"entmax_transformer{'_lm' * is_text}"
    words = [*TASKS[run.task], *TRAINING, *run.beside]
    if not is_text and run.shares:
        words.append(SHARED)
    if "--eval-bleu" not in run.options:
        words.append("--disable-validation")
    if "--num-workers=2" not in run.options:
        words.append("--num-workers=0")
    if column == GATES:
        criterion += "_with_head_l0"
        gated = ["decoder-self"] if is_text else ["encoder-self", "decoder-self"]
        if not is_text and "--no-cross-attention" not in run.options:
            gated.append("cross")
        words += [f"--head-gates={','.join(gated)}", "--l0-weight=0.1"]
    if "label_smoothed" in criterion:
        words.append("--label-smoothing=0.1")
    return [*words, f"--arch={arch}", f"--criterion={criterion}", *run.options]


def scores(path, task, sample):
    """The scores of words by a model or a checkpoint; with an adaptive softmax, its input."""
    model = path if isinstance(path, torch.nn.Module) else reloaded(path, task)
    with torch.no_grad():
        return model.eval()(**sample["net_input"])[0].float()


def reloaded(path, task):
    """The model in a checkpoint, as fairseq's commands load it."""
    return checkpoint_utils.load_model_ensemble([str(path)], task=task)[0][0].eval()


def check_training(run, training):
    """Check that losses are finite and fall, parameters change, and the checkpoint is the model."""
    assert len(training.losses) == UPDATES
    assert all(math.isfinite(loss) for loss in training.losses)
    assert training.after < training.before
    assert not {name for name in training.still() if not any(part in name for part in run.still)}
    atol = 3e-2 if "--memory-efficient-fp16" in run.options else 1e-5
    again, now = (
        scores(one, training.trainer.task, training.first)
        for one in (training.path, training.model)
    )
    torch.testing.assert_close(again, now, rtol=0, atol=atol)
    state = load_checkpoint(str(training.path))
    if "--eval-bleu" in run.options:
        assert 0 <= state["extra_state"]["best"] <= 100
    if "--store-ema" in run.options:
        average = state["extra_state"]["ema"]
        assert average.keys() == state["model"].keys()
        assert any(not torch.equal(average[name], value) for name, value in state["model"].items())


def pruned_of(training, folder, is_gated):
    """Prune some heads of a trained model, and return the new checkpoint."""
    state = load_checkpoint(str(training.path))
    gone = some_heads(training.model)
    if is_gated:
        for head in gone:
            gate = training.model.head_gates()[head.attention][head.layer]
            name = next(name for name, one in training.model.named_modules() if one is gate)
            state["model"][f"{name}.decision"][head.head] = 0
        torch.save(state, folder / "gated.pt")
        prune_checkpoint(str(folder / "gated.pt"), str(folder / "pruned.pt"))
        before, after = (
            scores(folder / name, training.trainer.task, training.first)
            for name in ("gated.pt", "pruned.pt")
        )
        torch.testing.assert_close(after, before, rtol=0, atol=1e-4)
    else:
        prune_checkpoint(str(training.path), str(folder / "pruned.pt"), gone)
    return folder / "pruned.pt"


def some_heads(model):
    """Two heads of the first layer; for cross-attention all heads, if another layer keeps some."""
    layers = {"decoder-self": model.decoder.layers}
    if getattr(model, "encoder", None) is not None:
        layers["encoder-self"] = model.encoder.layers
    gone = [Head(attention, 0, head) for attention in layers for head in (1, 3)]
    if model.decoder.layers[0].encoder_attn is not None:
        gone += [
            Head("cross", 0, head) for head in range(4 if len(model.decoder.layers) > 1 else 2)
        ]
    return gone


def initial_option(run, folder, save_dir):
    """The option with which a run starts from a checkpoint of fairseq's, if it does."""
    if run.start not in ("stock", "bart"):
        return []
    arch = "transformer" if run.start == "stock" else "bart_base"
    words = [*options_of(PLAIN, ENTMAX), f"--arch={arch}"]
    return [f"--finetune-from-model={in_process.train(folder, save_dir, words).path}"]


@pytest.fixture(scope="module")
def base(folder, tmp_path_factory):
    """Trainings without any of the options, and their checkpoints."""
    made = tmp_path_factory.mktemp("base")
    trained = [
        in_process.train(folder, made / f"{column}", options_of(PLAIN, column))
        for column in (ENTMAX, GATES)
    ]
    pruned = pruned_of(trained[GATES], made, True)
    start = [f"--finetune-from-model={pruned}"]
    words = [*options_of(PLAIN, PRUNED), *start]
    trained.append(in_process.train(folder, made / "2", words))
    gated = made / "gated.pt"
    return SimpleNamespace(
        trained=trained, gated=gated, pruned=pruned, paths=[trained[ENTMAX].path, gated, pruned]
    )


@pytest.mark.parametrize("name", RUNS)
def test_options_train_with_entmax_gates_and_after_pruning(name, folder, base, tmp_path):
    run = RUNS[name]
    trainings, of_fairseq = {}, initial_option(run, folder, tmp_path / "initial")
    for column in run.columns:
        start, option = of_fairseq, "--finetune-from-model"
        if run.start == "entmax":
            option = "--restore-file"
            start = [f"{option}={base.trained[column].path}"]
        if column == PRUNED:
            of = trainings.get(GATES) or trainings[ENTMAX]
            pruned = pruned_of(of, tmp_path, GATES in trainings)
            start = [f"{option}={pruned}"]
        words = [*options_of(run, column), *start]
        data = folder / "text" if run.task == "text" else folder
        training = in_process.train(data, tmp_path / f"{column}", words)
        trainings[column] = training
        check_training(run, training)
        if run.changes_nothing:
            assert training.losses == base.trained[column].losses
        if column == PRUNED:
            heads = checkpoint_layers(str(pruned)).counts
            assert checkpoint_layers(str(training.path)).counts == heads
            assert heads["decoder-self"][0] == 2


@pytest.mark.parametrize(("run", "column", "sentence"), REFUSALS.values(), ids=REFUSALS)
def test_unsuitable_options_are_refused_with_a_one_line_error(
    run, column, sentence, folder, tmp_path
):
    with pytest.raises(ValueError, match=f"^{re.escape(sentence)}$"):
        in_process.train(folder, tmp_path / "new", options_of(run, column))
    assert not list(tmp_path.rglob("*.pt"))


def test_every_parameter_gets_a_gradient_in_distributed_training(base, tmp_path):
    distributed.init_process_group(
        "gloo", init_method=f"file://{tmp_path}/meet", rank=0, world_size=1
    )
    try:
        for training, path in zip(base.trained, base.paths, strict=True):
            model = reloaded(path, training.trainer.task)
            held = torch.nn.parallel.DistributedDataParallel(model)
            for _ in range(2):  # the second fails if a parameter has no gradient in the first
                held.train()
                held(**training.first["net_input"])[0].sum().backward()
            assert all(parameter.grad is not None for parameter in model.parameters())
            del held  # after the group, its end can wait for a thread that waits for Python
    finally:
        distributed.destroy_process_group()


PLAINLY = [
    *("--gen-subset=test", "--beam=2", "--max-len-b=6", "--max-tokens=2000"),
    *("--required-batch-size-multiple=1", "--num-workers=0"),
]


def lines(output, kind):
    """Lines of one kind in fairseq's output: pairs of sentence number and last field."""
    found = [line.split("\t") for line in output.splitlines() if line.startswith(f"{kind}-")]
    return [(line[0].partition("-")[2], line[-1]) for line in found]


def seen(options, output, plain, targets):
    """Check the effect of an option, and return the hypotheses."""
    found, given = lines(output, "H"), " ".join(options)
    assert len(found) == SIZES["test"] * (2 if "--nbest" in given else 1)
    written = dict(found)
    if "--prefix-size" in given:
        for number, text in written.items():
            assert text.split()[:2] == targets[number].split()[:2]
    if "--score-reference" in given:
        # fairseq marks unknown words of a reference in this way
        assert written == {
            name: text.replace("<<", "<").replace(">>", ">") for name, text in targets.items()
        }
    if "--print-alignment" in given:
        for _, text in lines(output, "A"):
            for step in text.split():
                weights = [float(weight) for weight in step.split(",")]
                assert sum(weights) == pytest.approx(1, abs=1e-3)
    if "--nbest" in given or "--batch-size" in given or "--num-workers" in given:
        best = dict(reversed(found))
        assert best == plain or "--sampling" in given or "--diverse" in given
    if "--diverse" in given:
        for (_, one), (_, other) in zip(found[::2], found[1::2], strict=True):
            assert one.split()[:1] != other.split()[:1]
    if "overrides" in given or not given:
        assert written != plain
    return found


@pytest.fixture(scope="module")
def plain(folder, base):
    """What is generated without options from each checkpoint, and the references."""
    outputs = [in_process.generate(folder, path, PLAINLY) for path in base.paths]
    return [dict(lines(output, "H")) for output in outputs], dict(lines(outputs[0], "T"))


@pytest.mark.parametrize("options", GENERATION, ids=" ".join)
def test_options_generate_with_entmax_gates_and_after_pruning(options, folder, base, plain):
    without, targets = plain
    found = []
    for path, of_path in zip(base.paths, without, strict=True):
        paths = path if options else f"{path}:{base.trained[PRUNED].path}"
        output = in_process.generate(folder, paths, [*PLAINLY, *options])
        found.append(seen(options, output, of_path, targets))
    # The gated model, and the same model after pruning
    assert found[GATES] == found[PRUNED]
    assert found[GATES] != found[ENTMAX] or "--score-reference" in options
