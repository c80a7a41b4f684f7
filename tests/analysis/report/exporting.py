"""Figures written as the command ``report`` writes them, without a page."""

from fairseq_entmax.analysis.report.catalogue import Drawable
from fairseq_entmax.analysis.report.export import FORMATS, drawn, figure_files
from fairseq_entmax.files import write_together

_DRAW = figure_files.__globals__["_DRAW"]


def export_figures(figures, directory, formats=FORMATS, overwrite=False):
    """Write ``NAME.FORMAT`` for every figure and format; the files written."""
    return export_drawables([*map(Drawable.of, figures)], directory, formats, overwrite)


def export_drawables(drawables, directory, formats=FORMATS, overwrite=False):
    """Likewise of what is drawn only now."""
    contents = drawn(figure_files(drawables, directory, formats, overwrite))
    write_together(contents)
    return list(contents)
