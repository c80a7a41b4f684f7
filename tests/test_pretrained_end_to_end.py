"""Checkpoints of stock RoBERTa and BART are fine-tuned, made sparse, pruned and used."""

import pytest
import torch
from fairseq.models.roberta import RobertaModel

from fairseq_entmax.analysis import AttentionRecorder
from fairseq_entmax.head_records import read_record
from fairseq_entmax.models import EntmaxBARTModel, EntmaxRobertaModel
from fairseq_entmax.models.checkpoint_model import read_model
from tests.commands import SIZE, SMALL_MODEL, USER_DIR, hub, hypotheses, logged, run

SIZES = [f"--encoder-{name}={size}" for name, size in SIZE.items()]
TRAINING = [
    *(f"--user-dir={USER_DIR}", "--optimizer=adam", "--lr=0.003", "--max-tokens=1500", "--seed=3"),
    *("--required-batch-size-multiple=1", "--num-workers=0", "--no-epoch-checkpoints"),
    *("--log-format=json", "--log-interval=1"),
]
MASKED = ["--task=masked_lm", "--criterion=masked_lm"]
MASKED += ["--sample-break-mode=eos", "--tokens-per-sample=256", "--max-positions=256"]
CLASSES = [
    *("--task=sentence_prediction", "--num-classes=2", "--init-token=0", "--separator-token=2"),
    *("--max-positions=256", "--batch-size=32"),
]
HEAD = "sentence_classification_head"
SOFTMAX = ["--attn-mapping=softmax"]
RISING = ["--attn-mapping=sparsemax,entmax", "--alpha-warmup-updates=4", "--alpha-log-interval=1"]


def train(data, save_dir, arch, *options):
    result = run(
        "fairseq-train", data, f"--arch={arch}", f"--save-dir={save_dir}", *TRAINING, *options
    )
    return [one["train_loss"] for one in logged(result, "train")], result


@pytest.fixture(scope="module")
def roberta(text, tmp_path_factory):
    """A checkpoint of fairseq's own ``roberta``."""
    folder = tmp_path_factory.mktemp("roberta")
    train(text, folder, "roberta", *SIZES, *MASKED, "--max-update=4")
    return folder / "checkpoint_last.pt"


@pytest.fixture(scope="module")
def labelled(text, data, tmp_path_factory):
    """Verses with labels that say whether they are long, as ``sentence_prediction`` reads them."""
    folder = tmp_path_factory.mktemp("labelled")
    (folder / "input0").symlink_to(text)
    for split in ("train", "valid"):
        verses = (data / f"{split}.en").read_text(encoding="utf-8").splitlines()
        labels = [f"{'long' if len(verse) > 120 else 'short'}\n" for verse in verses]
        (folder / f"{split}-label").write_text("".join(labels))
    prefixes = [f"--{split}pref={folder}/{split}-label" for split in ("train", "valid")]
    run("fairseq-preprocess", "--only-source", *prefixes, f"--destdir={folder}/label")
    return folder


@pytest.fixture(scope="module")
def tuned(roberta, labelled, tmp_path_factory):
    """A sparse classifier with gates on its heads, of which three are open."""
    folder = tmp_path_factory.mktemp("tuned")
    gated = ["--criterion=sentence_prediction_with_head_l0", "--head-gates=encoder-self"]
    budget = ["--target-heads=3", "--decide-heads-at=24", "--max-update=32"]
    start = f"--finetune-from-model={roberta}"
    options = [*SIZES, *CLASSES, start, "--attn-mapping=sparsemax", *gated, *budget]
    train(labelled, folder, "entmax_roberta", *options)
    return folder / "checkpoint_last.pt"


@pytest.mark.parametrize("how", ["--finetune-from-model", "--restore-file"])
def test_a_stock_roberta_trained_with_softmax_has_fairseqs_losses(text, roberta, tmp_path, how):
    found = []
    for arch, options in (("roberta", []), ("entmax_roberta", SOFTMAX)):
        given = [*SIZES, *MASKED, *options, f"{how}={roberta}", "--max-update=6"]
        found.append(train(text, tmp_path / arch, arch, *given)[0])
    assert found[0] == found[1]


def test_a_stock_roberta_becomes_sparse_by_degrees(text, roberta, tmp_path):
    start = f"--finetune-from-model={roberta}"
    train(text, tmp_path, "entmax_roberta", *SIZES, *MASKED, *RISING, start, "--max-update=5")
    record = [line["alpha"]["encoder-self"] for line in read_record(tmp_path / "alpha.jsonl")]
    assert set(record[0]["0"]) == set(record[0]["1"]) == {1.0}
    assert set(record[-1]["0"]) == {2.0}
    assert all(1 < alpha < 2 for alpha in record[-1]["1"])
    run("fairseq-entmax", "alpha", tmp_path / "checkpoint_last.pt")


def test_heads_are_pruned_with_the_masked_language_model_loss(text, roberta, tmp_path):
    gated = [one.replace("=masked_lm", "=masked_lm_with_head_l0") for one in MASKED[1:]]
    gated += [MASKED[0], "--head-gates=encoder-self", "--target-heads=5", "--max-update=8"]
    start = f"--finetune-from-model={roberta}"
    _, log = train(text, tmp_path, "entmax_roberta", *SIZES, *SOFTMAX, *gated, start)
    assert float(logged(log, "valid")[-1]["valid_heads_open"]) == 5
    small = tmp_path / "small.pt"
    run("fairseq-entmax", "prune", tmp_path / "checkpoint_last.pt", "--output", small)
    assert sum(read_model(str(small)).options.heads["encoder-self"]) == 5


