"""Command lines changed at random: of every command of ``fairseq-entmax``, and of ``fairseq-train``."""

from __future__ import annotations

import argparse
import os
import re
import stat

import pytest
from fairseq import options
from fairseq.criterions import CRITERION_DATACLASS_REGISTRY
from fairseq.dataclass.utils import convert_namespace_to_omegaconf, gen_parser_from_dataclass
from fairseq.models import ARCH_MODEL_REGISTRY
from hypothesis import given
from hypothesis import strategies as st

import fairseq_entmax.criterions
import fairseq_entmax.models
import fairseq_entmax.tasks  # noqa: F401
from tests.commands import USER_DIR, as_command
from tests.fuzz.support import CODE, MARK, attempt, check_sentence, entmax, examples
from tests.support import TINY, classification_task, tiny_task

HUGE = "9" * 400
# No device: a command that replaced one would take it from every process of the system
VALUES = (
    *("", " ", "-", "--", "None", "null", "true", "0", "1", "2", "-1", "1.5", "-0.0", "1e-320"),
    *("1e300", "1e400", "nan", "inf", "-inf", "0x10", "1_000", "٣", HUGE, "9" * 5000),
    *("a\0b", "é\udc80", "a\nb", "a\tb", "~", "*", "a,b", "a:b", ",", ":", ";", "=", "[1,2]"),
    *("{}", '{"a":1}', "x" * 300, "x/" * 3000, "here.txt", "absent/x.txt", "../../up.txt"),
    *("plain.pt", "plain.pt/x", "bin", "source.txt", "vocab.txt", "analysis.json", "pruning.tsv"),
    *("ablated", "parses.conllu", "generated.txt", "alpha.jsonl"),
    *("/proc/x/y", "/proc/self/mem", "cross:0.1", "cross:9.9", "encoder-self:0.0,0.1,0.2,0.3"),
    *("softmax", "entmax15", "entmax:alpha=1.5", "entmax:alpha=9", "fusedmax", "softmax*2,entmax"),
    *("cross", "decoder-self", "all", "loss", "bleu", "rouge", "density", "svg", "0,1", "all=6"),
    *CODE,
)
SMALL = ["--cpu", "--num-workers=0"]
DATA = ["bin", "--path", "plain.pt"]
# What each command takes when nothing is changed
GOOD = {
    "user-dir": [[]],
    "alpha": [["plain.pt"], ["plain.pt", "--json"]],
    "prune": [
        ["plain.pt", "--heads", "cross:0.1", "--output", "new.pt"],
        ["plain.pt", "--print-config"],
    ],
    "tag": [["source.txt", "--language", "xx", "--output", "new.conllu"]],
    "oov": [
        [
            *("vocabulary", "--text", "source.txt", "--words", "9", "--markers", "2"),
            *("--output", "new.txt"),
        ],
        ["mark", "--source", "source.txt", "--vocab", "vocab.txt", "--output-source", "new.txt"],
        [
            *("mark", "--source", "source.txt", "--target", "target.txt", "--vocab", "vocab.txt"),
            *("--output-source", "new.txt", "--output-target", "new2.txt", "--cut-source", "3"),
        ],
        [
            *("restore", "generated.txt", "--source", "source.txt", "--vocab", "vocab.txt"),
            *("--output", "new.txt", "--cut-source", "3"),
        ],
    ],
    "rouge": [
        ["generated.txt", "--reference", "target.txt", "--bootstrap", "9", "--output", "new.json"],
        [
            *("source.txt", "--text", "--reference", "target.txt", "--bytes", "75", "--seed", "3"),
            *("--bootstrap", "9", "--json"),
        ],
    ],
    "report": [
        ["analysis.json", "--output", "new.html"],
        ["analysis.json", "--output", "new.html", "--pruning", "pruning.tsv"],
        [
            *("analysis.json", "--output", "new.html", "--figures", "drawn", "--formats", "svg"),
            *("--figure-names", "density_by_layer", "--ablation", "ablated/ablation.json"),
        ],
    ],
    "analyze": [
        [*DATA, "--output", "new", "--measures", "density", "--sentences", "0", *SMALL],
        [*DATA, "--output", "new", "--measures", "density", "--conllu", "parses.conllu", *SMALL],
    ],
    "ablate": [[*DATA, "--output", "new", "--heads", "cross:0.1", "--scores", "loss", *SMALL]],
    "look": [
        [
            "plain.pt",
            "--text",
            "w1 w2",
            "--data",
            "whole-words",
            "--source-lang",
            "a",
            "--target-lang",
            "b",
            "--beam",
            "1",
            "--cpu",
        ]
    ],
}
# Beside those of its lines. Not --user-dir: its code runs, and stays imported, which is what it is for
MORE = {
    "prune": ["--overwrite", "--undecided", "--copy-heads-too"],
    "alpha": ["--json", "--version"],
    "oov": ["--cut-target", "--cut-source", "--overwrite"],
    "rouge": ["--sentences", "--compare", "--json", "--no-stem", "--overwrite"],
    "report": ["--measure", "--overwrite", "--heads-table", "--pruning", "--ablation"],
    "analyze": ["--of", "--names", "--overwrite", "--relevance-sentences", "--gen-subset"],
    "ablate": ["--sets", "--bootstrap", "--sacrebleu-tokenize", "--rouge-bytes", "--overwrite"],
    "look": ["--translation", "--layer", "--head", "--top", "--words", "--json", "--output"],
}
# Of those that load a model or draw
HEAVY = ("analyze", "ablate", "look", "report")
# A journal is kept for the next call
JOURNALS = ("removals.jsonl",)

