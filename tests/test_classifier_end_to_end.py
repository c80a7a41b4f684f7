"""Classifiers through fairseq's own commands: which of two words a pair of texts shares."""

import random
from types import SimpleNamespace

import pytest

from fairseq_entmax.models import EntmaxClassifierModel
from fairseq_entmax.models.checkpoint_model import read_model
from tests import in_process
from tests.commands import USER_DIR, logged, run

WORDS = [f"w{number}" for number in range(20)]
SIZES = {"train": 256, "valid": 32}
# fairseq's --report-mcc wants labels that are numbers
LABELS = {"yes": "1", "no": "0"}
PAIR = ["--pair-attention", "--pooling-mapping=entmax", "--pair-mapping=fusedmax:tv=learned"]


def texts(draw, label):
    """A pair of texts in which the word of the label stands on both sides."""
    pair = [[draw.choice(WORDS) for _ in range(draw.randrange(2, 8))] for _ in range(2)]
    for text in pair:
        text[draw.randrange(len(text))] = label
    return [" ".join(text) + "\n" for text in pair]


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Binarised pairs as the task takes them."""
    folder, draw = tmp_path_factory.mktemp("pairs"), random.Random(1)
    for split, size in SIZES.items():
        labels = [draw.choice(["yes", "no"]) for _ in range(size)]
        pairs = [texts(draw, label) for label in labels]
        for name, lines in (
            ("input0", [pair[0] for pair in pairs]),
            ("input1", [pair[1] for pair in pairs]),
            ("label", [LABELS[label] + "\n" for label in labels]),
        ):
            (folder / f"{split}.{name}").write_text("".join(lines))
    for name in ("input0", "input1", "label"):
        # fairseq takes the ending for a language where there is one
        for split in SIZES:
            (folder / f"{split}.{name}").rename(folder / f"{split}-{name}")
        first = [f"--srcdict={folder}/bin/input0/dict.txt"] if name == "input1" else []
        prefixes = [f"--{split}pref={folder}/{split}-{name}" for split in SIZES]
        given = ["--only-source", *prefixes, *first, f"--destdir={folder}/bin/{name}"]
        run("fairseq-preprocess", *given)
    return folder / "bin"


def arguments(data, save_dir, *options):
    return [
        *(data, f"--user-dir={USER_DIR}", "--task=sentence_prediction", "--num-classes=2"),
        *("--arch=entmax_classifier_small", "--encoder-embed-dim=32", "--encoder-ffn-embed-dim=32"),
        *("--criterion=sentence_prediction", "--optimizer=adam", "--lr=0.003", "--batch-size=32"),
        *("--no-epoch-checkpoints", "--log-format=json", "--log-interval=4", "--seed=3"),
        *("--num-workers=0", "--alpha-log-interval=4", f"--save-dir={save_dir}", *options),
    ]


def train(data, save_dir, *options):
    return run("fairseq-train", *arguments(data, save_dir, *options))


@pytest.fixture(scope="module")
def trained(data, tmp_path_factory):
    """A model of pairs, and the log of its training."""
    folder = tmp_path_factory.mktemp("trained")
    log = train(data, folder, *PAIR, "--max-epoch=4", "--report-mcc")
    return SimpleNamespace(folder=folder, log=log, last=folder / "checkpoint_last.pt")


def test_training_learns_and_shows_what_pooling_learns(trained):
    last = logged(trained.log, "valid")[-1]
    assert float(last["valid_accuracy"]) > 90
    assert float(last["valid_mcc"]) > 80
    assert 1 < float(last["valid_alpha_hypothesis_mean"]) < 2
    assert float(last["valid_tv_premise_mean"]) > 0


def test_validation_finds_the_loss_that_training_logged(data, trained):
    result = run(
        "fairseq-validate",
        *(data, f"--user-dir={USER_DIR}", "--task=sentence_prediction", "--num-classes=2"),
        *(f"--path={trained.last}", "--criterion=sentence_prediction", "--batch-size=5"),
        *("--required-batch-size-multiple=1", "--log-format=json"),
    )
    found = logged(result, "valid")[-1]
    last = logged(trained.log, "valid")[-1]
    for name in ("loss", "accuracy"):
        assert float(found[f"valid_{name}"]) == pytest.approx(
            float(last[f"valid_{name}"]), abs=2e-3
        )


def classifier(path, data):
    return EntmaxClassifierModel.from_pretrained(str(path.parent), path.name, str(data))


def test_from_pretrained_predicts_labels_and_shows_the_words_behind_them(data, trained):
    model = classifier(trained.last, data)
    pairs = [("w1 yes w2", "yes w7"), ("w4 w9 w9 w9 no", "w5 no w3 w3"), ("w1 yes", "w8 w8 yes")]
    predictions = model.predict(pairs, batch_size=2)
    assert [one.label for one in predictions] == ["1", "0", "1"]
    first = predictions[0]
    assert first.tokens == ["w1", "yes", "w2", "</s>", "yes", "w7", "</s>"]
    assert (first.pooling["hypothesis"][0, :4] == 0).all()
    assert (first.pooling["premise"][0, 3:] == 0).all()


def test_a_pruned_model_has_the_heads_asked_for_predicts_the_same_and_is_trained_on(data, tmp_path):
    gated, small = tmp_path / "gated" / "checkpoint_last.pt", tmp_path / "small.pt"
    options = ["--criterion=sentence_prediction_with_head_l0", "--head-gates=encoder-self"]
    log = train(data, gated.parent, *options, "--target-heads=3", "--max-update=24")
    assert float(logged(log, "valid")[-1]["valid_heads_open"]) == 3
    run("fairseq-entmax", "prune", gated, "--output", small)
    heads = read_model(str(small)).options.heads
    assert sum(heads["encoder-self"]) == 3
    found = [
        [one.log_probs["1"] for one in classifier(path, data).predict(["w1 yes w2", "no", "w3"])]
        for path in (gated, small)
    ]
    assert found[1] == pytest.approx(found[0], abs=1e-4)
    train(data, tmp_path / "on", "--finetune-from-model", small, "--max-update=1")
    assert read_model(str(tmp_path / "on" / "checkpoint_last.pt")).options.heads == heads


YAML = """
common: {{user_dir: {user_dir}, cpu: true, seed: 1}}
task: {{_name: sentence_prediction, data: {data}, num_classes: 2}}
model: {{_name: entmax_classifier_small, encoder_layers: 1, pooling_mapping: fusedmax,
  pooling_heads: 2, pair_attention: true}}
