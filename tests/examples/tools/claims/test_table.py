"""claims.md and findings.json, whole."""

from __future__ import annotations

import json

import pytest
from claims.__main__ import check, main
from claims.record import read_record
from claims.table import claims_document, judged, markdown
from claims.verdicts import CLAIMS, FAILS, HOLDS, OPEN, UNMEASURED

from tests.examples.tools.claims import synthetic


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = synthetic.write_record(tmp_path_factory.mktemp("record"))
    main([str(folder)])
    return folder


@pytest.fixture(scope="module")
def text(folder):
    return (folder / "claims.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def document(folder):
    return json.loads((folder / "findings.json").read_text(encoding="utf-8"))


def _tables(text):
    """The rows of each table, as lists of cells."""
    tables, rows = [], []
    for line in [*text.splitlines(), ""]:
        if line.startswith("|"):
            rows.append([cell.strip() for cell in line.strip("|").split(" | ")])
        elif rows:
            tables.append(rows)
            rows = []
    return tables


def test_every_claim_has_a_verdict_of_each_corpus(document):
    assert [entry["key"] for entry in document["claims"]] != []
    assert {entry["key"] for entry in document["claims"]} == set(CLAIMS)
    for entry in document["claims"]:
        verdicts = {name: f["verdict"] for name, f in entry["findings"].items()}
        assert set(verdicts) == {"bible_es_en", "debian_en_de"}
        assert set(verdicts.values()) <= {HOLDS, FAILS, *OPEN}


def test_the_overview_has_the_verdicts_of_the_document(text, document):
    titles, _, *rows = _tables(text)[0]
    assert titles == ["claim", "source", "bible_es_en", "debian_en_de", "agree"]
    expected = [
        [e["claim"], e["source"], *(f["verdict"] for f in e["findings"].values())]
        for e in document["claims"]
    ]
    assert [row[:4] for row in rows] == expected


def test_it_says_how_many_verdicts_chance_may_have_made(text, document):
    own = [entry["findings"]["bible_es_en"] for entry in document["claims"]]
    tested = [f for f in own if f["tested"] and f["test"] != "–"]
    decided = [f for f in tested if f["verdict"] not in OPEN]
    assert 0 < len(decided) < len(tested) < len(own)
    assert (
        f"of bible_es_en, {len(decided)} of {len(tested)} rows that were tested are "
        f"decided, and chance alone is to be expected to decide about {0.05 * len(tested):.1f} if nothing"
    ) in text


def test_rows_that_count_heads_are_not_among_the_tested(document):
    counted = {
        entry["key"]
        for entry in document["claims"]
        if not entry["findings"]["bible_es_en"]["tested"]
    }
    assert counted == {
        "correia-trajectories-rise",
        "correia-positional",
        "correia-merging",
        "correia-question",
        "voita-positional-softmax",
        "voita-positional-entmax",
        "voita-rare-words-softmax",
        "voita-rare-words-entmax",
    }


def test_corpora_agree_only_where_both_decide(text):
    _, _, *rows = _tables(text)[0]
    for *_, first, second, agree in rows:
        if first in OPEN or second in OPEN:
            assert agree == "–"
        else:
            assert agree == ("yes" if first == second else "no")


def test_every_row_of_a_table_has_as_many_cells_as_its_titles(text):
    for table in _tables(text):
        assert {len(row) for row in table} == {len(table[0])}


def test_every_kind_of_run_has_a_row_with_each_seeds_bleu(text, folder):
    corpus = read_record(folder).corpora[0]
    runs = corpus.of(model="entmax", size="large", role="pruned", budget="all24")
    table = _tables(text)[-2]
    (row,) = (row for row in table if row[:3] == ["learned α", "large", "all24 pruned"])
    assert row[3].endswith(f"({', '.join(f'{run.bleu:.2f}' for run in runs)})")
    kinds = {(run.model, run.size, run.role, run.budget) for run in corpus.runs}
    assert len(table) == 2 + len(kinds)


def test_of_each_kind_of_run_the_table_says_how_long_it_was_and_what_ended_it(text):
    titles, _, *rows = _tables(text)[-2]
    named = [dict(zip(titles, row, strict=True)) for row in rows]
    (row,) = (
        r for r in named if (r["model"], r["size"], r["role"]) == ("softmax", "small", "trained")
    )
    assert (row["updates"], row["epochs"], row["ended by"]) == ("2000", "10.0", "patience")
    # By so much the planted curve falls, from 3 + 3 exp(−4.5) to 3 + 3 exp(−5)
    assert row["last epoch"] == "−0.4 %"


def test_it_says_how_it_was_run(text, folder):
    assert "12.5 hours, 24.0 core hours, in 2 calls" in text
    counts = [len(corpus.runs) for corpus in read_record(folder).corpora]
    assert (
        f"- Corpora: bible_es_en ({counts[0]} runs, seeds 1, 2, 3); debian_en_de ({counts[1]} runs, seeds"
    ) in text
    assert "nothing can be concluded" not in text


def test_a_quick_run_says_on_top_that_nothing_can_be_concluded(tmp_path):
    folder = synthetic.write_record(tmp_path, seeds=(1,), corpora=("bible_es_en",), quick=True)
    record = read_record(folder)
    findings = judged(record)
    lines = markdown(record, findings).splitlines()
    assert "nothing can be concluded from it" in lines[2]
    # Intervals of one seed are no JSON numbers
    assert "NaN" not in json.dumps(claims_document(record, findings))
    claims = {key for key, each in findings.items() if each["bible_es_en"].verdict == HOLDS}
    assert all("speed" in key for key in claims)
    assert (
        "of bible_es_en, no row but those of speed can be decided without a second seed"
        in "".join(lines)
    )


def test_a_record_of_which_most_is_missing_is_judged_all_the_same(tmp_path):
    folder = synthetic.write_record(tmp_path, seeds=(1, 2), corpora=("bible_es_en", "debian_en_de"))
    for path in (folder / "debian_en_de").iterdir():
        path.unlink()
    for path in (folder / "bible_es_en").glob("entmax-*"):
        path.unlink()
    findings = judged(read_record(folder))
    assert {each["debian_en_de"].verdict for each in findings.values()} == {UNMEASURED}
    found = findings["correia-alpha-encoder"]["bible_es_en"]
    assert (found.verdict, found.why) == (
        UNMEASURED,
        "the record has no run with model entmax, size large, role trained",
    )


def test_the_table_is_what_its_record_says(folder):
    main([str(folder), "--check"])


def test_a_table_that_was_changed_is_found(folder, tmp_path, text):
    path = tmp_path / "claims.md"
    path.write_text(text.replace("| holds |", "| does not hold |", 1), encoding="utf-8")
    with pytest.raises(ValueError, match=r"claims\.md, line \d+, is not what the record says"):
        check(path, text)
    path.write_text(text + "more\n", encoding="utf-8")
    with pytest.raises(ValueError, match="lines, and the record"):
        check(path, text)


def test_a_record_that_is_missing_is_one_sentence(tmp_path, capsys):
    with pytest.raises(SystemExit):
        main([str(tmp_path / "nowhere")])
    message = capsys.readouterr().err
    assert "there is no record at" in message
    assert message.count("\n") == 1


def test_without_scipy_it_says_how_to_get_it(monkeypatch, capsys, folder):
    monkeypatch.setattr("claims.__main__.find_spec", lambda name: None)
    with pytest.raises(SystemExit):
        main([str(folder)])
    assert "need scipy, which is not installed: run pip install" in capsys.readouterr().err
