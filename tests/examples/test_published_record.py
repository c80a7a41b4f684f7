"""The project's published record: every verdict in its table follows from the recorded runs."""

import re
from pathlib import Path

import pytest
from claims.__main__ import main, write_documents
from claims.record import PACKED

FOLDER = Path(__file__).parents[2] / "examples" / "bible_es_en"
RECORD = FOLDER / "record"
TABLE = FOLDER / "claims.md"


@pytest.fixture(scope="module")
def runs():
    """The paths of all runs on the verses."""
    paths = sorted((RECORD / "bible_es_en").glob(f"*{PACKED}"))
    assert paths
    return paths


def test_every_verdict_follows_from_the_record(tmp_path):
    main([f"{RECORD}", "--output", f"{tmp_path}"])
    assert (tmp_path / "claims.md").read_bytes() == TABLE.read_bytes()


def test_a_report_can_be_drawn_from_recorded_runs(runs, tmp_path):
    from fairseq_entmax.cli import main as command

    name = re.compile(r"[a-z0-9]+-large-seed\d+\.json\.xz")
    trained = [path for path in runs if name.fullmatch(path.name)]
    names = [f"bible_es_en/{path.name.removesuffix(PACKED)}" for path in trained[:2]]
    analysis, *ablations = write_documents(RECORD, names, tmp_path / "kept")
    page = tmp_path / "report.html"
    given = ["--ablation", *map(str, ablations)] if ablations else []
    assert command(["report", str(analysis), "--output", str(page), *given]) == 0
    text = page.read_text("utf-8")
    for name in names:
        assert name.rpartition("/")[2] in text
