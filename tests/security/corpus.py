"""Malicious checkpoints, made on the spot.

Each would leave a mark, a file, if it ran code, or fill the memory; none does other harm.
"""

from __future__ import annotations

import copy
import io
import json
import os
import pickle
import struct
import subprocess
import tarfile
import zipfile
from argparse import Namespace
from collections import OrderedDict
from pathlib import Path

import numpy as np
import torch

import fairseq_entmax  # noqa: F401


# Pickles that run code: where in the checkpoint, and what they call
class Call:
    def __init__(self, function, *arguments):
        self.call = function, arguments

    def __reduce__(self):
        return self.call


PAYLOADS = {
    "open": lambda mark: Call(open, mark, "w"),
    "system": lambda mark: Call(os.system, f"touch '{mark}'"),
    "eval": lambda mark: Call(eval, f"open({mark!r}, 'w')"),
    "exec": lambda mark: Call(exec, f"open({mark!r}, 'w')"),
    "subprocess": lambda mark: Call(subprocess.check_call, ["touch", mark]),
    "numpy": lambda mark: Call(np.savetxt, mark, [0]),
}
PLACES = ("cfg", "args", "model", "extra_state", "optimizer_history", "last_optimizer_state")


def _pickled(payload, place):
    def write(state, path, mark):
        state[place] = {"surprise": PAYLOADS[payload](mark)}
        torch.save(state, path)

    return write


def _plain_pickle(state, path, mark):
    path.write_bytes(pickle.dumps({"model": PAYLOADS["open"](mark)}, protocol=2))


def _old_torch(state, path, mark):
    state["model"]["surprise"] = PAYLOADS["open"](mark)
    torch.save(state, path, _use_new_zipfile_serialization=False)


def _old_tar(state, path, mark):
    """torch's format of before 2017, whose parts are pickles."""
    with tarfile.open(path, "w") as archive:
        for name in ("storages", "tensors", "pickle"):
            content = pickle.dumps(PAYLOADS["open"](mark), protocol=2)
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))


