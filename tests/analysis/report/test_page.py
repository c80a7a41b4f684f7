import base64
import copy
import gzip
import json
import re
from pathlib import Path

import numpy as np
import pytest

from fairseq_entmax.analysis.document.maps import decoded, decoded_groups
from fairseq_entmax.analysis.report import command, payload
from fairseq_entmax.analysis.report.page import render_page
from tests.analysis.report.equal_weights import CLUSTERS, RUNS, give_groups
from tests.analysis.report.page_actions import layer_of
from tests.analysis.report.synthetic import heads_of, lose_head, synthetic_analysis

ATTACK = '</script><script>alert("x")</script><!--'


@pytest.fixture(scope="module")
def analysis():
    return synthetic_analysis(models=2, layers=2, heads=3, sentences=2, length=8)


@pytest.fixture
def changed(analysis):
    """A copy that a test may change."""
    return copy.deepcopy(analysis)


@pytest.fixture
def folder(tmp_path, analysis, monkeypatch):
    (tmp_path / "analysis.json").write_text(json.dumps(analysis), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def embedded(page):
    """The page's data as its script reads it."""
    return json.loads(re.search(r'id="report-data">(.*?)</script>', page, re.DOTALL)[1])


def block_of(page, name):
    """The bytes of a block of weights or groups."""
    text = re.search(rf'id="{name}">([^<]*)<', page)[1]
    return np.frombuffer(gzip.decompress(base64.b64decode(text)), np.uint8)


def run(*arguments):
    command.main([str(argument) for argument in arguments])


def test_every_head_is_in_the_page_with_its_numbers(analysis):
    data = embedded(render_page(analysis))
    assert len(data["layers"]) == 2 * 3 * 2
    for row in data["layers"]:
        entry = layer_of(analysis, row["model"], row["attention"], row["layer"])
        for shown, head in zip(row["heads"], entry["heads"], strict=True):
            for name in ("density", "entropy"):
                assert shown["values"][name] == pytest.approx(head[name], rel=1e-4)


def test_a_measure_without_values_is_not_offered_and_an_informative_one_comes_first(changed):
    del changed["models"][1:]  # softmax alone is left, with every density 1
    for entry in changed["maps"]:
        del entry["models"][1:]
    for head in heads_of(changed["models"][0]):
        head["relevance"] = None
    data = embedded(render_page(changed))
    names = [measure["name"] for measure in data["measures"]]
    assert "gradient" in names
    assert not {"gate", "relevance"} & set(names)
    assert (names[0], data["measure"]) == ("density", "entropy")


def test_a_layer_without_heads_is_in_the_page(changed):
    for _ in range(3):
        lose_head(changed, 0, 0)
    data = embedded(render_page(changed))
    assert data["layers"][0]["heads"] == []
    assert data["sentences"][0]["models"][0][0]["heads"] == 0


def test_each_map_lies_in_its_block_within_the_stated_precision(analysis):
    page = render_page(analysis)
    for number, entry in enumerate(analysis["maps"]):
        places = embedded(page)["sentences"][number]["models"]
        bytes_ = block_of(page, f"weights-{number}")
        for model, attentions in zip(places, entry["models"], strict=True):
            for place, item in zip(model, attentions, strict=True):
                shape = (place["heads"], place["queries"], place["keys"])
                start = place["start"]
                found = bytes_[start : start + int(np.prod(shape))].reshape(shape)
                expected = decoded(item).astype("f4")
                bound = np.sqrt(expected) / 255 + 1 / 510**2
                bound = np.maximum(bound, (found == 1) / 255**2)
                assert (np.abs((found / 255.0) ** 2 - expected) <= bound).all()
                assert ((found == 0) == (expected == 0)).all()


def test_the_smallest_nonzero_weight_is_not_zero_and_1_is_the_darkest_shade():
    smallest = np.nextafter(np.float16(0), np.float16(1))
    shown = payload.shades(np.array([0, smallest, 0.25, 1], dtype=np.float16))
    assert shown.tolist() == [0, 1, 128, 255]


def test_the_page_has_the_groups_of_layers_with_some():
    analysis = synthetic_analysis(models=3, layers=2, heads=3, sentences=2, length=16)
    give_groups(analysis, 1, CLUSTERS)
    give_groups(analysis, 2, RUNS)
    page = render_page(analysis)
    for number, sentence in enumerate(embedded(page)["sentences"]):
        content, total = block_of(page, f"groups-{number}"), 0
        models = zip(sentence["models"], analysis["maps"][number]["models"], strict=True)
        for place, item in (pair for pairs in models for pair in zip(*pairs, strict=True)):
            groups = decoded_groups(item)
            assert ("groups" in place) == (groups is not None)
            if groups is not None:
                start = place["groups"]
                assert np.array_equal(content[start : start + groups.size], groups.ravel())
                total += groups.size
        assert content.size == total > 0
    page = render_page(synthetic_analysis(models=1, layers=1, heads=2, sentences=1))
    assert 'id="weights-0"' in page
    assert 'id="groups-0"' not in page


def test_tokens_and_names_cannot_end_the_script_or_become_markup(changed):
    changed["maps"][0]["source"][0] = ATTACK
    changed["models"][0]["name"] = ATTACK
    changed["models"][1]["name"] = "{{library}}"
    page = render_page(changed)
    assert ATTACK not in page
    data = embedded(page)
    assert data["sentences"][0]["source"][0] == ATTACK
    assert [model["name"] for model in data["models"]] == [ATTACK, "{{library}}"]


def test_the_page_has_no_address_that_a_browser_would_load(analysis):
    page = render_page(analysis)
    assert not re.search(r'(?:src|href|action)\s*=\s*["\']?(?!#)[a-z]*:?//', page)
    assert "@import" not in page
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', page)[1]
    for rule in ("default-src 'none'", "base-uri 'none'", "form-action 'none'"):
        assert rule in policy
    assert "'unsafe-inline'" not in re.search("script-src ([^;]*)", policy)[1]


@pytest.mark.parametrize(
    ("tokens", "text"),
    [
        (["▁Y", "▁di", "jo", ".", "</s>"], "Y dijo."),
        (["Je@@", "ho@@", "vá", "dijo", "</s>"], "Jehová dijo"),
        (["plain", "words", "</s>"], "plain words"),
        (["cut@@", "off@@"], "cutoff"),
        (["</s>"], ""),
    ],
)
def test_subwords_are_joined_to_the_original_text(tokens, text):
    assert payload.joined_text(tokens) == text


def test_the_command_writes_the_page_and_prints_its_name(folder, changed, capsys):
    changed["maps"] *= 2  # as if each model had written a text of its own
    (folder / "analysis.json").write_text(json.dumps(changed), encoding="utf-8")
    output = folder / "report.html"
    output.write_text("mine")
    with pytest.raises(FileExistsError, match=r"report\.html.*--overwrite"):
        run("analysis.json", "--output", output)
    assert output.read_text() == "mine"
    run("analysis.json", "--output", output, "--overwrite")
    page = output.read_text(encoding="utf-8")
    assert page.startswith("<!DOCTYPE html>")
    data = embedded(page)
    assert "diversity_by_layer" in {figure["name"] for figure in data["figures"]}
    output = capsys.readouterr().out
    assert re.search(r"report\.html: 2 models, 36 heads, 2 sentences, \d\.\d MB", output)
    assert sorted(path.name for path in folder.iterdir()) == ["analysis.json", "report.html"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--output", "nowhere/r.html"], "--output got 'nowhere/r.html': there is no folder"),
        (["--output", "r.html", "--formats", "png"], "--formats needs --figures"),
        (["--output", "r.html", "--figures", "f", "--formats", "gif"], "'gif' is not one of png"),
        (["--output", "r.html", "--pruning", "no.tsv"], r"no\.tsv"),
        (["--output", "r.html", "--heads-table", "no/h.csv"], "--heads-table got 'no/h.csv': there"),
        (["--output", "r.html", "--heads-table", "r.html"], "is the report itself"),
    ],
)  # fmt: skip
def test_wrong_options_are_refused_and_nothing_is_written(folder, options, message):
    with pytest.raises((ValueError, OSError), match=message):
        run("analysis.json", *options)
    assert [path.name for path in folder.iterdir()] == ["analysis.json"]


def test_an_analysis_is_never_replaced_by_its_report(folder):
    before = Path("analysis.json").read_text()
    Path("link").symlink_to("analysis.json")
    for name in ("analysis.json", "link"):
        with pytest.raises(ValueError, match=r"json is the analysis, and would be replaced"):
            run("analysis.json", "--output", name, "--overwrite")
    assert Path("analysis.json").read_text() == before
