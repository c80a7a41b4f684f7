import base64
import copy
import errno
import gzip
import json
import re
from argparse import ArgumentParser
from pathlib import Path

import numpy as np
import pytest

from fairseq_entmax.analysis.groups import decoded_groups
from fairseq_entmax.analysis.report import command, payload
from fairseq_entmax.analysis.report.page import render_page
from fairseq_entmax.analysis.report.payload import measures_of
from fairseq_entmax.analysis.report.pruning_table import COLUMNS
from tests.analysis.report.grouped import CLUSTERS, RUNS, give_groups
from tests.analysis.report.synthetic import decode_weights, synthetic_analysis

ATTACK = '</script><script>alert("x")</script><!--'


@pytest.fixture(scope="module")
def analysis():
    return synthetic_analysis(models=2, layers=2, heads=3, sentences=2, length=8)


@pytest.fixture
def changed(analysis):
    """A copy to change."""
    return copy.deepcopy(analysis)


@pytest.fixture
def folder(tmp_path, analysis):
    (tmp_path / "analysis.json").write_text(json.dumps(analysis), encoding="utf-8")
    return tmp_path


def embedded(page):
    """The page's data, as its script reads them."""
    return json.loads(re.search(r'id="report-data">(.*?)</script>', page, re.DOTALL)[1])


def run(*arguments):
    parser = ArgumentParser()
    command.add_arguments(parser)
    command.run(parser.parse_args([str(argument) for argument in arguments]))


def test_every_head_is_in_the_page_with_its_numbers(analysis):
    data = embedded(render_page(analysis))
    places = [(row["model"], row["attention"], row["layer"]) for row in data["layers"]]
    entries = [
        (number, entry) for number, model in enumerate(analysis["models"])
        for entry in model["attentions"]
    ]  # fmt: skip
    assert places == [(number, row["attention"], row["layer"]) for number, row in entries]
    for row, (_, entry) in zip(data["layers"], entries, strict=True):
        for shown, head in zip(row["heads"], entry["heads"], strict=True):
            assert shown["values"]["density"] == pytest.approx(head["density"], rel=1e-4)
            assert shown["values"]["entropy"] == pytest.approx(head["entropy"], rel=1e-4)


def test_a_measure_that_no_head_has_is_not_offered(changed):
    names = [measure["name"] for measure in embedded(render_page(changed))["measures"]]
    assert "relevance" in names
    assert "gate" not in names
    for model in changed["models"]:
        for entry in model["attentions"]:
            for head in entry["heads"]:
                head["relevance"] = None
    names = [measure["name"] for measure in embedded(render_page(changed))["measures"]]
    assert "relevance" not in names


def test_the_page_begins_with_a_measure_that_tells_heads_apart(changed):
    del changed["models"][1:]  # softmax is left: every density is 1
    for entry in changed["maps"]:
        del entry["models"][1:]
    data = embedded(render_page(changed))
    assert data["measures"][0]["name"] == "density"
    assert data["measure"] == "entropy"


def test_a_layer_without_heads_is_in_the_page(changed):
    entry = changed["models"][0]["attentions"][1]
    entry["heads"] = []
    for item in changed["maps"]:
        pruned = item["models"][0][1]
        pruned["shape"][0] = 0
        pruned["weights"] = base64.b64encode(b"x\x9c\x03\x00\x00\x00\x00\x01").decode()
    data = embedded(render_page(changed))
    assert data["layers"][1]["heads"] == []
    assert data["sentences"][0]["models"][0][1]["heads"] == 0


def test_weights_in_the_page_are_those_of_the_analysis_within_the_stated_precision(analysis):
    for entry in analysis["maps"]:
        bytes_ = np.frombuffer(
            gzip.decompress(base64.b64decode(payload.weights_block(entry))), "u1"
        )
        expected = np.concatenate(
            [decode_weights(item).ravel() for model in entry["models"] for item in model]
        )
        bound = np.sqrt(expected) / 255 + 1 / 510**2
        assert (np.abs((bytes_ / 255.0) ** 2 - expected) <= bound).all()
        assert ((bytes_ == 0) == (expected == 0)).all()


def test_the_smallest_weight_above_zero_is_not_a_zero_and_one_is_the_largest_shade():
    smallest = np.nextafter(np.float16(0), np.float16(1))
    shown = payload.shades(np.array([0, smallest, 0.25, 1], dtype=np.float16))
    assert shown.tolist() == [0, 1, 128, 255]


