"""What a reader saves from the page: grids, maps and the list of heads."""

import csv
import html
import io
import re
import zlib
from pathlib import Path

import pytest

from fairseq_entmax.analysis.report.heads_table import heads_csv, heads_latex
from fairseq_entmax.analysis.report.page import render_page
from tests.analysis.report.browser import PHONE
from tests.analysis.report.page_actions import select, weights_of
from tests.analysis.report.synthetic import synthetic_analysis

pytestmark = pytest.mark.slow

NAMES = ("entmax:tv=learned+softmax", "oscarmax_of_a_long_name_without_end", "Ελληνικά")


def saved(page, what, form):
    """The name of the file and what is in it."""
    with page.expect_download() as download:
        page.get_by_role("button", name=f"Save as {form}: {what}", exact=True).click()
    return download.value.suggested_filename, Path(download.value.path()).read_bytes()


def texts_of(svg):
    return [html.unescape(text) for text in re.findall(r">([^<>]+)</t", svg.decode())]


def test_the_overview_is_saved_in_every_format(opened, analysis):
    page = opened(scheme="dark")
    page.select_option("#measure", "confidence")
    name, svg = saved(page, "the overview", "SVG")
    assert name == "grid_confidence.svg"
    for model in analysis["models"]:
        assert model["name"] in texts_of(svg)
        value = model["attentions"][0]["heads"][0]["confidence"]
        assert f"{value:.2f}" in texts_of(svg)
    assert b'fill="white"' in svg
    name, png = saved(page, "the overview", "PNG")
    assert name == "grid_confidence.png"
    assert png.startswith(b"\x89PNG\r\n\x1a\n")
    name, _ = saved(page, "the overview", "PDF")
    assert name == "grid_confidence.pdf"


def test_the_map_that_is_shown_is_saved_with_its_exact_zeros_hatched(opened, analysis):
    page = opened()
    select(page, 2, "cross", 1, 3)
    name, svg = saved(page, "the attention maps", "SVG")
    sentence = analysis["maps"][0]["sentence"]
    assert name == f"map_{sentence}_cross_1_3.svg"
    weights = [weights_of(analysis, 0, model, "cross", 1, 3) for model in range(3)]
    zeros = sum(int((one == 0).sum()) for one in weights)
    assert svg.decode().count('stroke="#8f8f8a"') == zeros > 0
    for token in analysis["maps"][0]["source"]:
        assert token.replace("▁", "_") in texts_of(svg)


def test_every_head_is_saved_where_every_head_is_shown(opened, analysis):
    page = opened()
    page.check("input[name=view][value=all]")
    page.wait_for_selector("#map-panels .thumbnails")
    name, svg = saved(page, "the attention maps", "SVG")
    assert name == f"heads_{analysis['maps'][0]['sentence']}_encoder-self.svg"
    assert {"softmax layer 0", "0", "3"} <= set(texts_of(svg))


def pdf_objects(pdf):
    """The objects of a PDF by their number, where its table says that they begin."""
    start = int(re.search(rb"startxref\n(\d+)\n%%EOF\n$", pdf)[1])
    table = pdf[start:].split(b"trailer")[0].splitlines()[2:]
    found = {}
    for number, line in enumerate(table):
        if line.split()[2] == b"n":
            offset = int(line.split()[0])
            head = f"{number} 0 obj\n".encode()
            assert pdf[offset:].startswith(head)
            found[number] = pdf[offset + len(head) :].split(b"\nendobj")[0]
    return found


def stream_of(item):
    length = int(re.search(rb"/Length (\d+)", item)[1])
    start = item.index(b"stream\n") + len(b"stream\n")
    return zlib.decompress(item[start : start + length])


def test_a_pdf_has_shapes_and_text_that_can_be_read(opened, analysis):
    page = opened()
    _, svg = saved(page, "the overview", "SVG")
    _, pdf = saved(page, "the overview", "PDF")
    assert pdf.startswith(b"%PDF-1.4")
    objects = pdf_objects(pdf)
    size = [float(n) for n in re.search(rb"MediaBox \[0 0 ([\d.]+) ([\d.]+)\]", pdf).groups()]
    root = re.search(rb'width="([\d.]+)" height="([\d.]+)"', svg).groups()
    assert size == [float(n) for n in root]
    drawn = stream_of(objects[4]).decode()
    assert drawn.count("q") == drawn.count("Q")
    texts = [bytes.fromhex(one).decode("cp1252") for one in re.findall(r"<([0-9a-f]+)> Tj", drawn)]
    heads = sum(len(a["heads"]) for model in analysis["models"] for a in model["attentions"])
    numbers = sum(bool(re.fullmatch(r"[<>]?\d\.\d\d", text)) for text in texts)
    # The ends of the legend may look like one
    assert heads <= numbers <= heads + 2
    assert {model["name"] for model in analysis["models"]} <= set(texts)


