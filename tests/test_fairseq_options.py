"""Options of fairseq's with α-entmax, with gates and after pruning, as docs/fairseq_options.md says.

Each row of its tables is run here: a few updates on a slice of the corpus, by fairseq's own functions.
"""

from __future__ import annotations

import math
import re
from types import SimpleNamespace

import pytest
import torch
from fairseq import checkpoint_utils
from fairseq.data import indexed_dataset
from fairseq.dataclass.configs import DistributedTrainingConfig
from fairseq.models import DistributedFairseqModel
from torch import distributed

from fairseq_entmax.checkpoints import load_checkpoint
from fairseq_entmax.head_names import Head
from fairseq_entmax.pruning import checkpoint_heads, prune_checkpoint
from tests import in_process
from tests.commands import ROOT, SIZES, SMALL_MODEL, hypotheses
from tests.fairseq_rows import (
    BACKENDS,
    COLUMNS,
    GENERATED,
    GENERATION,
    RUNS,
    AsFairseq,
    NotApplicable,
    Refused,
    Run,
    Works,
)

CHAPTER = ROOT / "docs" / "fairseq_options.md"
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
    "bart": [
        *("--task=translation_from_pretrained_bart", "--langs=es,en", *UNSHARED_MODEL),
        *("--source-lang=es", "--target-lang=en"),
    ],
    "text": [
        *("--task=language_modeling", "--tokens-per-sample=40", "--decoder-layers=2"),
        *("--decoder-embed-dim=32", "--decoder-input-dim=32", "--decoder-output-dim=32"),
        *("--decoder-ffn-embed-dim=32", "--decoder-attention-heads=4"),
    ],
}
ENTMAX, GATES, PRUNED = range(3)
PLAIN = Run(rows=())


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


def options_of(run, rows, column, arch="entmax_transformer"):
    """The command line of a training of these rows of a run."""
    given = [option for row in rows for option in row.options]
    criterion = run.criterion
    arch = f"{arch}_lm" if run.task == "text" else arch
    words = [*TASKS[run.task], *TRAINING, *run.options]
    if run.task != "text" and run.shares and SHARED not in given:
        words.append(SHARED)
    if "--eval-bleu" not in given:
        words.append("--disable-validation")
    if "--num-workers=2" not in given:
        words.append("--num-workers=0")
    if column == GATES and arch.startswith("entmax"):
        criterion += "_with_head_l0"
        gated = ["decoder-self"] if run.task == "text" else ["encoder-self", "decoder-self"]
        if run.task != "text" and "--no-cross-attention" not in given:
            gated.append("cross")
        words += [f"--head-gates={','.join(gated)}", "--l0-weight=0.1"]
    if "label_smoothed" in criterion:
        words.append("--label-smoothing=0.1")
    return [*words, f"--arch={arch}", f"--criterion={criterion}", *given]


def data_of(run, folder):
    return folder / "text" if run.task == "text" else folder


def reloaded(path, task):
    """The model in a checkpoint, as fairseq's commands load it."""
    return checkpoint_utils.load_model_ensemble([str(path)], task=task)[0][0].eval()


@torch.no_grad()
def scores(model, sample):
    """Of words, in evaluation; where an adaptive softmax makes them, what it makes them of."""
    return model.eval()(**sample["net_input"])[0].float()


def check_training(run, rows, training):
    """Finite losses, parameters that move, a loss that falls, and a checkpoint that is the model."""
    assert len(training.losses) == UPDATES
    assert all(math.isfinite(loss) for loss in training.losses)
    assert training.after < training.before
    assert not {name for name in training.still() if not any(part in name for part in run.still)}
    given = [option for row in rows for option in row.options]
    again = reloaded(training.path, training.trainer.task)
    atol = 3e-2 if "--memory-efficient-fp16" in given else 1e-5
    torch.testing.assert_close(
        scores(again, training.first), scores(training.model, training.first), rtol=0, atol=atol
    )
    state = load_checkpoint(str(training.path))
    if "--eval-bleu" in given:
        assert 0 <= state["extra_state"]["best"] <= 100
    if "--store-ema" in given:
        average = state["extra_state"]["ema"]
        assert average.keys() == state["model"].keys()
        assert any(not torch.equal(average[name], value) for name, value in state["model"].items())