def test_each_map_lies_in_its_block_where_the_page_is_told(analysis):
    entry = analysis["maps"][1]
    places = embedded(render_page(analysis))["sentences"][1]["models"]
    bytes_ = np.frombuffer(gzip.decompress(base64.b64decode(payload.weights_block(entry))), "u1")
    for model, attentions in zip(places, entry["models"], strict=True):
        for place, item in zip(model, attentions, strict=True):
            shape = (place["heads"], place["queries"], place["keys"])
            size = int(np.prod(shape))
            found = bytes_[place["start"] : place["start"] + size].reshape(shape)
            assert (found == payload.shades(decode_weights(item))).all()


def test_tokens_and_names_cannot_end_the_script_or_become_markup(changed):
    changed["maps"][0]["source"][0] = ATTACK
    changed["models"][0]["name"] = ATTACK
    changed["models"][1]["name"] = "{{library}}"
    page = render_page(changed)
    assert ATTACK not in page
    data = embedded(page)
    assert data["sentences"][0]["source"][0] == ATTACK
    assert [model["name"] for model in data["models"]] == [ATTACK, "{{library}}"]


def test_the_same_analysis_gives_the_same_page(analysis):
    assert render_page(analysis) == render_page(copy.deepcopy(analysis))


def test_the_page_names_no_address_that_a_browser_would_load(analysis):
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
def test_subwords_are_joined_to_the_text_they_were_cut_from(tokens, text):
    assert payload.joined_text(tokens) == text


def test_the_command_writes_the_page_and_says_where(folder, capsys):
    run(folder / "analysis.json", "--output", folder / "report.html", "--measure", "entropy")
    page = (folder / "report.html").read_text(encoding="utf-8")
    assert page.startswith("<!DOCTYPE html>")
    assert embedded(page)["measure"] == "entropy"
    assert re.search(
        r"report\.html: 2 models, 36 heads, 2 sentences, \d\.\d MB", capsys.readouterr().out
    )
    assert sorted(path.name for path in folder.iterdir()) == ["analysis.json", "report.html"]


def test_the_command_writes_the_figures_too(folder):
    run(
        folder / "analysis.json", "--output", folder / "report.html",
        "--figures", folder / "figures", "--formats", "svg",
    )  # fmt: skip
    shown = {figure["name"] for figure in embedded((folder / "report.html").read_text())["figures"]}
    assert shown
    written = {path.stem for path in (folder / "figures").iterdir()}
    assert shown < written
    assert "grid_density" in written


def test_an_output_that_exists_is_kept_unless_it_may_be_replaced(folder):
    output = folder / "report.html"
    output.write_text("mine")
    with pytest.raises(FileExistsError, match=r"--output .*report\.html.* exists.*--overwrite"):
        run(folder / "analysis.json", "--output", output)
    assert output.read_text() == "mine"
    run(folder / "analysis.json", "--output", output, "--overwrite")
    assert output.read_text().startswith("<!DOCTYPE html>")


def test_a_measure_that_is_not_known_or_not_there_is_answered_with_those_that_are(folder):
    with pytest.raises(ValueError, match="--measure got 'gate'"):
        run(folder / "analysis.json", "--output", folder / "r.html", "--measure", "gate")
    with pytest.raises(ValueError, match=r"--measure got 'colour': .*density, alpha, entropy"):
        run(folder / "analysis.json", "--output", folder / "r.html", "--measure", "colour")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--output", "nowhere/r.html"], "--output got 'nowhere/r.html': there is no folder"),
        (["--output", ""], "--output got ''"),
        (["--output", "."], r"--output got '\.'"),
        (["--output", "r.html", "--formats", "png"], "--formats needs --figures"),
        (["--output", "r.html", "--figures", "f", "--formats", "gif"], "'gif' is none of png"),
        (["--output", "r.html", "--pruning", "no.tsv"], r"no\.tsv"),
        (["--output", "r.html", "--pruning", ""], "--pruning '' does not exist"),
        (["--output", "r.html", "--figures", ""], "--figures got ''"),
    ],
)
def test_wrong_options_are_refused_and_nothing_is_written(folder, monkeypatch, options, message):
    monkeypatch.chdir(folder)
    with pytest.raises((ValueError, OSError), match=message):
        run("analysis.json", *options)
    assert [path.name for path in folder.iterdir()] == ["analysis.json"]


