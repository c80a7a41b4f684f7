"""Malicious checkpoints, made when they are needed.

If one ran its code, it would create a file as a mark; none does other harm.
"""

import copy
import io
import json
import os
import pickle
import tarfile
from argparse import Namespace
from collections import OrderedDict
from pathlib import Path

import numpy as np
import torch

import fairseq_entmax  # noqa: F401


# Pickles that run code: their place in the checkpoint, and what they call
class Call:
    def __init__(self, function, *arguments):
        self.call = function, arguments

    def __reduce__(self):
        return self.call


PAYLOADS = {
    "open": lambda mark: Call(open, mark, "w"),
    "system": lambda mark: Call(os.system, f"touch '{mark}'"),
    "eval": lambda mark: Call(eval, f"open({mark!r}, 'w')"),
    "numpy": lambda mark: Call(np.savetxt, mark, [0]),
}
PLACES = ("cfg", "args", "model", "extra_state", "optimizer_history", "last_optimizer_state")


def _pickled(payload, place):
    def write(state, path, mark):
        state[place] = {"surprise": PAYLOADS[payload](mark)}

    return write


def _old_torch(state, path, mark):
    state["model"]["surprise"] = PAYLOADS["open"](mark)
    torch.save(state, path, _use_new_zipfile_serialization=False)


def _old_tar(state, path, mark):
    """torch's format from before 2017, whose parts are pickles."""
    with tarfile.open(path, "w") as archive:
        for name in ("storages", "tensors", "pickle"):
            content = pickle.dumps(PAYLOADS["open"](mark), protocol=2)
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))


# Settings that fairseq passes to eval. {} is replaced by the mark.
CODE = "open({!r}, 'w').close()"
FORMS = {
    "call": "[{code} or 1]",
    "line_continuation": "{code}\\\n\n",
    "spaces_in_front": "  \t{code}",
    "lambda": "(lambda: {code})()",
    "comprehension": "[{code} for _ in [1]]",
    "condition": "1 if {code} else 2",
    "walrus": "(x := {code})",
    "f_string": 'f"{{{code}}}"',
    "attribute": "[].__class__.__base__.__subclasses__() and {code}",
    "subscript": "[1][{code} or 0]",
    "star": "[*[{code}]]",
    "default_argument": "(lambda x={code}: 1)",
    "dictionary_value": "{{'a': {code}}}",
    "in_multiplication": "[1] * ({code} or 1)",
    "full_width_letters": "ｏｐｅｎ({mark!r}, 'w').close()",
    "import": "__import__('os').mknod({mark!r})",
}


def text_of(form, mark):
    return FORMS[form].format(code=CODE.format(mark), mark=mark)


def _setting(name, form="call", *, group="model", convert=lambda text: text, **others):
    """A setting of this name with code in it; ``others`` are further settings."""

    def write(state, path, mark):
        cfg = state["cfg"]
        text = convert(text_of(form, mark))
        if group == "args":
            flat = {**_flat(cfg), "arch": "transformer", **others, name: text}
            state |= {"args": Namespace(**flat), "cfg": None}
        else:
            _put(cfg, group, {**others, name: text})

    return write


def _put(cfg, group, values):
    if cfg.get(group) is None:
        cfg[group] = {}
    settings = cfg[group]
    (vars(settings) if isinstance(settings, Namespace) else settings).update(values)


def _flat(cfg):
    flat = {}
    for group in cfg.values():
        values = vars(group) if isinstance(group, Namespace) else group
        if isinstance(values, dict):
            flat |= {name: value for name, value in values.items() if not name.startswith("_")}
    return flat | {"task": "translation", "criterion": "cross_entropy", "optimizer": "adam"}


STOCK = {"_name": "transformer", "arch": "transformer"}
OTHERS = {
    "fconv": {"_name": "fconv", "arch": "fconv", "decoder_attention": "False"},
    "self_att": {"_name": "fconv_self_att", "arch": "fconv_self_att"},
    "lstm": {"_name": "lstm", "arch": "lstm"},
}


def _task(name, setting):
    """A task that reads a setting with fairseq's eval_bool."""
    languages = {"lang_pairs": "a-b", "langs": ["a", "b"], "lang_dict": None}
    languages |= {"source_lang": "a", "target_lang": "b", "sampling_method": "concat"}
    return _setting(setting, group="task", _name=name, task=name, **languages)


def _reference(to):
    """Code in one setting that another setting refers to."""

    def write(state, path, mark):
        state["cfg"]["common"]["plasma_path"] = text_of("call", mark)
        model = {**vars(state["cfg"]["model"]), **STOCK, "adaptive_softmax_cutoff": to}
        state["cfg"]["model"] = model

    return write


def _yaml(state, path, mark):
    """All settings as one text, which fairseq's settings library parses."""
    model = {**vars(state["cfg"]["model"]), **STOCK}
    model["adaptive_softmax_cutoff"] = text_of("call", mark)
    state["cfg"] = json.dumps({**state["cfg"], "model": model})


def _user_dir(state, path, mark):
    """The name of a folder with code, as in --user-dir."""
    folder = Path(path).parent / f"evil_user_dir_{Path(path).stem}"
    folder.mkdir(exist_ok=True)
    (folder / "__init__.py").write_text(f"open({mark!r}, 'w').close()\n")
    state["cfg"]["common"]["user_dir"] = str(folder)


def _shell(state, path, mark):
    """fairseq's fasta data sets pass the file's name to a shell."""
    _put(state["cfg"], "task", {"dataset_impl": "fasta", "source_lang": f"a;touch {mark};"})
    state["cfg"]["dataset"]["dataset_impl"] = "fasta"


