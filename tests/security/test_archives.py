"""Malicious archives for ``from_pretrained``: each leaves a mark if it writes elsewhere."""

import io
import random
import tarfile
from pathlib import Path

import pytest
import torch

from fairseq_entmax.checkpoints import UnsafeCheckpointError
from fairseq_entmax.fairseq_patches.archives import replace_by_folder
from fairseq_entmax.models import EntmaxTransformerModel
from tests.security import corpus


def add(archive, name, content=b"x", **fields):
    member = tarfile.TarInfo(name)
    member.size = len(content)
    for field, value in fields.items():
        setattr(member, field, value)
    archive.addfile(member, io.BytesIO(content) if member.isreg() else None)


def pack(path, files, mode="w:gz"):
    with tarfile.open(path, mode) as archive:
        for name, content in files.items():
            add(archive, name, content)
    return path


def linked(archive, mark):
    add(archive, "model/link", b"", type=tarfile.SYMTYPE, linkname=str(Path(mark).parent))
    add(archive, f"model/link/{Path(mark).name}")


def linked_hard(archive, mark):
    add(archive, "model/link", b"", type=tarfile.LNKTYPE, linkname=f"{mark}.precious")
    add(archive, "model/link", b"changed")


# One archive for each way to write outside its folder; Python's own filter refuses them
ARCHIVES = {
    "parent_folder": lambda archive, mark: add(archive, "../" * 20 + mark[1:]),
    "absolute": lambda archive, mark: add(archive, mark),
    "symbolic_link": linked,
    "hard_link": linked_hard,
    "device": lambda archive, _: add(archive, "model/null", b"", type=tarfile.CHRTYPE),
}


def write_archive(kind, path, mark):
    """Write a malicious archive with some good members, and a file that it could overwrite."""
    Path(f"{mark}.precious").write_text("precious")
    with tarfile.open(path, "w:gz") as archive:
        add(archive, "model/dict.a.txt", b"w0 9\n")
        ARCHIVES[kind](archive, str(mark))


def touched(mark):
    """Whether an archive did anything outside its folder."""
    return Path(mark).exists() or Path(f"{mark}.precious").read_text() != "precious"


def model_files(good_state, data, top):
    buffer = io.BytesIO()
    torch.save(good_state, buffer)
    dictionaries = {f"dict.{n}.txt": (data / f"dict.{n}.txt").read_bytes() for n in "ab"}
    return {
        top + name: value
        for name, value in ({"model.pt": buffer.getvalue()} | dictionaries).items()
    }


@pytest.mark.parametrize(
    ("top", "suffix"), [("model/", "gz"), ("a/b/", "bz2"), ("./model/", "gz"), ("", "gz")]
)
def test_a_good_archive_is_loaded_twice(good_state, attack_data, tmp_path, top, suffix):
    path = tmp_path / f"model.tar.{suffix}"
    pack(path, model_files(good_state, attack_data, top), f"w:{suffix}")
    for _ in range(2):
        model = EntmaxTransformerModel.from_pretrained(str(path))
        assert len(model.src_dict) == 24
    assert sorted(p.name for p in tmp_path.iterdir()) == [path.name]


@pytest.mark.parametrize("kind", ARCHIVES)
def test_an_archive_that_writes_outside_its_folder_is_refused(kind, tmp_path):
    path = tmp_path / "archive" / "model.tar.gz"
    path.parent.mkdir()
    mark = tmp_path / "mark"
    write_archive(kind, path, mark)
    before = path.read_bytes()
    # An absolute name loses its leading slash, and so stays in the folder
    reason = "model.pt" if kind == "absolute" else "is not an archive of a model"
    with pytest.raises((OSError, ValueError), match=reason):
        EntmaxTransformerModel.from_pretrained(str(path))
    assert not touched(mark)
    if kind == "absolute":
        return
    assert [p.name for p in path.parent.iterdir()] == [path.name]
    assert path.read_bytes() == before


def test_a_malicious_data_archive_is_refused_too(good_file, tmp_path):
    path = tmp_path / "data.tar.gz"
    write_archive("parent_folder", path, tmp_path / "mark")
    with pytest.raises(ValueError, match="is not an archive of a model"):
        EntmaxTransformerModel.from_pretrained(
            str(good_file.parent), good_file.name, data_name_or_path=str(path)
        )
    assert not touched(tmp_path / "mark")


def test_a_checkpoint_in_an_archive_is_checked(good_state, attack_data, tmp_path):
    evil = corpus.write("fconv_bytes", good_state, tmp_path, tmp_path / "mark")
    files = model_files(good_state, attack_data, "model/")
    files["model/model.pt"] = evil.read_bytes()
    path = pack(tmp_path / "model.tar.gz", files)
    with pytest.raises(UnsafeCheckpointError, match="encoder_layers"):
        EntmaxTransformerModel.from_pretrained(str(path))
    assert not (tmp_path / "mark").exists()


@pytest.mark.parametrize("content", [b"", b"no archive\n", b"\x1f\x8b cut", "gz", "bz2"])
def test_a_damaged_archive_gives_a_one_line_error_and_is_left_alone(
    content, good_state, attack_data, tmp_path
):
    path = tmp_path / "model.tar.gz"
    if isinstance(content, str):
        noise = {"model/noise": random.Random(1).randbytes(2_000_000)}  # several blocks of bzip2
        pack(path, model_files(good_state, attack_data, "model/") | noise, f"w:{content}")
        whole = path.read_bytes()
        content = whole[:-2000] + (b"" if content == "gz" else bytes(1000) + whole[-1000:])
    path.write_bytes(content)
    with pytest.raises(ValueError, match="is not an archive of a model, or is damaged"):
        EntmaxTransformerModel.from_pretrained(str(path))
    assert path.read_bytes() == content
    assert [p.name for p in tmp_path.iterdir()] == [path.name]


def test_a_folder_in_an_archive_may_have_any_name(tmp_path):
    path = pack(tmp_path / "model.tar", {".content/x": b"1", "content/y": b"2", "z": b"3"}, "w")
    replace_by_folder(str(path))
    found = {str(p.relative_to(path)): p.read_bytes() for p in path.rglob("*") if p.is_file()}
    assert found == {".content/x": b"1", "content/y": b"2", "z": b"3"}
