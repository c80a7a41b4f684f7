"""The table of archives, and what is wrong with a file; tests/examples/test_recipes.py downloads."""

import hashlib

import pytest
from downloads import UNKNOWN, Archive, fault_of, have, main, read_archive

CONTENT = b"an archive"
SHA256 = f"sha256:{hashlib.sha256(CONTENT).hexdigest()}"


def archive(size="10", digest=SHA256):
    return Archive("a.tgz", size, digest, (), "https://example.org")


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "corpora.tsv"
    rows = ["file\tbytes\tchecksum\taddresses\thome page\tsource"]
    rows += [f"a.tgz\t10\t{SHA256}\thttp://x http://y\tpage\tmade here", "b.zip\t-\t-\t-\tp\ts"]
    path.write_text("\n".join(rows) + "\n", encoding="utf-8")
    return path


def test_a_line_of_the_table_is_read(table):
    assert read_archive(table, "a.tgz") == Archive(
        "a.tgz", "10", SHA256, ("http://x", "http://y"), "page"
    )
    assert read_archive(table, "b.zip").addresses == ()
    with pytest.raises(ValueError, match=r"corpora\.tsv has no line for c\.gz"):
        read_archive(table, "c.gz")


def test_the_rows_that_a_recipe_depends_on_are_printed(table, capsys):
    main(["rows", str(table), "b.zip", "a.tgz"])
    assert capsys.readouterr().out == f"b.zip\t-\t-\na.tgz\t10\t{SHA256}\n"


def test_the_archive_itself_has_no_fault(tmp_path):
    (tmp_path / "a.tgz").write_bytes(CONTENT)
    assert fault_of(tmp_path / "a.tgz", archive()) is None
    assert fault_of(tmp_path / "a.tgz", archive(size=UNKNOWN)) is None


@pytest.mark.parametrize(
    ("content", "digest", "fault"),
    [
        (CONTENT[:-1], SHA256, "has 9 of 10 bytes: it is cut short"),
        (CONTENT[::-1], SHA256, "is expected: it is damaged, or another version than"),
        (CONTENT, UNKNOWN, "is cut short or damaged"),
    ],
)
def test_what_is_wrong_with_a_file_is_said(tmp_path, content, digest, fault):
    (tmp_path / "a.tgz").write_bytes(content)
    assert fault in fault_of(tmp_path / "a.tgz", archive(digest=digest))


def test_the_first_folder_that_has_an_archive_counts(tmp_path):
    folders = [tmp_path / name for name in ("empty", "first", "second")]
    for folder in folders:
        folder.mkdir()
    for folder in folders[1:]:
        (folder / "a.tgz").write_bytes(CONTENT)
    (tmp_path / "second" / "a.tgz").write_bytes(b"damaged")
    have(archive(), folders)  # the damaged one is not looked at
    with pytest.raises(ValueError, match=r"second/a\.tgz has 7 of 10 bytes"):
        have(archive(), folders[::-1])
