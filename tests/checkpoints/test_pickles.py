"""What the pickle of a checkpoint may hold, and which archives are read."""

import io
import pickle
import zipfile
from argparse import Namespace
from collections import OrderedDict

import pytest
import torch

from fairseq_entmax.checkpoints import UnsafeCheckpointError, load_checkpoint, pickles
from tests.support import build_model


def saved(path, values, **options):
    torch.save({"model": {}, "extra_state": values}, path, **options)
    return str(path)


DTYPES = [torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.int64, torch.int32]
DTYPES += [torch.int16, torch.int8, torch.uint8, torch.bool, torch.complex64]


@pytest.mark.parametrize("zipped", [True, False])
@pytest.mark.parametrize("dtype", DTYPES)
def test_tensors_of_every_dtype_are_read_in_both_formats(dtype, zipped, tmp_path):
    values = {
        "plain": torch.arange(6).reshape(2, 3).to(dtype),
        "view": torch.arange(60).to(dtype)[3:50:2],
        "empty": torch.zeros(0, 5).to(dtype),
        "one": torch.tensor(1).to(dtype),
    }
    path = saved(tmp_path / "a.pt", values, _use_new_zipfile_serialization=zipped)
    for name, value in load_checkpoint(path)["extra_state"].items():
        assert value.dtype == dtype
        assert torch.equal(value, values[name])


@pytest.mark.parametrize("zipped", [True, False])
def test_what_else_fairseq_saves_is_read_in_both_formats(zipped, tmp_path):
    values = {
        "parameter": torch.nn.Parameter(torch.ones(2)),
        "settings": Namespace(a=[1, (2.5, None)], b={"c": True}, d=2**70),
        "weights": build_model().state_dict(),  # with torch's _metadata
        "dtype": torch.float16,
        "optimizer": {"state": {0: {"step": 3, "exp_avg": torch.zeros(3)}}},
        "bytes": b"\x00\xff",
        "random": torch.get_rng_state(),
    }
    path = saved(tmp_path / "a.pt", values, _use_new_zipfile_serialization=zipped)
    loaded = load_checkpoint(path)["extra_state"]
    assert loaded["settings"] == values["settings"]
    assert loaded["weights"]._metadata == values["weights"]._metadata
    assert torch.equal(loaded["parameter"], values["parameter"])
    assert loaded["bytes"] == values["bytes"]
    assert torch.equal(loaded["random"], values["random"])


class Reduced:
    def __init__(self, *parts):
        self.parts = parts

    def __reduce__(self):
        return self.parts


OF_A_CLASS = Namespace()
vars(OF_A_CLASS)["__class__"] = "x"


@pytest.mark.parametrize(
    "value",
    [
        Reduced(bytearray, (10,)),
        Reduced(torch.FloatTensor, ([1.0],)),
        Reduced(torch.Size, ((1,) * 100,)),
        Reduced(OrderedDict, ([["a", 1]],)),
        Reduced(OrderedDict, (), {"task": "x"}),
        Reduced(OrderedDict, (), {"_metadata": {}, "get": 1}),
        OF_A_CLASS,
        {(1, 2): 3},
        {0.5: 1},
        {1, 2},
        torch.zeros(2).to_sparse(),
    ],
    ids=(
        *("bytearray", "FloatTensor", "Size", "OrderedDict of a list", "task", "get", "class"),
        *("tuple", "fraction", "set", "sparse"),
    ),
)
@pytest.mark.parametrize("zipped", [True, False])
def test_other_objects_are_refused(value, zipped, tmp_path):
    path = saved(tmp_path / "a.pt", [value], _use_new_zipfile_serialization=zipped)
    with pytest.raises(UnsafeCheckpointError, match=r"a\.pt: it holds more than tensors"):
        load_checkpoint(path)


def test_a_pickle_of_very_many_steps_or_bytes_is_refused(tmp_path, monkeypatch):
    path = saved(tmp_path / "a.pt", list(range(1000)))
    monkeypatch.setattr(pickles._Steps, "left", 900)
    with pytest.raises(UnsafeCheckpointError, match="steps to read"):
        load_checkpoint(path)
    monkeypatch.undo()
    monkeypatch.setattr(pickles, "MOST_BYTES", 900)
    with pytest.raises(UnsafeCheckpointError, match="more than 900 bytes"):
        load_checkpoint(path)
    path = saved(tmp_path / "b.pt", list(range(1000)), _use_new_zipfile_serialization=False)
    with pytest.raises(UnsafeCheckpointError, match="too much beside its weights"):
        load_checkpoint(path)


@pytest.mark.parametrize("zipped", [True, False])
def test_weights_that_the_file_does_not_hold_are_refused_before_memory_is_taken(zipped, tmp_path):
    path = tmp_path / "a.pt"
    saved(path, torch.zeros(37_111), _use_new_zipfile_serialization=zipped)
    content = path.read_bytes()
    number = (37_111).to_bytes(2, "little")
    assert b"M" + number in content
    claimed = content.replace(b"M" + number, b"M\xff\xff")
    if zipped:
        claimed = repacked(content, lambda entry, part: part.replace(b"M" + number, b"M\xff\xff"))
    path.write_bytes(claimed)
    with pytest.raises(UnsafeCheckpointError, match="larger than the file"):
        load_checkpoint(str(path))


def repacked(content, change):
    """The archive written by Python, with its parts changed."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(content)) as source, zipfile.ZipFile(buffer, "w") as target:
        for entry in source.infolist():
            target.writestr(entry.filename, change(entry, source.read(entry)))
    return buffer.getvalue()


def two_of_a_name(content):
    buffer = io.BytesIO(content)
    with zipfile.ZipFile(buffer, "a") as archive:
        name = next(n for n in archive.namelist() if n.endswith("data.pkl"))
        archive.writestr(name.upper().replace("A/", "a/"), pickle.dumps(1, 2))
    return buffer.getvalue()


def a_program(content):
    buffer = io.BytesIO(content)
    with zipfile.ZipFile(buffer, "a") as archive:
        archive.writestr("a/constants.pkl", pickle.dumps(1, 2))
    return buffer.getvalue()


@pytest.mark.parametrize(
    "change",
    [
        lambda content: content + b"PK\x05\x06",
        lambda content: content + b"\0",
        lambda content: content[:4] + b"\0" + content[4:],
        lambda content: content[:-2] + b"\1\0x",
        lambda content: content[:-90] + b"\1" + content[-89:],  # of the end of a large archive
        lambda content: content[:-34] + b"\1" + content[-33:],  # and where that is
        two_of_a_name,
        a_program,
    ],
)
def test_an_archive_that_readers_could_take_for_two_is_refused(change, tmp_path):
    path = saved(tmp_path / "a.pt", {"a": 1})
    content = (tmp_path / "a.pt").read_bytes()
    (tmp_path / "a.pt").write_bytes(change(content))
    with pytest.raises(ValueError, match=r"a\.pt is not a checkpoint, or is damaged: \w"):
        load_checkpoint(path)


def test_an_archive_that_python_wrote_is_read(tmp_path):
    path = saved(tmp_path / "a.pt", {"order": torch.arange(3)})
    content = repacked((tmp_path / "a.pt").read_bytes(), lambda entry, part: part)
    (tmp_path / "a.pt").write_bytes(content)
    assert load_checkpoint(path)["extra_state"]["order"].tolist() == [0, 1, 2]