values = st.one_of(
    st.sampled_from(VALUES), st.text(max_size=8).filter(lambda text: "/" not in text)
)


@st.composite
def changed(draw, words, further=()):
    """Words with some changes: left out, twice, in another place, with another value, added."""
    words = list(words)
    for _ in range(draw(st.integers(1, 3))):
        how = draw(
            st.sampled_from(("out", "twice", "swap", "value", "value", "value", "add", "cut"))
        )
        at = draw(st.integers(0, max(0, len(words) - 1)))
        if how == "add" and further:
            option = draw(st.sampled_from(list(further)))
            words[at:at] = [option] if draw(st.booleans()) else [option, draw(values)]
        elif not words:
            words = [draw(values)]
        elif how == "out":
            del words[at]
        elif how == "twice":
            words.append(words[at])
        elif how == "swap":
            other = draw(st.integers(0, len(words) - 1))
            words[at], words[other] = words[other], words[at]
        elif how == "cut":
            del words[at + 1 :]
        elif how == "value":
            option, equals, _ = words[at].partition("=")
            words[at] = f"{option}={draw(values)}" if equals else draw(values)
    return words


def outputs_of(words):
    """What is named behind an option that says where to write."""
    outputs = []
    for word, following in zip(words, [*words[1:], ""], strict=True):
        option, equals, value = word.partition("=")
        if option.startswith(("--o", "--figures", "--heads-table", "--per-")):
            outputs.append(value if equals else following)
    return outputs


@pytest.mark.parametrize("command", GOOD)
def test_a_command_line_succeeds_or_is_refused_in_one_sentence(command, place):
    lines = st.sampled_from(GOOD[command]).flatmap(
        lambda words: changed([*words], MORE.get(command, ()))
    )

    @examples(4 if command in HEAVY else 10)
    @given(lines)
    def tried(words):
        with place.entered():
            outcome = entmax([command, *words])
        check_sentence(outcome, words)
        overwrites = any("--over".startswith(w[:6]) and len(w) > 5 for w in words)
        outputs = outputs_of(words) if overwrites else ()
        place.check(outcome, outputs, JOURNALS if command == "ablate" else ())

    tried()


@pytest.mark.parametrize("command", GOOD)
def test_each_good_line_succeeds(command, place):
    for words in GOOD[command]:
        if command == "tag":  # needs a pipeline that is downloaded
            continue
        with place.entered():
            outcome = entmax([command, *words])
        assert outcome.status == 0, (words, outcome.said)
        place.check(outcome)


OUTPUTS = [
    (command, number, at)
    for command, lines in GOOD.items()
    for number, words in enumerate(lines)
    for at, word in enumerate(words)
    if word.startswith("new")
]


@pytest.mark.parametrize(("command", "number", "at"), OUTPUTS)
def test_no_output_replaces_what_is_there(command, number, at, place):
    present = ("source.txt", "plain.pt", "analysis.json", "bin")
    for existing in present[:2] if command in HEAVY else present:
        words = [*GOOD[command][number]]
        words[at] = existing
        with place.entered():
            outcome = entmax([command, *words])
        check_sentence(outcome, words)
        place.check(outcome)


@pytest.mark.parametrize("options", [[], ["--overwrite"]], ids=["", "overwrite"])
@pytest.mark.parametrize(("command", "number", "at"), OUTPUTS)
def test_what_is_no_ordinary_file_is_no_output(command, number, at, options, place):
    pipe = place.folder / "pipe"
    os.mkfifo(pipe)
    words = [*GOOD[command][number]]
    words[at] = "pipe"
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)  # so that no writer waits for one
    try:
        with place.entered():
            outcome = entmax([command, *words, *options])
        assert stat.S_ISFIFO(pipe.lstat().st_mode)
        assert os.read(reader, 1) == b""
    finally:
        os.close(reader)
        pipe.unlink()
    assert outcome.status
    check_sentence(outcome, words)
    place.check(outcome)


