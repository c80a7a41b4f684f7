"""A good checkpoint with randomly changed settings.

It loads or gives a one-line error, and never runs code. ``FAIRSEQ_ENTMAX_FUZZ`` sets the number of
checkpoints for a longer run.
"""

import contextlib
import copy
import os
import random
from argparse import Namespace

import torch

from fairseq_entmax import checkpoints
from tests.security import corpus, load_paths

NUMBER = int(os.environ.get("FAIRSEQ_ENTMAX_FUZZ", "150"))
PIECES = (
    *("(", ")", "[", "]", "{", "}", ",", "*", "+", "-", "/", "**", "'", '"', "\\", "\n", "\t"),
    *("1", "0.5", "512", "True", "None", "lambda: ", "if ", " else ", " for x in ", ":=", "f'"),
    *("${", "task.data", "}", "oc.env:HOME", "\0", "é", "#", ";", " and ", "not ", ".", "x"),
)


def value(chance, mark):
    """A value of any type and size, often with code in it."""
    code = f"open({mark!r}, 'w').close()"
    form = chance.choice(list(corpus.FORMS))
    kinds = (
        lambda: corpus.text_of(form, mark),
        lambda: "".join(chance.choices([*PIECES, code], k=chance.randrange(12))),
        lambda: code.encode(),
        lambda: bytearray(code.encode()),
        # Small enough for memory, because nothing limits the number of layers
        lambda: chance.choice([0, -1, 1, 7, 1000]),
        lambda: chance.choice([0.5, -1.0, 1e300, float("nan"), float("inf")]),
        lambda: chance.choice([None, True, False, "", "softmax", "transformer", "fconv", "lstm"]),
        lambda: [value(chance, mark) for _ in range(chance.randrange(4))],
        lambda: {chance.choice(["a", "encoder_layers", 3]): value(chance, mark)},
        lambda: Namespace(adaptive_softmax_cutoff=value(chance, mark)),
        lambda: {1, 2},
        lambda: torch.zeros(2),
        lambda: chance.choice(PIECES) * chance.choice([10, 1000, 100_000]),
    )
    return chance.choice(kinds)()


def changed(chance, state, mark):
    """The checkpoint with one or two settings changed, and sometimes another model."""
    state = copy.deepcopy(state)
    if chance.random() < 0.5:
        arch = chance.choice(["transformer", "fconv", "lstm", "lightconv", "transformer_lm"])
        state["cfg"]["model"]._name = state["cfg"]["model"].arch = arch
    for _ in range(chance.choice([1, 1, 2])):
        group, name = chance.choice(load_paths.settings_of(state))
        if chance.random() < 0.4:
            group = vars(state["cfg"]["model"])
            name = chance.choice(["encoder_layers", "adaptive_softmax_cutoff"])
        group[name] = value(chance, mark)
        if not isinstance(state["cfg"].get("model"), Namespace):
            break
    return state


def test_changed_settings_load_or_give_a_one_line_error_and_run_no_code(
    attack_data, good_state, good_file, tmp_path
):
    chance = random.Random(0)
    mark, path = tmp_path / "mark", tmp_path / "changed.pt"
    loaded = 0
    for _ in range(NUMBER):
        torch.save(changed(chance, good_state, str(mark)), path)
        message = ""
        try:
            checkpoints.load_checkpoint(str(path))
        except ValueError as error:
            message = str(error)
        if message:
            assert str(path) in message
            assert "\n" not in message
        else:
            loaded += 1
            with contextlib.suppress(Exception):  # fairseq's own errors about unsuitable settings
                load_paths.IN_PROCESS["TransformerModel"](path, attack_data, good_file)
        assert not mark.exists()
    assert loaded > 0