def pruned_of(training, folder, is_gated):
    """A checkpoint without some heads of a trained one; how many it has."""
    state = load_checkpoint(str(training.path))
    gone = some_heads(training.model)
    if is_gated:
        for head in gone:
            gate = training.model.head_gates()[head.attention][head.layer]
            name = next(name for name, one in training.model.named_modules() if one is gate)
            state["model"][f"{name}.decision"][head.head] = 0
        torch.save(state, folder / "gated.pt")
        prune_checkpoint(str(folder / "gated.pt"), str(folder / "pruned.pt"))
        task = training.trainer.task
        models = [reloaded(folder / name, task) for name in ("gated.pt", "pruned.pt")]
        before, after = (scores(model, training.first) for model in models)
        torch.testing.assert_close(after, before, rtol=0, atol=1e-4)
    else:
        prune_checkpoint(str(training.path), str(folder / "pruned.pt"), gone)
    return folder / "pruned.pt"


def some_heads(model):
    """Two heads of the first layer; across to the encoder all, where another layer has some."""
    layers = {"decoder-self": model.decoder.layers}
    if getattr(model, "encoder", None) is not None:
        layers["encoder-self"] = model.encoder.layers
    gone = [Head(attention, 0, head) for attention in layers for head in (1, 3)]
    if model.decoder.layers[0].encoder_attn is not None:
        gone += [
            Head("cross", 0, head) for head in range(4 if len(model.decoder.layers) > 1 else 2)
        ]
    return gone


def start_of(run, folder, save_dir):
    """The option by which a run starts from a checkpoint of fairseq's, if it does."""
    if run.start not in ("stock", "bart"):
        return []
    arch = "transformer" if run.start == "stock" else "bart_base"
    words = [*options_of(PLAIN, (), ENTMAX, "transformer"), f"--arch={arch}"]
    return [f"--finetune-from-model={in_process.train(folder, save_dir, words).path}"]


def claimed(run, column, kind):
    return [row for row in run.rows if isinstance(row.claims[column], kind)]


@pytest.fixture(scope="module")
def base(folder, tmp_path_factory):
    """Trainings without any of the options, and the checkpoints that they leave."""
    made = tmp_path_factory.mktemp("base")
    trained = [
        in_process.train(folder, made / f"{column}", options_of(PLAIN, (), column))
        for column in (ENTMAX, GATES)
    ]
    pruned = pruned_of(trained[GATES], made, True)
    start = [f"--finetune-from-model={pruned}"]
    words = [*options_of(PLAIN, (), PRUNED), *start]
    trained.append(in_process.train(folder, made / "2", words))
    gated = made / "gated.pt"
    return SimpleNamespace(
        trained=trained, gated=gated, pruned=pruned, paths=[trained[ENTMAX].path, gated, pruned]
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in RUNS if claimed(RUNS[name], ENTMAX, Works)])
def test_options_train_with_entmax_gates_and_after_pruning(name, folder, base, tmp_path):
    run = RUNS[name]
    trainings, of_fairseq = {}, start_of(run, folder, tmp_path / "start")
    for column in (ENTMAX, GATES, PRUNED):
        rows = claimed(run, column, Works)
        if not rows or (column == GATES and len(rows) < len(run.rows)):
            continue
        start, option = of_fairseq, "--finetune-from-model"
        if run.start == "entmax":
            option = "--restore-file"
            start = [f"{option}={base.trained[column].path}"]
        if column == PRUNED:
            of = trainings.get(GATES) or trainings[ENTMAX]
            pruned = pruned_of(of, tmp_path, GATES in trainings)
            start = [f"{option}={pruned}"]
        words = [*options_of(run, rows, column), *start]
        training = in_process.train(data_of(run, folder), tmp_path / f"{column}", words)
        trainings[column] = training
        check_training(run, rows, training)
        if run.changes_nothing:
            assert training.losses == base.trained[column].losses
        if column == PRUNED:
            heads = checkpoint_heads(str(pruned))
            assert checkpoint_heads(str(training.path)) == heads
            assert heads["decoder-self"][0] == 2