# Settings that fairseq hands to eval. {} is where the mark goes.
CODE = "open({!r}, 'w').close()"
FORMS = {
    "call": "[{code} or 1]",
    "line_continuation": "{code}\\\n\n",
    "spaces_in_front": "  \t{code}",
    "comment_behind": "{code} # 1",
    "lambda": "(lambda: {code})()",
    "comprehension": "[{code} for _ in [1]]",
    "generator": "list({code} for _ in [1])",
    "condition": "1 if {code} else 2",
    "walrus": "(x := {code})",
    "f_string": 'f"{{{code}}}"',
    "attribute": "[].__class__.__base__.__subclasses__() and {code}",
    "subscript": "[1][{code} or 0]",
    "comparison": "1 < ({code} or 2)",
    "format": "'{{}}'.format({code})",
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
    """A setting of that name with code in it; ``others`` are set beside it."""

    def write(state, path, mark):
        cfg = state["cfg"]
        text = convert(text_of(form, mark))
        if group == "args":
            flat = {**_flat(cfg), "arch": "transformer", **others, name: text}
            state |= {"args": Namespace(**flat), "cfg": None}
        else:
            _put(cfg, group, {**others, name: text})
        torch.save(state, path)

    return write


def _put(cfg, group, values):
    settings = cfg.get(group)
    if settings is None:
        cfg[group] = settings = {}
    for name, value in values.items():
        if isinstance(settings, Namespace):
            setattr(settings, name, value)
        else:
            settings[name] = value


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
    """A task that reads a setting by fairseq's eval_bool."""
    return _setting(
        setting,
        group="task",
        **{
            "_name": name,
            "task": name,
            "lang_pairs": "a-b",
            "langs": ["a", "b"],
            "lang_dict": None,
        },
        **{"source_lang": "a", "target_lang": "b", "sampling_method": "concat"},
    )


def _reference(to):
    """The text of one setting, by way of another."""

    def write(state, path, mark):
        state["cfg"]["common"]["plasma_path"] = text_of("call", mark)
        model = {**vars(state["cfg"]["model"]), **STOCK, "adaptive_softmax_cutoff": to}
        state["cfg"]["model"] = model
        torch.save(state, path)

    return write


def _environment(state, path, mark):
    state["cfg"]["task"]["data"] = "${oc.env:HOME}"
    torch.save(state, path)


def _yaml(state, path, mark):
    """All settings as one text, which fairseq's settings library parses."""
    model = {**vars(state["cfg"]["model"]), **STOCK}
    model["adaptive_softmax_cutoff"] = text_of("call", mark)
    state["cfg"]["model"] = model
    state["cfg"] = json.dumps(state["cfg"])
    torch.save(state, path)


def _user_dir(state, path, mark):
    """The name of a folder with code, as --user-dir would have it."""
    folder = Path(path).parent / f"evil_user_dir_{Path(path).stem}"
    folder.mkdir(exist_ok=True)
    (folder / "__init__.py").write_text(f"open({mark!r}, 'w').close()\n")
    state["cfg"]["common"]["user_dir"] = str(folder)
    torch.save(state, path)


def _shell(state, path, mark):
    """fairseq's data of kind fasta hands its file's name to a shell."""
    _put(state["cfg"], "task", {"dataset_impl": "fasta", "source_lang": f"a;touch {mark};"})
    state["cfg"]["dataset"]["dataset_impl"] = "fasta"
    torch.save(state, path)


def _hidden(group, **values):
    """Settings as attributes of a dictionary, where no look at its items sees them."""

    def write(state, path, mark):
        settings = state["cfg"][group]
        settings = vars(settings) if isinstance(settings, Namespace) else dict(settings)
        hidden = OrderedDict()
        hidden.__dict__.update(settings | {n: v.format(mark=mark) for n, v in values.items()})
        state["cfg"][group] = hidden
        torch.save(state, path)

    return write


class Shadowed:
    """Pickled, a dictionary whose methods are shadowed by what the checkpoint holds."""

    def __init__(self, entries):
        self.entries = entries

    def __reduce__(self):
        shadows = dict.fromkeys(("items", "get", "keys", "values", "copy"), "x")
        return OrderedDict, (), shadows, None, iter(self.entries.items())


def _shadowed(place):
    def write(state, path, mark):
        state[place] = Shadowed(state[place])
        torch.save(state, path)

    return write


def _shadowed_checkpoint(state, path, mark):
    torch.save(Shadowed(state), path)


def _written_file(group, name, **others):
    """The name of a file that fairseq opens for writing, or of a command, as a setting."""

    def write(state, path, mark):
        state["cfg"][group] = {**others, name: mark}
        torch.save(state, path)

    return write


RANKING = {"_name": "sentence_ranking", "ranking_head_name": "x", "num_classes": 2}


def _odd_key(state, path, mark):
    _put(state["cfg"], "common", {("encoder_layers",): text_of("call", mark)})
    torch.save(state, path)


RUNS_CODE = {
    **{f"pickle_{payload}": _pickled(payload, "extra_state") for payload in PAYLOADS},
    **{f"pickle_in_{place}": _pickled("open", place) for place in PLACES},
    "pickle_plain": _plain_pickle,
    "pickle_of_old_torch": _old_torch,
    "pickles_of_older_torch": _old_tar,
    **{f"text_{form}": _setting("adaptive_softmax_cutoff", form, **STOCK) for form in FORMS},
    "text_in_args": _setting("adaptive_softmax_cutoff", group="args"),
    "text_in_args_line_continuation": _setting(
        "adaptive_softmax_cutoff", "line_continuation", group="args"
    ),
    "own_model": _setting("adaptive_softmax_cutoff"),
    "xformers": _setting("encoder_xformers_att_config", **STOCK),
    "fconv_text": _setting("encoder_layers", **OTHERS["fconv"]),
    "fconv_line_continuation": _setting("encoder_layers", "line_continuation", **OTHERS["fconv"]),
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
        for name in (
            "multilingual_translation",
            "online_backtranslation",
            "translation_multi_simple_epoch",
        )
        for setting in ("left_pad_source", "left_pad_target")
    },
    "pipeline_balance": _setting("pipeline_balance", group="distributed_training"),
    "optimizer_betas": _setting("adam_betas", "line_continuation", group="optimizer"),
    "criterion_wer_args": _setting("wer_args", "line_continuation", group="criterion"),
    "name_of_no_evaluated_setting": _setting("some_new_setting", convert=str.encode),
    "reference_to_a_text": _reference("${common.plasma_path}"),
    "reference_by_a_function": _reference("${oc.select:common.plasma_path}"),
    "reference_to_the_environment": _environment,
    "settings_as_yaml": _yaml,
    "user_dir": _user_dir,
    "shell_by_fasta": _shell,
    "hidden_task": _hidden("task", dataset_impl="fasta", source_lang="a;touch {mark};"),
    "hidden_model": _hidden("model", adaptive_softmax_cutoff="open('{mark}', 'w')"),
    "shadowed_weights": _shadowed("model"),
    "shadowed_settings": _shadowed("cfg"),
    "shadowed_checkpoint": _shadowed_checkpoint,
    "criterion_that_writes": _written_file("criterion", "save_predictions", **RANKING),
    "task_that_calls": _written_file("task", "post_save_script", _name="audio_finetuning"),
    "key_that_is_no_text": _odd_key,
}
# fairseq takes the user directory of the command alone, so these may be loaded
MAY_BE_LOADED = ("user_dir",)


