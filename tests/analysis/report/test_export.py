import re
import xml.etree.ElementTree
import zlib

import pytest

from fairseq_entmax.analysis.report.export import PNG_SCALE
from fairseq_entmax.analysis.report.figures import figures
from tests.analysis.report.exporting import export_figures
from tests.analysis.report.synthetic import synthetic_analysis


@pytest.fixture(scope="module")
def two():
    analysis = synthetic_analysis(models=2, layers=2, heads=2, sentences=0)
    return [
        figure
        for figure in figures(analysis)
        if figure.name in ("diversity_by_layer", "density_by_layer")
    ]


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_every_figure_is_written_in_every_format(two, tmp_path):
    folder = tmp_path / "paper" / "figures"
    written = export_figures(two, folder)
    assert sorted(path.name for path in written) == names(folder)
    assert names(folder) == [
        f"{name}.{form}"
        for name in ("density_by_layer", "diversity_by_layer")
        for form in ("pdf", "png", "svg")
    ]


def test_a_png_has_three_pixels_for_one_of_the_svg(two, tmp_path):
    png, svg = export_figures(two[:1], tmp_path, ("png", "svg"))
    content = png.read_bytes()
    assert content.startswith(b"\x89PNG\r\n\x1a\n")
    size = [int.from_bytes(content[start : start + 4], "big") for start in (16, 20)]
    root = xml.etree.ElementTree.fromstring(svg.read_text(encoding="utf-8"))
    assert PNG_SCALE == 3
    expected = [3 * float(root.attrib[side]) for side in ("width", "height")]
    assert size == pytest.approx(expected, abs=3)


def test_an_svg_has_the_labels_as_text(two, tmp_path):
    (file,) = export_figures(two[:1], tmp_path, ["svg"])
    texts = {
        element.text
        for element in xml.etree.ElementTree.parse(file).iter()
        if "text" in element.tag
    }
    assert {"encoder-self", "decoder-self", "cross", "layer"} <= texts


def test_a_pdf_has_one_page_with_something_drawn(two, tmp_path):
    (file,) = export_figures(two[:1], tmp_path, ["pdf"])
    content = file.read_bytes()
    assert content.startswith(b"%PDF-")
    assert content.rstrip().endswith(b"%%EOF")
    drawn = [part.split(b"endstream")[0].strip() for part in content.split(b"stream\n")[1:]]
    assert max(len(_inflated(part)) for part in drawn) > 2000


def _inflated(part):
    try:
        return zlib.decompress(part)
    except zlib.error:
        return part


def test_an_existing_file_is_an_error_and_nothing_is_written(two, tmp_path):
    there = tmp_path / "density_by_layer.svg"
    there.write_text("mine")
    with pytest.raises(FileExistsError, match=r"--figures .*density_by_layer\.svg.*--overwrite"):
        export_figures(two, tmp_path, ("png", "svg"))
    assert names(tmp_path) == [there.name]
    assert there.read_text() == "mine"


def test_overwrite_replaces_it(two, tmp_path):
    there = tmp_path / "density_by_layer.svg"
    there.write_text("mine")
    export_figures(two, tmp_path, ["svg"], overwrite=True)
    assert "<svg" in there.read_text(encoding="utf-8")


def test_what_goes_wrong_halfway_leaves_nothing_behind(two, tmp_path, monkeypatch):
    def fail(_):
        raise OSError("no space left")

    monkeypatch.setitem(export_figures.__globals__["_DRAW"], "png", fail)
    there = tmp_path / "density_by_layer.svg"
    there.write_text("mine")
    with pytest.raises(OSError, match="no space left"):
        export_figures(two, tmp_path, ("svg", "png"), overwrite=True)
    assert names(tmp_path) == [there.name]
    assert there.read_text() == "mine"


def test_a_folder_in_a_files_place_is_found_before_anything_is_written(two, tmp_path):
    (tmp_path / f"{two[1].name}.svg").mkdir()
    there = tmp_path / f"{two[0].name}.svg"
    there.write_text("mine")
    with pytest.raises(ValueError, match=r"--figures got .*\.svg': give the name of a file"):
        export_figures(two, tmp_path, ["svg"], overwrite=True)
    assert there.read_text() == "mine"
    assert len(names(tmp_path)) == 2


def test_a_file_in_the_folders_place_is_named(two, tmp_path):
    file = tmp_path / "figures"
    file.write_text("")
    with pytest.raises(NotADirectoryError, match=r"--figures .*give a folder"):
        export_figures(two, file)


def test_an_unknown_format_is_named_with_those_there_are(two, tmp_path):
    with pytest.raises(ValueError, match="'gif': give some of png, svg, pdf"):
        export_figures(two, tmp_path, ["gif"])
    assert names(tmp_path) == []


def test_files_have_the_same_bytes_each_time(two, tmp_path):
    density = [figure for figure in two if figure.name == "density_by_layer"]
    first, *others = (
        {p.name: p.read_bytes() for p in export_figures(density, tmp_path / n)} for n in "abc"
    )
    assert set(first) == {f"density_by_layer.{form}" for form in ("pdf", "png", "svg")}
    assert others == [first, first]
    # Whose order was another each time
    (names,) = re.findall(rb"/XObject <<((?:\s+/xo\d+ \d+ 0 R)+)", first["density_by_layer.pdf"])
    assert len(names.split()) > 4 * 3
