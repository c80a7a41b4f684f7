"""What is read of a record, and how a damaged one is named."""

from __future__ import annotations

import json
import lzma

import pytest
from claims.record import NotInRecord, read_record
from claims.table import markdown

from tests.examples.tools.claims import synthetic


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    return synthetic.write_record(tmp_path_factory.mktemp("record"), seeds=(1, 2))


def test_all_runs_of_all_corpora_are_read(written):
    record = read_record(written)
    assert [corpus.name for corpus in record.corpora] == ["bible_es_en", "debian_en_de"]
    assert len(record.corpora[0].runs) == 2 * (9 + 4 + 11)
    assert [run.seed for run in record.corpora[0].of(model="entmax", size="small")] == [1, 2]
    assert record.corpora[1].of(size="small") == []
    assert record.corpora[0].speed["models"][0]["run"] == "softmax-large-seed1"


def test_a_pruned_run_has_its_heads_by_their_numbers_before(written):
    corpus = read_record(written).corpora[0]
    (run, _) = corpus.of(model="softmax", role="pruned", budget="all24")
    assert [head.head for head in run.each_head("encoder-self") if head.layer == 0] == [0, 1, 2, 7]
    assert sum(1 for _ in run.each_head()) == 24
    whole = {
        head.name: head
        for head in corpus.of(model="softmax", size="large", role="trained")[0].each_head()
    }
    last = [head for head in run.each_head("encoder-self") if head.layer == 0][-1]
    assert last.name == "encoder-self:0.7"
    assert last.value("confidence") == whole[last.name].value("confidence")


def test_pairs_have_the_same_seed(written):
    corpus = read_record(written).corpora[0]
    pairs = corpus.pairs({"model": "entmax"}, {"model": "softmax"}, size="large", role="trained")
    assert [(one.run, other.run) for one, other in pairs] == [
        (f"entmax-large-seed{seed}", f"softmax-large-seed{seed}") for seed in (1, 2)
    ]


def test_runs_that_are_missing_are_named(written):
    corpus = read_record(written).corpora[1]
    with pytest.raises(NotInRecord, match="no run with model entmax, size small"):
        corpus.need(model="entmax", size="small")


def test_a_number_that_the_analysis_lacks_is_named(written):
    run = read_record(written).corpora[0].of(model="softmax", size="small")[0]
    head = next(run.each_head("cross"))
    with pytest.raises(NotInRecord, match=r"no subword_merging all of cross:0\.0"):
        head.value("subword_merging", "all")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda run: run.pop("seed"), "has no 'seed'"),
        (lambda run: run.update(seed="one"), "'seed' is \"one\", and has to be a number from 0 up"),
        (lambda run: run["translation"].update(sentences=[[1, 2]]), "list of 10 numbers for each"),
        (lambda run: run["analysis"].update(models=[]), "'analysis' has to be of one model"),
        (lambda run: _first_attention(run).pop("layer"), "has no 'layer'"),
        (lambda run: run.update(search=[{"updates": 1}]), "has no 'open'"),
        (lambda run: run.update(search={}), "'search' is {}, and has to be a list of objects"),
        (lambda run: run.update(run="another"), "is of run another of bible_es_en: put it where"),
        (
            lambda run: run.update(heads={"cross": [1]}),
            "'heads' is .* has to be an object of lists",
        ),
    ],
)
def test_a_malformed_run_is_named_in_one_sentence(tmp_path, change, message):
    folder = _one_run(tmp_path, change)
    with pytest.raises(ValueError, match=message) as error:
        read_record(folder)
    assert "\n" not in f"{error.value}"


def test_a_file_that_is_cut_off_is_damaged(tmp_path):
    folder = _one_run(tmp_path, lambda run: None)
    (path,) = (folder / "bible_es_en").glob("*.xz")
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(ValueError, match=r"softmax-small-seed1\.json\.xz is damaged"):
        read_record(folder)


def test_a_record_without_any_run_says_so(tmp_path):
    folder = synthetic.write_record(tmp_path, seeds=(), corpora=("bible_es_en",))
    with pytest.raises(ValueError, match=r"has no run: run claims\.sh first"):
        read_record(folder)


def test_a_folder_that_is_no_record_says_so(tmp_path):
    with pytest.raises(ValueError, match="there is no record at"):
        read_record(tmp_path / "nothing")
    with pytest.raises(ValueError, match=r"record\.json is missing"):
        read_record(tmp_path)
    (tmp_path / "record.json").write_text('{"format": "other"}', encoding="utf-8")
    with pytest.raises(ValueError, match="no record of format fairseq-entmax-claims, version 1"):
        read_record(tmp_path)


def _first_attention(run):
    return run["analysis"]["models"][0]["attentions"][0]


def test_speeds_without_their_runs_are_named(tmp_path):
    folder = _one_run(tmp_path, lambda run: None)
    (folder / "bible_es_en" / "speed.json").write_text('{"models": [{"density": {}}]}')
    with pytest.raises(ValueError, match=r"speed\.json has no 'run'"):
        read_record(folder)


def test_runs_of_other_test_sets_are_named(tmp_path):
    folder = _one_run(tmp_path, lambda run: None)
    document = synthetic.documents(seeds=(1,))[1]
    document["translation"]["sentences"].pop()
    packed = lzma.compress(json.dumps(document).encode())
    (folder / "bible_es_en" / f"{document['run']}.json.xz").write_bytes(packed)
    with pytest.raises(ValueError, match=r"translate (299 and 300|300 and 299) sentences"):
        read_record(folder)


def _one_run(folder, change):
    (folder / "bible_es_en").mkdir()
    about = synthetic.about((1,), ("bible_es_en",), False)
    (folder / "record.json").write_text(json.dumps(about), encoding="utf-8")
    document = synthetic.documents(seeds=(1,))[0]
    name = document["run"]
    change(document)
    packed = lzma.compress(json.dumps(document).encode())
    (folder / "bible_es_en" / f"{name}.json.xz").write_bytes(packed)
    return folder


def _renamed(folder, **about):
    path = folder / "record.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **about}), encoding="utf-8")


@pytest.mark.parametrize("about", [{"seeds": [2, 3]}, {"models": ["entmax"]}])
def test_runs_of_seeds_and_models_that_the_record_does_not_name_are_left_out(tmp_path, about):
    folder = _one_run(tmp_path, lambda run: None)
    document = synthetic.documents(seeds=(2,))[3]
    assert document["model"] == "entmax"
    packed = lzma.compress(json.dumps(document).encode())
    (folder / "bible_es_en" / f"{document['run']}.json.xz").write_bytes(packed)
    _renamed(folder, **{"seeds": [1, 2], **about})
    corpus = read_record(folder).corpora[0]
    assert [run.run for run in corpus.runs] == ["entmax-small-seed2"]
    assert corpus.left_out == ["softmax-small-seed1"]


def test_what_was_left_out_is_said(tmp_path):
    folder = synthetic.write_record(tmp_path, seeds=(1, 2), corpora=("bible_es_en",), quick=True)
    _renamed(folder, seeds=[1])
    text = markdown(read_record(folder), {})
    assert "Left out of bible_es_en" in text
    assert "softmax-large-seed2-continued" in text
