"""Malicious archives for ``from_pretrained``."""

import io
import tarfile

import pytest
import torch

from fairseq_entmax.checkpoints import UnsafeCheckpointError
from fairseq_entmax.checkpoints.archives import replace_by_folder
from fairseq_entmax.models import EntmaxTransformerModel
from tests.security import archives, corpus

needs_safe_extraction = pytest.mark.skipif(
    not hasattr(tarfile, "data_filter"),
    reason="this Python (before 3.10.12 or 3.11.4) has no safe extraction: all archives are refused",
)


def pack(path, files, mode="w:gz"):
    with tarfile.open(path, mode) as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return path


def model_files(good_state, data, top):
    buffer = io.BytesIO()
    torch.save(good_state, buffer)
    dictionaries = {f"dict.{n}.txt": (data / f"dict.{n}.txt").read_bytes() for n in "ab"}
    return {
        top + name: value
        for name, value in ({"model.pt": buffer.getvalue()} | dictionaries).items()
    }


@needs_safe_extraction
@pytest.mark.parametrize("top", ["model/", "a/b/", "./model/", ""])
@pytest.mark.parametrize("suffix", ["gz", "bz2"])
def test_a_good_archive_is_loaded_twice(good_state, attack_data, tmp_path, top, suffix):
    path = tmp_path / f"model.tar.{suffix}"
    pack(path, model_files(good_state, attack_data, top), f"w:{suffix}")
    for _ in range(2):
        model = EntmaxTransformerModel.from_pretrained(str(path))
        assert len(model.src_dict) == 24
    assert sorted(p.name for p in tmp_path.iterdir()) == [path.name]


@needs_safe_extraction
@pytest.mark.parametrize("kind", archives.ARCHIVES)
def test_an_archive_that_writes_elsewhere_is_refused_and_leaves_nothing(kind, tmp_path):
    path = tmp_path / "archive" / "model.tar.gz"
    path.parent.mkdir()
    mark = tmp_path / "mark"
    archives.write_archive(kind, path, mark)
    before = path.read_bytes()
    with pytest.raises(UnsafeCheckpointError, match=r"refused to extract .* in it"):
        EntmaxTransformerModel.from_pretrained(str(path))
    assert not archives.touched(mark)
    assert [p.name for p in path.parent.iterdir()] == [path.name]
    assert path.read_bytes() == before


@needs_safe_extraction
def test_the_data_of_a_model_may_not_come_in_such_an_archive_either(good_file, tmp_path):
    path = tmp_path / "data.tar.gz"
    archives.write_archive("parent_folder", path, tmp_path / "mark")
    with pytest.raises(UnsafeCheckpointError):
        EntmaxTransformerModel.from_pretrained(
            str(good_file.parent), good_file.name, data_name_or_path=str(path)
        )
    assert not archives.touched(tmp_path / "mark")


@needs_safe_extraction
def test_a_checkpoint_in_an_archive_is_checked(good_state, attack_data, tmp_path):
    evil = corpus.write("fconv_bytes", good_state, tmp_path, tmp_path / "mark")
    files = model_files(good_state, attack_data, "model/")
    files["model/model.pt"] = evil.read_bytes()
    path = pack(tmp_path / "model.tar.gz", files)
    with pytest.raises(UnsafeCheckpointError, match="encoder_layers"):
        EntmaxTransformerModel.from_pretrained(str(path))
    assert not (tmp_path / "mark").exists()


@needs_safe_extraction
def test_an_archive_that_becomes_much_larger_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("fairseq_entmax.checkpoints.archives.MOST_BYTES_OF_SMALL", 2**24)
    path = tmp_path / "model.tar.gz"
    archives.inflated_archive(path, 2**26)
    with pytest.raises(UnsafeCheckpointError, match="too large for its size"):
        EntmaxTransformerModel.from_pretrained(str(path))
    assert [p.name for p in tmp_path.iterdir()] == [path.name]


@needs_safe_extraction
def test_an_archive_with_a_header_of_gigabytes_is_refused(tmp_path):
    path = tmp_path / "model.tar"
    archives.archive_with_long_header(path, 8**11 - 1)
    with pytest.raises(UnsafeCheckpointError, match="too large for its size"):
        EntmaxTransformerModel.from_pretrained(str(path))


@needs_safe_extraction
@pytest.mark.parametrize(
    "content", [b"", b"no archive\n", b"\x1f\x8b cut", b"BZh9 cut", b"PK\x03\x04"]
)
def test_a_file_that_is_no_archive_gives_one_sentence_and_stays(content, tmp_path):
    path = tmp_path / "model.tar.gz"
    path.write_bytes(content)
    with pytest.raises(ValueError, match="is no archive of a model, or is damaged"):
        EntmaxTransformerModel.from_pretrained(str(path))
    assert path.read_bytes() == content
    assert [p.name for p in tmp_path.iterdir()] == [path.name]


@needs_safe_extraction
def test_a_cut_archive_gives_one_sentence_and_stays(good_state, attack_data, tmp_path):
    path = pack(tmp_path / "model.tar.gz", model_files(good_state, attack_data, "model/"))
    path.write_bytes(path.read_bytes()[:-2000])
    with pytest.raises(ValueError, match="is no archive of a model, or is damaged"):
        EntmaxTransformerModel.from_pretrained(str(path))
    assert [p.name for p in tmp_path.iterdir()] == [path.name]


@needs_safe_extraction
@pytest.mark.parametrize(
    "files",
    [
        {"m": b"1", "m/x": b"2"},
        {"m/x": b"1", "m": b"2"},
        {"m/" + "a" * 300: b"1"},
        {},
    ],
)
def test_an_archive_of_names_that_cannot_be_gives_one_sentence_and_stays(files, tmp_path):
    path = pack(tmp_path / "model.tar", files, "w")
    with pytest.raises(ValueError, match=r"is no archive of a model, or is damaged: .+") as refusal:
        EntmaxTransformerModel.from_pretrained(str(path))
    assert "extracted" not in str(refusal.value)  # the temporary folder
    assert [p.name for p in tmp_path.iterdir()] == [path.name]


@needs_safe_extraction
def test_an_archive_of_a_folder_alone_gives_one_sentence_and_stays(tmp_path):
    path = tmp_path / "model.tar"
    with tarfile.open(path, "w") as archive:
        member = tarfile.TarInfo(".")
        member.type = tarfile.DIRTYPE
        archive.addfile(member)
    with pytest.raises(ValueError, match="it holds no file"):
        EntmaxTransformerModel.from_pretrained(str(path))
    assert path.is_file()


@needs_safe_extraction
def test_a_folder_in_an_archive_may_have_any_name(tmp_path):
    path = pack(tmp_path / "model.tar", {".content/x": b"1", "content/y": b"2", "z": b"3"}, "w")
    replace_by_folder(str(path))
    found = {str(p.relative_to(path)): p.read_bytes() for p in path.rglob("*") if p.is_file()}
    assert found == {".content/x": b"1", "content/y": b"2", "z": b"3"}


def test_where_python_has_no_safe_extraction_an_archive_is_refused_and_stays(
    good_state, attack_data, tmp_path, monkeypatch
):
    path = tmp_path / "model.tar.gz"
    pack(path, model_files(good_state, attack_data, "model/"))
    monkeypatch.delattr(tarfile, "data_filter", raising=False)
    with pytest.raises(
        UnsafeCheckpointError, match=r"no safe way to; use Python 3\.10\.12, 3\.11\.4"
    ):
        replace_by_folder(str(path))
    assert path.is_file()
