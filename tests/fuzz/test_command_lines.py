"""Every command of ``fairseq-entmax`` writes only its output, and overwrites nothing."""

import itertools
import os

import pytest

import fairseq_entmax.criterions
import fairseq_entmax.models
import fairseq_entmax.tasks  # noqa: F401
from tests.fuzz.support import MARK, check_sentence

DATA = "bin --path plain.pt --output new --cpu --num-workers=0"
# Valid arguments of each command
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
# Commands that load a model or draw figures
HEAVY = ("analyze", "ablate", "look", "report")


@pytest.mark.parametrize("command", GOOD)
def test_a_good_command_line_succeeds(command, place):
    for words in GOOD[command]:
        outcome = place.run([command, *words.split()])
        # tag would have to download a pipeline
        assert outcome.status == 0 or command == "tag", (words, outcome.output)
        place.check(outcome)


@pytest.mark.parametrize("command", [command for command in GOOD if "new" in str(GOOD[command])])
def test_an_output_never_replaces_existing_or_special_files(command, place):
    os.mkfifo(place.folder / "pipe")
    place.before = place.files()
    # A reader, so that no writer of the pipe waits
    reader = os.open(place.folder / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    tries = [("source.txt", []), ("pipe", ["--overwrite"]), ("bin", [])]
    tries = tries[1:] if command in HEAVY else tries
    lines = [line.split() for line in GOOD[command]]
    places = [(line, at) for line in lines for at in range(len(line)) if line[at][:3] == "new"]
    for (line, at), (existing, options) in itertools.product(places, tries):
        words = [*line[:at], existing, *line[at + 1 :], *options]
        outcome = place.run([command, *words])
        check_sentence(outcome, words)
        after = place.files()
        assert {path: after.get(path) for path in place.before} == place.before
        assert outcome.status == 0 or after == place.before
        assert os.read(reader, 1) == b""
        place.before = after
    os.close(reader)


def test_an_empty_user_directory_does_not_import_the_working_folder(place):
    (place.folder / "__init__.py").write_text(f"open('{MARK}', 'w').close()\n")
    place.before = place.files()
    outcome = place.run(["alpha", "plain.pt", "--user-dir", ""])
    check_sentence(outcome)
    assert outcome.status == 1
    assert place.files() == place.before
