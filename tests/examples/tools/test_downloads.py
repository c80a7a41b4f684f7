"""The table of archives, and the faults of a file; test_recipe_shell.py tests downloading."""

import hashlib

import pytest
from downloads import UNKNOWN, Archive, have, read_archive, verify

CONTENT = b"an archive"
SHA256 = f"sha256:{hashlib.sha256(CONTENT).hexdigest()}"


def archive(size="10", digest=SHA256):
    return Archive("a.tgz", size, digest, UNKNOWN, "https://example.org")


def test_a_line_of_the_table_is_read(tmp_path):
    table = tmp_path / "corpora.tsv"
    rows = ["file\tbytes\tchecksum\taddresses\thome page\tsource"]
    rows += [f"a.tgz\t10\t{SHA256}\thttp://x http://y\tpage\tmade here", "b.zip\t-\t-\t-\tp\ts"]
    table.write_text("\n".join(rows) + "\n", encoding="utf-8")
    expected = Archive("a.tgz", "10", SHA256, "http://x http://y", "page")
    assert read_archive(table, "a.tgz") == expected
    with pytest.raises(ValueError, match=r"corpora\.tsv has no line for c\.gz"):
        read_archive(table, "c.gz")


@pytest.mark.parametrize(
    ("content", "size", "digest", "fault"),
    [
        (CONTENT, "10", SHA256, None),
        (CONTENT, UNKNOWN, SHA256, None),
        (CONTENT, UNKNOWN, UNKNOWN, None),
        (CONTENT[:-1], "10", UNKNOWN, "has 9 of 10 bytes"),
        (CONTENT[::-1], "10", SHA256, "is expected: it is damaged, or a different version from"),
    ],
)
def test_the_fault_of_a_file_is_named(tmp_path, content, size, digest, fault):
    path = tmp_path / "a.tgz"
    path.write_bytes(content)
    if fault is None:
        verify(path, archive(size, digest))
        return
    with pytest.raises(ValueError, match=fault):
        verify(path, archive(size, digest))


def test_the_first_folder_with_an_archive_is_used(tmp_path):
    folders = [tmp_path / name for name in ("empty", "first", "second")]
    for folder in folders:
        folder.mkdir()
    (tmp_path / "first" / "a.tgz").write_bytes(CONTENT)
    (tmp_path / "second" / "a.tgz").write_bytes(b"damaged")
    have(archive(), folders)  # the damaged one is not examined
    with pytest.raises(ValueError, match=r"second/a\.tgz has 7 of 10 bytes"):
        have(archive(), folders[::-1])
    with pytest.raises(ValueError, match=r"get it from https://example\.org, put it in .*/empty"):
        have(archive(), [tmp_path / "empty"])