def _hidden(group, **values):
    """Settings as attributes of a dictionary, which a check of its items does not see."""

    def write(state, path, mark):
        settings = state["cfg"][group]
        settings = vars(settings) if isinstance(settings, Namespace) else dict(settings)
        hidden = OrderedDict()
        hidden.__dict__.update(settings | {n: v.format(mark=mark) for n, v in values.items()})
        state["cfg"][group] = hidden

    return write


class Shadowed:
    """When unpickled, a dictionary whose methods are shadowed by the checkpoint's content."""

    def __init__(self, entries):
        self.entries = entries

    def __reduce__(self):
        shadows = dict.fromkeys(("items", "get", "keys", "values", "copy"), "x")
        return OrderedDict, (), shadows, None, iter(self.entries.items())


def _shadowed(place):
    def write(state, path, mark):
        state[place] = Shadowed(state[place])

    return write


def _written_file(group, name, **others):
    """A setting that names a file which fairseq writes, or a command."""

    def write(state, path, mark):
        state["cfg"][group] = {**others, name: mark}

    return write


RANKING = {"_name": "sentence_ranking", "ranking_head_name": "x", "num_classes": 2}


RUNS_CODE = {
    **{f"pickle_{payload}": _pickled(payload, "extra_state") for payload in PAYLOADS},
    **{f"pickle_in_{place}": _pickled("open", place) for place in PLACES if place != "extra_state"},
    "pickle_plain": lambda state, path, mark: path.write_bytes(
        pickle.dumps({"model": PAYLOADS["open"](mark)}, protocol=2)
    ),
    "pickle_of_old_torch": _old_torch,
    "pickles_of_older_torch": _old_tar,
    # tests/fairseq_patches/test_literals.py refuses the forms one by one
    **{
        f"text_{form}": _setting("adaptive_softmax_cutoff", form, **STOCK)
        for form in ("call", "line_continuation", "f_string")
    },
    "text_in_args_line_continuation": _setting(
        "adaptive_softmax_cutoff", "line_continuation", group="args"
    ),
    "own_model": _setting("adaptive_softmax_cutoff"),
    "xformers": _setting("encoder_xformers_att_config", **STOCK),
    "fconv_text": _setting("encoder_layers", **OTHERS["fconv"]),
    "fconv_bytes": _setting("encoder_layers", convert=str.encode, **OTHERS["fconv"]),
    "fconv_bytearray": _setting(
        "encoder_layers", convert=lambda text: bytearray(text.encode()), **OTHERS["fconv"]
    ),
    "fconv_bytes_in_args": _setting(
        "encoder_layers", group="args", convert=str.encode, **OTHERS["fconv"]
    ),
    "fconv_self_att_bytes": _setting("pretrained", convert=str.encode, **OTHERS["self_att"]),
    "lstm_text": _setting("decoder_attention", **OTHERS["lstm"]),
    "lstm_bytes": _setting("decoder_attention", convert=str.encode, **OTHERS["lstm"]),
    "wav2vec": _setting("conv_feature_layers", "line_continuation", _name="wav2vec2"),
    **{
        f"{name}_{setting}": _task(name, setting)
        for name in ("multilingual_translation", "online_backtranslation")
        for setting in ("left_pad_source", "left_pad_target")
    },
    "pipeline_balance": _setting("pipeline_balance", group="distributed_training"),
    "optimizer_betas": _setting("adam_betas", "line_continuation", group="optimizer"),
    "criterion_wer_args": _setting("wer_args", "line_continuation", group="criterion"),
    "name_of_no_evaluated_setting": _setting("some_new_setting", convert=str.encode),
    "reference_to_a_text": _reference("${common.plasma_path}"),
    "reference_by_a_function": _reference("${oc.select:common.plasma_path}"),
    "reference_to_the_environment": lambda state, path, mark: _put(
        state["cfg"], "task", {"data": "${oc.env:HOME}"}
    ),
    "settings_as_yaml": _yaml,
    "user_dir": _user_dir,
    "shell_by_fasta": _shell,
    "hidden_task": _hidden("task", dataset_impl="fasta", source_lang="a;touch {mark};"),
    "hidden_model": _hidden("model", adaptive_softmax_cutoff="open('{mark}', 'w')"),
    "shadowed_weights": _shadowed("model"),
    "shadowed_settings": _shadowed("cfg"),
    "shadowed_checkpoint": lambda state, path, mark: torch.save(Shadowed(state), path),
    "criterion_that_writes": _written_file("criterion", "save_predictions", **RANKING),
    "task_that_calls": _written_file("task", "post_save_script", _name="audio_finetuning"),
    "key_that_is_no_text": lambda state, path, mark: _put(
        state["cfg"], "common", {("encoder_layers",): text_of("call", mark)}
    ),
}
# Kinds that reading does not refuse: texts that are read as plain values where fairseq would
# evaluate them; a user directory, since fairseq takes only that of the command; and dictionaries
# whose methods are shadowed by a text, which is not code
READ_AS_PLAIN_VALUES = (
    *(kind for kind in RUNS_CODE if kind.startswith("text_") or "left_pad" in kind),
    *("own_model", "xformers", "fconv_text", "lstm_text", "wav2vec"),
    *("pipeline_balance", "optimizer_betas", "criterion_wer_args", "reference_to_a_text"),
    *("user_dir", "key_that_is_no_text", "shadowed_weights", "shadowed_checkpoint"),
)


def write(kind, state, folder, mark):
    """Write the malicious checkpoint of a kind, and return its path."""
    path, state = Path(folder) / f"{kind}.pt", copy.deepcopy(state)
    RUNS_CODE[kind](state, path, str(mark))
    if not path.exists():
        torch.save(state, path)
    return path