def single(kind):
    """Rows and columns with a claim of a kind, each to be tried alone."""
    return [
        pytest.param(run, row, column, id=f"{row.name}-{COLUMNS[column]}")
        for run in RUNS.values()
        for row in run.rows
        for column in (ENTMAX, GATES, PRUNED)
        if isinstance(row.claims[column], kind)
    ]


@pytest.mark.slow
@pytest.mark.parametrize(("run", "row", "column"), single(Refused))
def test_options_that_do_not_fit_are_refused_in_one_sentence(
    run, row, column, folder, base, tmp_path
):
    start = [f"--finetune-from-model={base.pruned}"] if column == PRUNED else []
    words = [*options_of(run, [row], column), *start]
    with pytest.raises(ValueError, match=f"^{re.escape(row.claims[column].sentence)}$"):
        in_process.train(data_of(run, folder), tmp_path / "new", words)
    assert not list(tmp_path.rglob("*.pt"))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("run", "row"), [(run, row) for run in RUNS.values() for row in claimed(run, ENTMAX, AsFairseq)]
)
def test_where_fairseq_fails_these_models_fail_as_it_does(run, row, folder, tmp_path):
    ends = []
    for column in ("stock", ENTMAX, GATES, PRUNED):
        arch = "transformer" if column == "stock" else "entmax_transformer"
        # In options: a task may have other words than the base
        heads = ["--encoder-self-attn-heads=2,4", "--cross-attn-heads=0,4"]
        words = [*options_of(run, [row], column, arch), *(heads if column == PRUNED else [])]
        try:
            training = in_process.train(folder, tmp_path / str(column), words)
        except Exception as error:
            ends.append((type(error), str(error)))
        else:
            ends.append((None, len(training.losses)))
    assert ends == [ends[0]] * 4


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("layers to keep", "'list' object has no attribute 'split'"),
        ("adaptive softmax", "Cannot load model parameters from checkpoint"),
        ("as without", "model"),
    ],
)
def test_fairseq_fails_where_the_chapter_says_that_these_models_do_not(
    name, message, folder, tmp_path
):
    run = RUNS[name]
    rows = [row for row in run.rows if name != "as without" or "--store-ema" in row.options]
    words = options_of(run, rows, ENTMAX, "transformer")
    if name != "layers to keep":
        first = (
            words if name == "adaptive softmax" else options_of(PLAIN, (), ENTMAX, "transformer")
        )
        path = in_process.train(folder, tmp_path / "first", first).path
        words = [*words, f"--finetune-from-model={path}"]
    with pytest.raises(Exception, match=message):
        in_process.train(folder, tmp_path / "then", words)


@pytest.fixture
def group(tmp_path):
    """A process group of this process alone."""
    distributed.init_process_group(
        "gloo", init_method=f"file://{tmp_path}/meet", rank=0, world_size=1
    )
    yield distributed.group.WORLD
    distributed.destroy_process_group()


def two_passes(model, sample):
    """Gradients of two batches in turn, as what holds workers together waits for each."""
    for _ in range(2):
        model.train()
        model(**sample["net_input"])[0].sum().backward()