def test_a_page_that_cannot_be_written_leaves_the_old_one_and_no_figures(folder, monkeypatch):
    output = folder / "report.html"
    output.write_text("mine")
    write = Path.open

    def full(path, *args, **kwargs):
        if "report.html.tmp" in path.name:
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(path, *args, **kwargs)

    monkeypatch.setattr(Path, "open", full)
    figures = ("--figures", folder / "f", "--formats", "svg")
    with pytest.raises(OSError, match=r"nothing was changed: .*No space left"):
        run(folder / "analysis.json", "--output", output, "--overwrite", *figures)
    assert output.read_text() == "mine"
    assert list((folder / "f").iterdir()) == []
    assert sorted(path.name for path in folder.iterdir()) == ["analysis.json", "f", "report.html"]


@pytest.mark.parametrize("name", ["analysis.json", "link", "./analysis.json"])
def test_an_analysis_is_never_replaced_by_its_report(folder, monkeypatch, name):
    monkeypatch.chdir(folder)
    before = Path("analysis.json").read_text()
    if name == "link":
        Path("link").symlink_to("analysis.json")
    with pytest.raises(ValueError, match=r"analysis\.json is the analysis, and would be replaced"):
        run("analysis.json", "--output", name, "--overwrite")
    assert Path("analysis.json").read_text() == before


def test_a_figure_is_never_in_the_place_of_the_report(folder, monkeypatch):
    monkeypatch.chdir(folder)
    Path("f").mkdir()
    options = ("--figures", "f", "--formats", "svg", "--overwrite")
    with pytest.raises(ValueError, match=r"diversity_by_layer\.svg is the report itself"):
        run("analysis.json", "--output", "f/diversity_by_layer.svg", *options)
    assert list(Path("f").iterdir()) == []


def test_pruning_results_without_a_pruned_model_are_refused(folder):
    table = folder / "pruning.tsv"
    cells = ["softmax", "baseline", "4 (2,2)", "4 (2,2)", "4 (2,2)", "21.0", "1000", "30.0", "1.00"]
    table.write_text("\t".join(COLUMNS) + "\n" + "\t".join(cells) + "\n")
    with pytest.raises(ValueError, match=r"--pruning .*no pruned model with a BLEU is in it"):
        run(folder / "analysis.json", "--output", folder / "r.html", "--pruning", table)
    assert not (folder / "r.html").exists()


def test_offsets_dependencies_and_the_diversity_of_a_layer_are_measures(analysis):
    found = {measure.name: measure for measure in measures_of(analysis)}
    layer = analysis["models"][1]["attentions"][0]
    head = layer["heads"][2]
    for name, expected in {
        "diversity": layer["diversity"],
        "weight@-4": head["offsets"]["weight"]["-4"],
        "weight@0": head["offsets"]["weight"]["0"],
        "share@+2": head["offsets"]["share"]["2"],
        "to-head@nsubj": head["dependencies"]["nsubj"]["to_head"],
        "to-dependent@obj": head["dependencies"]["obj"]["to_dependent"],
    }.items():
        assert found[name].of(head, layer) == expected
    assert not [name for name in found if name.endswith("@+5")]


def test_numbers_keep_the_digits_that_a_page_needs_to_round_once(changed):
    head = changed["models"][1]["attentions"][0]["heads"][0]
    head["entropy"], head["density"] = 2.93353, 0.999998
    values = embedded(render_page(changed))["layers"][6]["heads"][0]["values"]
    assert (values["entropy"], values["density"]) == (2.93353, 0.999998)


def test_the_page_has_the_groups_of_layers_that_have_some():
    analysis = synthetic_analysis(models=3, layers=2, heads=3, sentences=2, length=16)
    give_groups(analysis, 1, CLUSTERS)
    give_groups(analysis, 2, RUNS)
    page = render_page(analysis)
    for number, sentence in enumerate(embedded(page)["sentences"]):
        block = re.search(rf'id="groups-{number}">([^<]*)<', page)[1]
        content = np.frombuffer(gzip.decompress(base64.b64decode(block)), np.uint8)
        total = 0
        for places, items in zip(
            sentence["models"], analysis["maps"][number]["models"], strict=True
        ):
            for place, item in zip(places, items, strict=True):
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