def test_a_pdf_paints_what_its_font_lacks(opened, named):
    _, pdf = saved(opened(named), "the overview", "PDF")
    masks = [item for item in pdf_objects(pdf).values() if b"/ImageMask true" in item]
    assert masks
    for item in masks:
        width, height = (
            int(re.search(rb"/%s (\d+)" % side, item)[1]) for side in (b"Width", b"Height")
        )
        bits = stream_of(item)
        assert len(bits) == -(-width // 8) * height
        assert any(byte != 255 for byte in bits)


@pytest.fixture(scope="module")
def named(tmp_path_factory):
    """A report of models with long names."""
    from fairseq_entmax.analysis.report.figures import figures

    analysis = synthetic_analysis(models=3, layers=2, heads=4, sentences=1, length=8)
    for model, name in zip(analysis["models"], NAMES, strict=True):
        model["name"] = name
    path = tmp_path_factory.mktemp("named") / "report.html"
    path.write_text(render_page(analysis, figures(analysis)), encoding="utf-8")
    return path


@pytest.mark.parametrize("viewport", [PHONE, {"width": 1280, "height": 800}])
def test_no_name_of_a_model_is_cut_on_the_page(opened, named, viewport):
    page = opened(named, viewport=viewport)
    charts = page.locator(".chart")
    for number in range(charts.count()):
        charts.nth(number).scroll_into_view_if_needed()
        page.wait_for_selector(f'.chart[data-figure="{number}"][data-drawn=true]')
    letters = page.locator(".chart svg text").evaluate_all("all => all.map(t => t.textContent)")
    assert not [text for text in letters if "…" in text]
    cut = page.locator("h3, h4, #heads-table td.cut").evaluate_all(
        "all => all.filter(e => e.scrollWidth > e.clientWidth + 1).map(e => e.textContent)"
    )
    assert cut == []


def test_panels_of_models_stand_in_line(opened, named):
    page = opened(named, viewport={"width": 1500, "height": 900})
    page.wait_for_selector("#map-panels .panel canvas")
    page.wait_for_function("document.getElementById('map-panels').dataset.shown")
    tops = page.locator("#map-panels .panel canvas").evaluate_all(
        "all => all.map(c => [c.getBoundingClientRect().left, c.getBoundingClientRect().top])"
    )
    in_line = {top for left, top in tops[:2]}
    assert len(in_line) == 1
    tables = (
        page.locator("#grids .cards")
        .first.locator("table")
        .evaluate_all("all => all.map(t => t.getBoundingClientRect().top)")
    )
    assert len(set(tables)) == 1


def test_the_list_of_heads_is_saved_as_the_command_writes_it(opened, analysis):
    page = opened()
    name, text = saved(page, "the heads of the list", "CSV")
    assert name == "heads.csv"
    ours, theirs = (
        list(csv.reader(io.StringIO(one))) for one in (heads_csv(analysis), text.decode())
    )
    assert ours[0] == theirs[0]
    assert len(ours) == len(theirs)
    for own, their in zip(ours[1:], theirs[1:], strict=True):
        assert own[:6] == their[:6]
        numbers = [[float(cell) if cell else None for cell in row[6:]] for row in (own, their)]
        assert numbers[0] == numbers[1]
    name, text = saved(page, "the heads of the list", "LaTeX")
    assert name == "heads.tex"
    assert text.decode() == heads_latex(analysis)


def test_a_latex_row_of_the_page_begins_with_no_argument(opened, tmp_path):
    analysis = synthetic_analysis(models=1, layers=1, heads=2, sentences=0)
    analysis["models"][0]["name"] = "[best] *"
    path = tmp_path / "report.html"
    path.write_text(render_page(analysis), encoding="utf-8")
    _, text = saved(opened(path), "the heads of the list", "LaTeX")
    assert text.decode() == heads_latex(analysis)
    assert text.decode().count("\n{}[best] *") == 6


def test_a_filtered_and_sorted_list_is_saved_as_it_is_shown(opened):
    page = opened()
    page.select_option("#heads-attention", "cross")
    page.get_by_role("button", name="Confidence", exact=True).click()
    _, text = saved(page, "the heads of the list", "CSV")
    rows = list(csv.DictReader(io.StringIO(text.decode())))
    assert {row["attention"] for row in rows} == {"cross"}
    values = [float(row["confidence"]) for row in rows]
    assert values == sorted(values, reverse=True)
    _, text = saved(page, "the heads of the list", "LaTeX")
    assert text.decode().count(r"\midrule") == 1


def test_without_the_library_of_the_figures_only_the_list_can_be_saved(opened, analysis, tmp_path):
    path = tmp_path / "plain.html"
    path.write_text(render_page(analysis), encoding="utf-8")
    page = opened(path)
    assert page.get_by_role("button", name=re.compile("^Save as")).count() == 2
