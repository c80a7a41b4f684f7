"""What the commands make of a checkpoint that makes no sense, in this process.

``python -m tests.checkpoints.outcomes 1000`` counts what they make of so many, and with ``1`` behind
it, of others; ``all`` gives each to every command, and not to some.
"""

from __future__ import annotations

import contextlib
import io
import logging
import re
import resource
import sys
import tempfile
import time
import warnings
from collections import Counter
from pathlib import Path

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from fairseq_entmax import cli
from tests.checkpoints import mutations
from tests.security import good

# @ is the checkpoint, % the data, + a place where nothing is
COMMANDS = {
    "alpha": ("alpha", "@"),
    "alpha --json": ("alpha", "@", "--json"),
    "prune": ("prune", "@", "--heads=cross:0.1", "--undecided", "--output", "+/new.pt"),
    "prune closed": ("prune", "@", "--output", "+/new.pt"),
    "prune --print-config": ("prune", "@", "--print-config"),
    "analyze": (
        "analyze",
        "%",
        "--path",
        "@",
        "--output",
        "+/new",
        "--cpu",
        "--sentences=0",
        "--relevance-sentences=1",
        "--gradient-sentences=1",
    ),
    "ablate": (
        *("ablate", "%", "--path", "@", "--output", "+/new", "--cpu", "--heads=cross:0.1"),
        *("--bootstrap=5", "--max-len-b=5"),
    ),
}
# Some of them for each mutation; those that take long for few
_FEW = (("alpha", "prune"), ("alpha --json", "prune closed"), ("alpha", "prune --print-config"))
SOME = (*_FEW * 3, ("analyze",), ("ablate",))
USED = (
    *("arch", "_name", "attn_mapping", "encoder_self_attn_mapping", "cross_attn_mapping"),
    *("alpha_init", "share_alpha", "alpha_lr_factor", "head_gates", "gate_stretch", "gate_init"),
    *("gate_temperature", "gate_lr_factor", "cross_attn_heads", "encoder_self_attn_heads"),
    *("encoder_layers", "decoder_layers", "encoder_embed_dim", "decoder_embed_dim", "tv_init"),
    *("encoder_attention_heads", "decoder_attention_heads", "encoder_ffn_embed_dim"),
    *("decoder_ffn_embed_dim", "encoder_layers_to_keep", "decoder_layers_to_keep", "output_alpha"),
    *("max_source_positions", "max_target_positions", "dropout", "share_all_embeddings"),
    *("encoder_normalize_before", "no_cross_attention", "adaptive_softmax_cutoff", "copy_heads"),
    *("decoder_output_dim", "decoder_input_dim", "encoder_layerdrop", "activation_fn"),
    *("alpha_log_interval", "freeze_decoder", "criterion", "task", "source_lang", "target_lang"),
)
# Words of Python that a user is not to see
_PYTHON = re.compile(
    r"Traceback|\b(?!Namespace)[A-Z]\w*(Error|Exception)\b|object at 0x|NoneType|"
    r"unsupported operand|has no attribute|not subscriptable|indices must|positional argument"
)
MOST_SECONDS = 10  # of the processor
LONGEST_SENTENCE = 1500  # characters


def good_checkpoint(data):
    """A checkpoint of a model with gates and learned alphas; its weights are as they started."""
    return good.harmless(data, "--head-gates=encoder-self,cross")


def outcome(command, path, data, place):
    """What came of a command: a sentence, a success, or what is not to be, beginning with BAD.

    Args:
        command: a name of :data:`COMMANDS`.
        path: the checkpoint.
        data: the folder of the data.
        place: a folder that holds nothing.
    """
    places = {"@": str(path), "%": str(data)}
    words = [places.get(word, word.replace("+", str(place))) for word in COMMANDS[command]]
    before, content, began = sorted(path.parent.iterdir()), path.read_bytes(), time.process_time()
    out, err = io.StringIO(), io.StringIO()
    with (
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore")
        try:
            status = cli.main(words)
        except SystemExit as error:
            status = error.code
        except BaseException as error:
            return f"BAD traceback {type(error).__name__}: {str(error)[:200]}"
    said = err.getvalue().splitlines()
    mine = [line for line in said if line.startswith(f"fairseq-entmax {words[0]}: ")]
    if path.read_bytes() != content or sorted(path.parent.iterdir()) != before:
        return "BAD something beside the output was changed"
    if time.process_time() - began > MOST_SECONDS:
        return f"BAD it took {time.process_time() - began:.0f} seconds"
    # The journal of an ablation, which is gone on with, stays when it stops
    kept = ("new", "removals.jsonl") if command == "ablate" else ()
    left = sorted(one.name for one in place.rglob("*") if one.name not in kept)
    if status == 0:
        python = _PYTHON.search(out.getvalue())
        return f"BAD it printed {python[0]}" if python else "success"
    if status != 1 or len(mine) != 1 or said[-1] != mine[0]:
        return f"BAD status {status}: {' / '.join(said)[-300:]}"
    if left:
        return f"BAD it left {', '.join(left)}"
    if _PYTHON.search(mine[0]):
        return f"BAD words of Python: {mine[0][:300]}"
    if len(mine[0]) > LONGEST_SENTENCE:
        return f"BAD {len(mine[0])} characters: {mine[0][:200]}"
    return mine[0]


def memory():
    """The most bytes that this process has taken so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def main(arguments):
    """Count what comes of so many mutations, and print each kind of what is not to be."""
    number = int(arguments[0]) if arguments else 100
    number_of_seed = next((int(one) for one in arguments[1:] if one.isdecimal()), 0)
    sets = [tuple(COMMANDS)] if "all" in arguments else SOME
    logging.disable(logging.WARNING)
    folder = Path(tempfile.mkdtemp())
    data = folder / "data"
    good.write_data(data)
    state = good_checkpoint(data)
    seen, bad, mutated, successes = Counter(), {}, Counter(), Counter()
    before, began = memory(), time.process_time()

    @seed(number_of_seed)
    @settings(
        max_examples=number,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(mutations.mutations(state, USED), st.sampled_from(sets))
    def tried(mutation, names):
        with tempfile.TemporaryDirectory(dir=folder) as inside:
            path, place = Path(inside) / "bad.pt", Path(inside) / "place"
            place.mkdir()
            mutations.write(state, mutation, path)
            fell = set()
            for command in names:
                came = outcome(command, path, data, place)
                kind = (
                    came if came == "success" else "BAD" if came.startswith("BAD") else "sentence"
                )
                seen[kind] += 1
                fell.add(kind)
                if kind == "BAD":
                    bad.setdefault((command, came.replace(str(path), "@")[:160]), []).append(
                        mutation
                    )
                elif kind == "success":
                    successes[str(mutation)] += 1
                for one in sorted(place.iterdir()):
                    one.unlink() if one.is_file() else mutations.remove(one)
            mutated["BAD" if "BAD" in fell else "good"] += 1

    tried()
    for (command, came), made in sorted(bad.items(), key=lambda item: -len(item[1])):
        print(f"{len(made):4} {command}: {came}\n       such as {made[0]}")
    if "-v" in arguments:
        for one, times in sorted(successes.items()):
            print("success", times, one)
    print(f"mutations {dict(mutated)}, commands {dict(seen)}, {time.process_time() - began:.0f} s")
    sys.stdout.flush()
    print(f"memory grew by {(memory() - before) / 2**20:.0f} MiB")


if __name__ == "__main__":
    main(sys.argv[1:])
