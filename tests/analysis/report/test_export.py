import xml.etree.ElementTree

import pytest

from fairseq_entmax.analysis.report import export
from fairseq_entmax.analysis.report.charts import Drawable
from fairseq_entmax.analysis.report.figures import figures
from fairseq_entmax.files import write_together
from tests.analysis.report.synthetic import synthetic_analysis


@pytest.fixture(scope="module")
def two():
    analysis = synthetic_analysis(models=2, layers=2, heads=2, sentences=0)
    return [
        figure
        for figure in figures(analysis)
        if figure.name in ("diversity_by_layer", "density_by_layer")
    ]


def export_figures(figures, directory, formats=export.FORMATS, overwrite=False):
    """Write ``NAME.FORMAT`` for every figure and format; the files written."""
    drawables = [Drawable(one.name, True, lambda one=one: one) for one in figures]
    contents = export.drawn(export.figure_files(drawables, directory, formats, overwrite))
    write_together(contents)
    return list(contents)


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


def test_an_existing_file_is_an_error_and_nothing_is_written(two, tmp_path):
    there = tmp_path / "density_by_layer.svg"
    there.write_text("mine")
    with pytest.raises(FileExistsError, match=r"--figures .*density_by_layer\.svg.*--overwrite"):
        export_figures(two, tmp_path, ("png", "svg"))
    assert names(tmp_path) == [there.name]
    assert there.read_text() == "mine"


def test_what_goes_wrong_halfway_leaves_nothing_behind(two, tmp_path, monkeypatch):
    def fail(_):
        raise OSError("no space left")

    monkeypatch.setitem(export._DRAW, "png", fail)
    there = tmp_path / "density_by_layer.svg"
    there.write_text("mine")
    with pytest.raises(OSError, match="no space left"):
        export_figures(two, tmp_path, ("svg", "png"), overwrite=True)
    assert names(tmp_path) == [there.name]
    assert there.read_text() == "mine"