@pytest.mark.slow
@pytest.mark.parametrize("row", BACKENDS, ids=[row.name for row in BACKENDS])
def test_workers_are_held_together_as_those_of_fairseq(row, base, group):
    for training, path, claim in zip(base.trained, base.paths, row.claims, strict=True):
        model, sample = reloaded(path, training.trainer.task), training.first
        if not row.options:
            two_passes(torch.nn.parallel.DistributedDataParallel(model), sample)
            assert all(parameter.grad is not None for parameter in model.parameters())
            continue
        settings = DistributedTrainingConfig(ddp_backend=row.options[0], device_id=0)
        vars(settings).update(tpu=False, memory_efficient_fp16=False)
        if isinstance(claim, AsFairseq):
            error = ImportError if "ImportError" in claim.what else ValueError
            with pytest.raises(error, match=r"pip install fairscale|device_ids"):
                DistributedFairseqModel(settings, model, group, torch.device("cpu"))
            continue
        held = DistributedFairseqModel(settings, model, group, torch.device("cpu"))
        two_passes(held, sample)
        held.all_reduce_grads()
        assert torch.stack([p.grad.abs().sum() for p in model.parameters()]).isfinite().all()


PLAINLY = [
    *("--gen-subset=test", "--beam=2", "--max-len-b=6", "--max-tokens=2000"),
    *("--required-batch-size-multiple=1", "--num-workers=0"),
]


def lines(output, kind):
    """Lines of one kind of fairseq's output, by sentence: the last field of each."""
    found = [line.split("\t") for line in output.splitlines() if line.startswith(f"{kind}-")]
    return [(line[0].partition("-")[2], line[-1]) for line in found]


def seen(row, output, plain, targets):
    """Check what an option shows; the hypotheses."""
    found, given = lines(output, "H"), " ".join(row.options)
    assert len(found) == SIZES["test"] * (2 if "--nbest" in given else 1)
    written = dict(found)
    if "--prefix-size" in given:
        for number, text in written.items():
            assert text.split()[:2] == targets[number].split()[:2]
    if "--score-reference" in given:
        # As fairseq writes unknown words of a reference
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
    """What is generated without options, from each checkpoint; and the reference."""
    outputs = [in_process.generate(folder, path, PLAINLY) for path in base.paths]
    return [hypothesised(output) for output in outputs], dict(lines(outputs[0], "T"))


def hypothesised(output):
    return {name.partition("-")[2]: text for name, text in hypotheses(output).items()}


@pytest.mark.slow
@pytest.mark.parametrize("row", GENERATED, ids=[row.name for row in GENERATED])
def test_options_generate_with_entmax_gates_and_after_pruning(row, folder, base, plain):
    without, targets = plain
    found = []
    for path, of_path in zip(base.paths, without, strict=True):
        paths = path if row.options else f"{path}:{base.trained[PRUNED].path}"
        output = in_process.generate(folder, paths, [*PLAINLY, *row.options])
        found.append(seen(row, output, of_path, targets))
    # The gated one and that which pruning made of it
    assert found[GATES] == found[PRUNED]
    assert found[GATES] != found[ENTMAX] or "--score-reference" in row.options


def table(heading):
    """The rows of the table under a heading of the chapter, each a list of cells."""
    part = CHAPTER.read_text(encoding="utf-8").partition(f"## {heading}\n")[2].partition("\n## ")[0]
    rows = [line for line in part.splitlines() if line.startswith("| ")]
    cells = [re.split(r" *\| *", line.strip(" |")) for line in rows]
    assert cells[0] == ["option", *COLUMNS]
    return cells[1:]


@pytest.mark.parametrize(
    ("heading", "rows"),
    [
        ("Training", [row for run in RUNS.values() for row in run.rows]),
        ("Several processes", BACKENDS),
        ("Generation", GENERATION),
    ],
)
def test_the_chapter_says_what_the_tests_run(heading, rows):
    assert table(heading) == [row.cells() for row in rows]


def test_every_row_is_run_by_a_test():
    for run in RUNS.values():
        for row in run.rows:
            assert len(row.claims) == len(COLUMNS)
            kinds = {type(claim) for claim in row.claims}
            # Nothing is left that no test looks at
            assert kinds != {NotApplicable}
            assert AsFairseq not in kinds or kinds == {AsFairseq}