def _sized(**values):
    def write(state, path, mark):
        _put(state["cfg"], "model", values)
        torch.save(state, path)

    return write


def _deep(state, path, mark):
    """Lists in lists, as a pickle by hand: torch.save cannot write what is so deep."""
    lists = b"]" * 10_000 + b"a" * 9_999
    cfg = b"X\x03\x00\x00\x00cfg}X\x01\x00\x00\x00a" + lists + b"s"
    with zipfile.ZipFile(path, "w") as archive:
        data = b"\x80\x02}(" + cfg + b"X\x05\x00\x00\x00model}u."
        archive.writestr("archive/data.pkl", data)
        archive.writestr("archive/version", "3\n")
        archive.writestr("archive/byteorder", "little")


def _knot(state, path, mark):
    knot = []
    knot.append(knot)
    _put(state["cfg"], "model", {"knot": knot})
    torch.save(state, path)


def _doubled(state, path, mark):
    value = ["x"]
    for _ in range(40):
        value = [value, value]
    _put(state["cfg"], "model", {"doubled": value})
    torch.save(state, path)


def _references_doubled(state, path, mark):
    state["cfg"]["common"]["a0"] = "x" * 1000
    for number in range(1, 40):
        before = f"${{common.a{number - 1}}}"
        state["cfg"]["common"][f"a{number}"] = before * 2
    torch.save(state, path)


def _reference_to_itself(state, path, mark):
    state["cfg"]["task"]["data"] = "${task.data}"
    torch.save(state, path)


def _reference_to_its_group(state, path, mark):
    state["cfg"]["common"]["again"] = "${common}"
    torch.save(state, path)


def _layers_by_reference(state, path, mark):
    state["cfg"]["common"]["many"] = 10**9
    _put(state["cfg"], "model", {"encoder_layers": "${common.many}"})
    torch.save(state, path)


def _compressed(state, path, mark):
    """An archive of torch's whose settings are a gigabyte when read."""
    torch.save(state, path)
    content = path.read_bytes()
    with zipfile.ZipFile(io.BytesIO(content)) as source, zipfile.ZipFile(path, "w") as target:
        for entry in source.infolist():
            target.writestr(entry.filename, source.read(entry))
        info = zipfile.ZipInfo(f"{path.stem}/data/100")
        info.compress_type = zipfile.ZIP_DEFLATED
        with target.open(info, "w") as bomb:
            for _ in range(1024):
                bomb.write(bytes(2**20))


def _compressed_with_a_tail(state, path, mark):
    """The same, with bytes behind it by which Python's zipfile takes it for no archive."""
    _compressed(state, path, mark)
    path.write_bytes(path.read_bytes() + b"PK\x05\x06")


def _text(text):
    return b"X" + struct.pack("<I", len(text)) + text.encode()


def _by_hand(value, count=1, old=False):
    """A checkpoint whose pickle has operations that torch.save does not write."""

    def write(state, path, mark):
        values = b"".join(_text(f"k{number}") + value for number in range(count))
        content = b"\x80\x02}(" + _text("model") + b"}(" + values + b"uu."
        if old:
            torch.save({}, path, _use_new_zipfile_serialization=False)
            head = pickle.dumps(0x1950A86A20F9469CFC6C, 2) + pickle.dumps(1001, 2)
            path.write_bytes(head + pickle.dumps({}, 2) + content + pickle.dumps([], 2))
            return
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("archive/data.pkl", content)
            archive.writestr("archive/version", "3\n")
            archive.writestr("archive/byteorder", "little")

    return write


BYTEARRAY = b"c__builtin__\nbytearray\nJ" + struct.pack("<i", 2**30) + b"\x85R"


def _lists(depth):
    """A list of two lists, which are each of two lists, and so on, each written once."""
    doubled = b"".join(b"ah" + bytes([n - 1]) + b"aq" + bytes([n]) for n in range(2, depth + 1))
    return b"]" * depth + b"K\x00aq\x01" + doubled