# --- fairseq-train --------------------------------------------------------------------------------

CRITERION = "label_smoothed_cross_entropy_with_head_l0"
ARCHITECTURES = {
    "entmax_transformer": CRITERION,
    "entmax_copy_transformer": "copy_cross_entropy",
    "entmax_transformer_lm": "entmax_loss",
    "entmax_classifier": "sentence_prediction",
}
TRAINED = [f"--user-dir={USER_DIR}", "--max-tokens=100", "--max-update=50", "--optimizer=adam"]


def own_options(architecture):
    """The options of a model and its criterion that fairseq does not have: name to whether it has a value."""
    parsers = [argparse.ArgumentParser(allow_abbrev=False) for _ in range(3)]
    for parser, name in zip(parsers, (architecture, "transformer", "transformer_lm"), strict=True):
        ARCH_MODEL_REGISTRY[name].add_args(parser)
    gen_parser_from_dataclass(
        parsers[0], CRITERION_DATACLASS_REGISTRY[ARCHITECTURES[architecture]]()
    )
    stock = [*parsers[1]._actions, *parsers[2]._actions]
    known = {option for action in stock for option in action.option_strings}
    return {
        option: action.nargs != 0
        for action in parsers[0]._actions
        for option in action.option_strings
        if option not in known
    }


@st.composite
def training(draw, own):
    """Some of a model's options with values of any kind."""
    words = []
    for option in draw(st.lists(st.sampled_from(sorted(own)), min_size=1, max_size=4)):
        value = draw(values)
        forms = [[option], [f"{option}={value}"], [option, value]]
        words += draw(st.sampled_from(forms if own[option] else forms[:1] * 8 + forms[1:]))
    return words


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_options_of_training_are_taken_or_refused_in_one_sentence(architecture, place):
    own = own_options(architecture)
    assert len(own) > 10
    sizes = [f"--{name.replace('_', '-')}={value}" for name, value in TINY.items()]
    if architecture.endswith("lm"):
        sizes = [size for size in sizes if "encoder" not in size and "positions" not in size]
    always = [f"--arch={architecture}", f"--criterion={ARCHITECTURES[architecture]}", *TRAINED]
    if ARCHITECTURES[architecture] == CRITERION:
        always += ["--head-gates=cross"]
    if architecture.endswith("lm"):
        always += ["--task=language_modeling", "--tokens-per-sample=32"]
    is_classifier = architecture == "entmax_classifier"
    if is_classifier:
        sizes = [size for size in sizes if not re.search("decoder|positions", size)]
        always += ["--task=sentence_prediction", "--num-classes=3", "--max-positions=32"]
    task = classification_task() if is_classifier else tiny_task()

    def train(words):
        def command():
            parser = options.get_training_parser()
            given_words = ["bin", *always, *sizes, "--save-dir=new", *words]
            args = options.parse_args_and_arch(parser, given_words)
            cfg = convert_namespace_to_omegaconf(args)
            ARCH_MODEL_REGISTRY[architecture].build_model(
                args if not architecture.endswith("lm") else cfg.model, task
            )
            return 0

        return command

    def outcome_of(words):
        with place.entered(), pytest.MonkeyPatch.context() as patch:
            as_command(patch)
            return attempt(train(words))

    unchanged = outcome_of([])
    assert unchanged.status == 0, unchanged.said

    @examples(6)
    @given(training(own))
    def tried(words):
        outcome = outcome_of(words)
        check_sentence(outcome, words)
        place.check(outcome)

    tried()


@pytest.mark.parametrize("command", ["alpha", "prune"])
def test_a_user_directory_without_a_name_is_not_the_folder_that_one_is_in(command, place):
    (place.folder / "__init__.py").write_text(f"open('{MARK}', 'w').close()\n")
    place.before = place.files()
    with place.entered():
        outcome = entmax(
            [command, "plain.pt", "--user-dir", "", *["--print-config"][: command == "prune"]]
        )
    check_sentence(outcome)
    assert outcome.status == 1
    assert place.files() == place.before


@pytest.mark.parametrize("words", [["alpha", "--user-dir=--", "x.pt"], ["analyze", "--path=--"]])
def test_an_option_whose_value_argparse_would_lose_is_named(words):
    outcome = entmax(words)
    name = next(word for word in words if "=" in word).partition("=")[0]
    assert outcome.status == 2
    assert outcome.said == f"fairseq-entmax {words[0]}: error: {name} got '--', no value\n"
