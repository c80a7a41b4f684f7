"""Command lines of every command of ``fairseq-entmax``, changed at random."""

from __future__ import annotations

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

import fairseq_entmax.criterions
import fairseq_entmax.models
import fairseq_entmax.tasks  # noqa: F401
from tests.fuzz.support import CODE, MARK, check_sentence, examples

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
DATA = "bin --path plain.pt --output new --cpu --num-workers=0"
# What each command takes when nothing is changed
GOOD = {
    "user-dir": [""],
    "alpha": ["plain.pt", "plain.pt --json"],
    "prune": ["plain.pt --heads cross:0.1 --output new.pt", "plain.pt --print-config"],
    "tag": ["source.txt --language xx --output new.conllu"],
    "oov": [
        "vocabulary --text source.txt --words 9 --markers 2 --output new.txt",
        "mark --source source.txt --target target.txt --vocab vocab.txt --output-source new.txt "
        "--output-target new2.txt --cut-source 3",
        "restore generated.txt --source source.txt --vocab vocab.txt --output new.txt",
    ],
    "rouge": [
        "generated.txt --reference target.txt --bootstrap 9 --output new.json",
        "source.txt --text --reference target.txt --bytes 75 --seed 3 --bootstrap 9 --json",
    ],
    "report": [
        "analysis.json --output new.html --pruning pruning.tsv",
        "analysis.json --output new.html --figures drawn --formats svg "
        "--figure-names density_by_layer --ablation ablated/ablation.json",
    ],
    "analyze": [
        f"{DATA} --measures density --sentences 0",
        f"{DATA} --measures density --conllu parses.conllu",
    ],
    "ablate": [f"{DATA} --heads cross:0.1 --scores loss"],
    "look": [
        "plain.pt --text w1 --data whole-words --source-lang a --target-lang b --beam 1 --cpu"
    ],
}
# Beside those of its lines. Not --user-dir: its code runs, and stays imported, which is what it is for
MORE = {
    "prune": ["--overwrite", "--undecided"],
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
    for words in GOOD[command]:
        outcome = place.run([command, *words.split()])
        # tag needs a pipeline that is downloaded
        assert outcome.status == 0 or command == "tag", (words, outcome.said)
        place.check(outcome)
    lines = st.sampled_from(GOOD[command]).flatmap(
        lambda words: changed(words.split(), MORE.get(command, ()))
    )

    @examples(4 if command in HEAVY else 10)
    @given(lines)
    def tried(words):
        outcome = place.run([command, *words])
        check_sentence(outcome, words)
        overwrites = any("--over".startswith(w[:6]) and len(w) > 5 for w in words)
        outputs = outputs_of(words) if overwrites else ()
        place.check(outcome, outputs, JOURNALS if command == "ablate" else ())

    tried()


@pytest.mark.parametrize(
    ("command", "number", "at"),
    [
        (command, number, at)
        for command, lines in GOOD.items()
        for number, words in enumerate(lines)
        for at, word in enumerate(words.split())
        if word.startswith("new")
    ],
)
def test_no_output_replaces_what_is_there_or_no_ordinary_file(command, number, at, place):
    os.mkfifo(place.folder / "pipe")
    place.before = place.files()
    # So that no writer waits for a reader
    reader = os.open(place.folder / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    tries = [("source.txt", []), ("pipe", ["--overwrite"]), ("bin", [])]
    try:
        for existing, options in tries[1:] if command in HEAVY else tries:
            words = [*GOOD[command][number].split(), *options]
            words[at] = existing
            outcome = place.run([command, *words])
            check_sentence(outcome, words)
            after = place.files()
            assert {path: after.get(path) for path in place.before} == place.before
            assert outcome.status == 0 or after == place.before
            assert os.read(reader, 1) == b""
    finally:
        os.close(reader)


def test_a_user_directory_without_a_name_is_not_the_folder_that_one_is_in(place):
    (place.folder / "__init__.py").write_text(f"open('{MARK}', 'w').close()\n")
    place.before = place.files()
    outcome = place.run(["alpha", "plain.pt", "--user-dir", ""])
    check_sentence(outcome)
    assert outcome.status == 1
    assert place.files() == place.before