def _expanded(state, path, mark):
    """A tensor that repeats its one number, for a model as wide as its shape."""
    state["model"]["wide"] = torch.zeros(1).expand(10**9)
    model = {**OTHERS["lstm"], "decoder_attention": "True"}
    for side in ("encoder", "decoder"):
        model |= {f"{side}_layers": 2, f"{side}_hidden_size": 60_000, f"{side}_embed_dim": 16}
    state["cfg"]["model"] = model
    torch.save(state, path)


def _views(state, path, mark):
    """Many weights of no numbers, and as many of one, for a model of as many layers."""
    one = torch.zeros(1)
    for number in range(5000):
        state["model"][f"empty{number}"] = torch.zeros(0)
        state["model"][f"one{number}"] = one
    _put(state["cfg"], "model", {"encoder_layers": 5000})
    torch.save(state, path)


def _states_doubled(state, path, mark):
    """One long dictionary that many namespaces take for their attributes."""
    entries = b"".join(_text(str(number)) + b"N" for number in range(20_000))
    namespace = b"cargparse\nNamespace\n)\x81h\x00b"
    value = b"}(" + entries + b"uq\x00" + b"0](" + namespace * 50_000 + b"e"
    _by_hand(value)(state, path, mark)


FILLS_MEMORY = {
    "many_layers": _sized(encoder_layers=10**9),
    "many_layers_below_zero": _sized(encoder_layers=-(10**9)),
    "many_layers_as_text": _sized(encoder_layers="1000000000"),
    "wide_embeddings": _sized(encoder_embed_dim=10**7),
    "wide_feed_forward": _sized(decoder_ffn_embed_dim=10**9),
    "many_heads": _sized(encoder_attention_heads=10**9, encoder_embed_dim=10**9),
    "many_positions": _sized(max_source_positions=10**9),
    "wide_and_many": _sized(encoder_layers=200, encoder_embed_dim=16_000),
    "number_of_many_digits": _sized(encoder_layers=10**400),
    "layers_by_reference": _layers_by_reference,
    "reader_signs": _sized(adaptive_softmax_cutoff="-" * 9_999 + "1", **STOCK),
    "signs": _sized(adaptive_softmax_cutoff="-" * 200_000 + "1", **STOCK),
    "brackets": _sized(adaptive_softmax_cutoff="[" * 50_000, **STOCK),
    "long_list": _sized(encoder_layers="[(512, 3)] * 1000000000", **OTHERS["fconv"]),
    "longer_lists": _sized(
        encoder_layers="((((1,) * 4000,) * 4000,) * 4000) * 9", **OTHERS["fconv"]
    ),
    "wide_in_a_list": _sized(encoder_layers="[(1000000000, 3)]", **OTHERS["fconv"]),
    "power": _sized(adaptive_softmax_cutoff="9**9**9**9", **STOCK),
    "shift": _sized(adaptive_softmax_cutoff="1<<99999999999", **STOCK),
    "repeated_text": _sized(adaptive_softmax_cutoff="'x' * 99999999999", **STOCK),
    "long_text": _sized(source_lang="x" * 10**7),
    "deep": _deep,
    "knot": _knot,
    "doubled": _doubled,
    "references_doubled": _references_doubled,
    "reference_to_itself": _reference_to_itself,
    "reference_to_its_group": _reference_to_its_group,
    "compressed": _compressed,
    "compressed_with_a_tail": _compressed_with_a_tail,
    "bytearrays": _by_hand(BYTEARRAY, 8),
    "bytearrays_in_an_old_file": _by_hand(BYTEARRAY, 8, old=True),
    "tensor_of_lists": _by_hand(b"ctorch\nFloatTensor\n" + _lists(29) + b"\x85R"),
    "size_of_lists": _by_hand(b"ctorch\nSize\n" + _lists(29) + b"\x85R"),
    "tuples_as_a_name": _by_hand(
        b"}K\x00\x85" + b"q\x00h\x00\x86" * 60 + b"Ns",
    ),
    "states_doubled": _states_doubled,
    "repeated_number": _expanded,
    "views": _views,
    "hidden_layers": _hidden("model", encoder_layers="1000000000"),
}


def write(kind, state, folder, mark):
    """Write the malicious checkpoint of a kind; its path."""
    path = Path(folder) / f"{kind}.pt"
    {**RUNS_CODE, **FILLS_MEMORY}[kind](copy.deepcopy(state), path, str(mark))
    return path