def with_bpe(model_class, checkpoint, folder, data):
    bpe = {"bpe": "sentencepiece", "sentencepiece_model": f"{data}/bpe.model"}
    return hub(model_class, checkpoint, folder, **bpe).eval()


def test_the_hub_interface_fills_masks_and_classifies_as_fairseqs(
    text, labelled, data, roberta, tuned, tmp_path
):
    train(text, tmp_path, "entmax_roberta", *SIZES, *MASKED, *SOFTMAX, f"--finetune-from-model={roberta}", "--max-update=1", "--lr=0")  # fmt: skip
    ours = with_bpe(EntmaxRobertaModel, tmp_path / "checkpoint_last.pt", text, data)
    stock = with_bpe(RobertaModel, roberta, text, data)
    assert isinstance(ours.model, EntmaxRobertaModel)
    assert not isinstance(stock.model, EntmaxRobertaModel)
    tokens = ours.encode("And God said, Let there be light")
    assert torch.equal(ours.extract_features(tokens), stock.extract_features(tokens))
    masked = "And God <mask> , Let there be light"
    assert ours.fill_mask(masked) == stock.fill_mask(masked)
    classifier = with_bpe(EntmaxRobertaModel, tuned, labelled, data)
    assert classifier.predict(HEAD, tokens).exp().sum().item() == pytest.approx(1)
    with AttentionRecorder(classifier) as recorder:
        classifier.predict(HEAD, tokens)
    assert recorder.attention["encoder-self"][0].shape[2:] == (len(tokens), len(tokens))


def test_a_tuned_roberta_is_pruned_and_trained_further(labelled, data, tuned, tmp_path):
    small = tmp_path / "small.pt"
    run("fairseq-entmax", "prune", tuned, "--output", small)
    heads = read_model(str(small)).options.heads
    assert sum(heads["encoder-self"]) == 3
    predicted = [
        (one := with_bpe(EntmaxRobertaModel, path, labelled, data)).predict(
            HEAD, one.encode("And God said, Let there be light")
        )
        for path in (tuned, small)
    ]
    torch.testing.assert_close(*predicted, atol=1e-5, rtol=0)
    options = [*SIZES, *CLASSES, "--criterion=sentence_prediction", "--attn-mapping=sparsemax"]
    start = f"--finetune-from-model={small}"
    train(labelled, tmp_path / "on", "entmax_roberta", *options, start, "--max-update=1")
    assert read_model(str(tmp_path / "on" / "checkpoint_last.pt")).options.heads == heads


def test_a_roberta_is_analysed_on_masked_words_and_on_labels(
    text, labelled, data, roberta, tuned, tmp_path
):
    for folder, task, path in (
        (text, "masked_lm", roberta),
        (labelled, "sentence_prediction", tuned),
    ):
        output = f"--output={tmp_path}/{task}"
        words = [f"--task={task}", f"--path={path}", output, "--cpu"]
        run("fairseq-entmax", "analyze", folder, f"--user-dir={USER_DIR}", *words)
        run("fairseq-entmax", "report", tmp_path / task / "analysis.json", f"{output}.html")
    words = ["--text=And God said", "--data", labelled, "--layer=1", "--bpe=sentencepiece"]
    shown = run("fairseq-entmax", "look", tuned, *words, f"--sentencepiece-model={data}/bpe.model")
    assert "classified as" in shown.stdout
    assert "<s>" in shown.stdout


# -- BART --------------------------------------------------------------------------------

DENOISING = [
    *("--task=denoising", "--tokens-per-sample=128", "--mask=0.3", "--mask-length=span-poisson"),
    *("--replace-length=1", "--rotate=0", "--sample-break-mode=eos", "--criterion=cross_entropy"),
]
TRANSLATION = ["--source-lang=es", "--target-lang=en"]


@pytest.fixture(scope="module")
def bart(text, tmp_path_factory):
    """A checkpoint of fairseq's own ``bart``, trained to restore noisy text."""
    folder = tmp_path_factory.mktemp("bart")
    train(text, folder, "bart_base", *SMALL_MODEL, *DENOISING, "--max-update=4")
    return folder / "checkpoint_last.pt"


def test_a_stock_bart_is_fine_tuned_sparse_pruned_and_used_in_the_hub(text, data, bart, tmp_path):
    gated = ["--head-gates=encoder-self,decoder-self,cross", "--target-heads=9"]
    gated += ["--criterion=label_smoothed_cross_entropy_with_head_l0", "--max-update=8"]
    options = [*SMALL_MODEL, *TRANSLATION, *gated, *RISING, f"--finetune-from-model={bart}"]
    train(data / "bin", tmp_path, "entmax_bart_base", *options)
    small = tmp_path / "small.pt"
    run("fairseq-entmax", "prune", tmp_path / "checkpoint_last.pt", "--output", small)
    options = [f"--user-dir={USER_DIR}", f"--path={small}", "--beam=2", "--max-len-b=12"]
    predicted = run("fairseq-generate", data / "bin", "--gen-subset=test", *options)
    assert len(hypotheses(predicted.stdout)) == 24
    analysed = [data / "bin", f"--path={small}", f"--output={tmp_path}/a", "--cpu"]
    run("fairseq-entmax", "analyze", *analysed)
    spoken = with_bpe(EntmaxBARTModel, small, data / "bin", data)
    assert isinstance(spoken.model, EntmaxBARTModel)
    (written,) = spoken.sample(["En el principio"], beam=2, max_len_b=12)
    assert spoken.decode(spoken.encode("En el principio")) == "En el principio"
    assert isinstance(written, str)
