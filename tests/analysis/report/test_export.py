"""Figures as files: every format, and nothing is overwritten."""

import xml.etree.ElementTree

import pytest

from fairseq_entmax.analysis.report import figures as export
from fairseq_entmax.analysis.report.charts import Drawable
from fairseq_entmax.analysis.report.figures import figures
from tests.analysis.report.synthetic import synthetic_analysis


@pytest.fixture(scope="module")
def drawable():
    analysis = synthetic_analysis(models=2, layers=2, heads=2, sentences=0)
    (figure,) = [one for one in figures(analysis) if one.name == "density_by_layer"]
    return Drawable(figure.name, True, lambda: figure)


def test_a_figure_is_drawn_in_every_format_with_a_png_at_triple_resolution(drawable, tmp_path):
    files = export.figure_files([drawable], tmp_path / "paper" / "f", export.FORMATS, False)
    contents = {path.name: content for path, content in export.drawn(files).items()}
    assert sorted(contents) == [f"density_by_layer.{form}" for form in ("pdf", "png", "svg")]
    assert contents["density_by_layer.pdf"].startswith(b"%PDF")
    png = contents["density_by_layer.png"]
    size = [int.from_bytes(png[start : start + 4], "big") for start in (16, 20)]
    root = xml.etree.ElementTree.fromstring(contents["density_by_layer.svg"])
    expected = [3 * float(root.attrib[side]) for side in ("width", "height")]
    assert size == pytest.approx(expected, abs=3)
    texts = {one.text for one in root.iter() if "text" in one.tag}
    assert {"encoder-self", "decoder-self", "cross", "layer"} <= texts


def test_an_existing_file_is_an_error_before_anything_is_drawn(drawable, tmp_path):
    (tmp_path / "density_by_layer.svg").write_text("mine")
    with pytest.raises(FileExistsError, match=r"--figures .*density_by_layer\.svg.*--overwrite"):
        export.figure_files([drawable], tmp_path, ("png", "svg"), False)
    assert export.figure_files([drawable], tmp_path, ("png", "svg"), True)
