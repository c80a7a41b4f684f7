import json
import re

import pytest
import vl_convert

from fairseq_entmax.analysis.report.figures import figures
from tests.analysis.report.synthetic import every_head, synthetic_analysis

EVERY_FIGURE = [
    *("alpha_trajectories", "alpha_histogram"),
    *("density_distribution", "density_by_layer", "diversity_by_layer"),
    *(f"confidence_and_importance-{name}" for name in ("encoder-self", "decoder-self", "cross")),
    *("functions_by_model", "dependency_accuracy", "dependency_offsets"),
    *("bleu_by_heads", "heads_by_attention", "heads_by_layer"),
]
PRUNING = [
    {"mapping": mapping, "model": model, "encoder-self": encoder, "decoder-self": [2, 2]}
    | {"cross": cross, "BLEU": bleu, "parameters": 1000, "sentences/s": 3.0, "speed": 1.0}
    for mapping, model, encoder, cross, bleu in [
        ("softmax", "baseline", [2, 2], [2, 2], 20.0),
        ("softmax", "continued", [2, 2], [2, 2], 21.0),
        ("softmax", "encoder1-pruned", [0, 1], [2, 2], 19.0),
        ("softmax", "encoder1-scratch", [0, 1], [2, 2], 18.0),
        ("softmax", "all7-pruned", [0, 1], [1, 1], 17.0),
        ("entmax", "baseline", [2, 2], [2, 2], 20.5),
        ("entmax", "1-4-2-pruned", [1, 0], [0, 2], 17.5),
    ]
]


def drawn(analysis, pruning=None):
    return {figure.name: figure for figure in figures(analysis, pruning)}


def test_a_full_analysis_gives_every_figure(small):
    assert list(drawn(small, PRUNING)) == EVERY_FIGURE


@pytest.mark.parametrize(
    ("change", "gone"),
    [
        ({"relevance": None}, {name for name in EVERY_FIGURE if "importance" in name}),
        ({"dependencies": None}, {"dependency_accuracy"}),
        (
            {"dependencies": None, "positional": None, "rare_word": None},
            {"dependency_accuracy", "functions_by_model"},
        ),
        ({"density_histogram": None}, {"density_distribution"}),
        ({"density": None}, {"density_by_layer"}),
    ],
)
def test_a_figure_without_its_measure_is_left_out(small, change, gone):
    for head in every_head(small):
        head.update(change)
    assert list(drawn(small, PRUNING)) == [name for name in EVERY_FIGURE if name not in gone]


@pytest.mark.parametrize("shape", [(3, 2, 3), (1, 1, 1), (4, 1, 2)])
def test_every_chart_has_a_description_no_warning_and_no_page_colours(shape, capfd):
    models, layers, heads = shape
    for figure in figures(synthetic_analysis(models, layers, heads, sentences=0), PRUNING):
        drawing = vl_convert.vegalite_to_svg(figure.for_paper(), show_warnings=True)
        assert "<path" in drawing, figure.name
        assert "WARN" not in "".join(capfd.readouterr()), figure.name
        spec = figure.for_page()
        assert spec["description"] == figure.caption
        assert not re.search('"(black|white|#000000|#ffffff)"', json.dumps(spec), re.IGNORECASE)