criterion: {{_name: sentence_prediction}}
dataset: {{batch_size: 64, num_workers: 0}}
optimization: {{max_update: 2, lr: [0.001]}}
optimizer: {{_name: adam}}
lr_scheduler: {{_name: fixed}}
checkpoint: {{save_dir: {save_dir}}}
"""


def test_hydra_trains_a_model_of_pairs(data, tmp_path):
    names = {"data": data, "save_dir": tmp_path / "saved"}
    (tmp_path / "pairs.yaml").write_text(YAML.format(user_dir=USER_DIR, **names))
    given = [f"--config-dir={tmp_path}", "--config-name=pairs"]
    run("fairseq-hydra-train", *given, cwd=tmp_path)
    saved = read_model(str(tmp_path / "saved" / "checkpoint_last.pt"))
    pooling = saved.options.pooling
    assert (pooling.is_pair, pooling.pooling_heads) == (True, 2)
    assert {name: str(spec) for name, spec in pooling.specs.items()} == {
        "hypothesis": "fusedmax",
        "premise": "fusedmax",
    }
    assert saved.options.heads == {"encoder-self": [4]}


def test_another_number_of_classes_is_refused(data, tmp_path):
    given = [*arguments(data, tmp_path / "new")[1:], "--num-classes=3"]
    with pytest.raises(ValueError, match=r"label/dict\.txt has 2 labels, "):
        in_process.train(data, tmp_path / "new", given)
    assert not list(tmp_path.rglob("*.pt"))
