"""The command ``fairseq-entmax report``."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from fairseq_entmax.analysis.arguments import chosen_names
from fairseq_entmax.files import check_target, refuse_inputs, write_together


def report_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="fairseq-entmax report",
        description="Draws an analysis as one HTML file that opens without a network connection: "
        "every head of every model, the papers' figures, and attention maps.",
    )
    add = parser.add_argument
    add("analysis", metavar="ANALYSIS", help="the analysis.json that fairseq-entmax analyze wrote")
    add("--output", metavar="FILE", required=True, help="the HTML file to write")
    add("--figures", metavar="DIR", help="also write the figures to files there")
    add(
        "--formats",
        metavar="FORMATS",
        help="formats of the figures' files, any of png,svg,pdf (default: all)",
    )
    add(
        "--figure-names",
        metavar="NAMES",
        help="the figures to write, separated by commas, with * as a wildcard, such as "
        "grid_density,map_3_cross_1_0 or 'map_*' (default: the page's figures, a grid for each main "
        "measure, and for the first sentence the map of each attention's most confident head)",
    )
    add("--heads-table", metavar="FILE", help="also write the table of heads as CSV to this file")
    add(
        "--pruning",
        metavar="FILE",
        help="pruning.tsv of a translation recipe, to plot BLEU against heads",
    )
    add(
        "--ablation",
        metavar="FILE",
        nargs="+",
        action="extend",
        default=[],
        help="ablation.json files of the analysed models, to show what each head is worth, and how "
        "well relevance, gradient and confidence agree with it",
    )
    add("--overwrite", action="store_true", help="replace files that exist")
    return parser


def main(arguments: Sequence[str]) -> None:
    """Write the report, whole or not at all, then print what is in it."""
    options = report_parser().parse_args(arguments)
    for option in ("formats", "figure_names"):
        if getattr(options, option) is not None and options.figures is None:
            name = option.replace("_", "-")
            raise ValueError(f"--{name} needs --figures DIR, the folder for the figures' files")
    output = check_target(options.output, "--output", options.overwrite)
    tables = []
    if options.heads_table is not None:
        tables = [check_target(options.heads_table, "--heads-table", options.overwrite)]
    inputs = {"the analysis": options.analysis, "the pruning results": options.pruning}
    inputs |= {f"the ablation {path}": path for path in options.ablation}
    refuse_inputs([output, *tables], inputs)
    refuse_inputs(tables, {"the report itself": options.output})
    # Imported here because they need torch and the extra [report], unlike the command's help
    from fairseq_entmax.analysis import document
    from fairseq_entmax.analysis.report import figures
    from fairseq_entmax.analysis.report.ablation_table import with_ablations
    from fairseq_entmax.analysis.report.figures_pruning import read_pruning
    from fairseq_entmax.analysis.report.page import render_page
    from fairseq_entmax.analysis.report.payload import heads_csv

    analysis = with_ablations(document.read(options.analysis), options.ablation)
    formats = chosen_names("--formats", options.formats, figures.FORMATS)
    pruning = None if options.pruning is None else read_pruning(options.pruning)
    shown = figures.figures(analysis, pruning)
    if pruning is not None and all(figure.name != "bleu_by_heads" for figure in shown):
        raise ValueError(
            f"--pruning {options.pruning}: it has no pruned model with a BLEU score; run prune.sh to the end"
        )
    files = {}
    if options.figures is not None:
        wanted = figures.chosen(figures.drawables(analysis, shown), options.figure_names)
        files = figures.figure_files(wanted, options.figures, formats, options.overwrite)
        others = {"the table of heads": options.heads_table, "the report itself": options.output}
        refuse_inputs(files, {**inputs, **others})
    texts = {output: render_page(analysis, shown)}
    texts |= {table: heads_csv(analysis) for table in tables}
    write_together(
        {**figures.drawn(files), **{file: text.encode("utf-8") for file, text in texts.items()}}
    )
    if files:
        number = len(files) // len(formats)
        print(f"{options.figures}: {number} figure{'s' * (number != 1)} as {', '.join(formats)}")
    heads = sum(len(one["heads"]) for model in analysis["models"] for one in model["attentions"])
    for table in tables:
        print(f"{table}: a row for each of {heads} heads")
    # Models may have written a text each
    sentences = {entry["sentence"] for entry in analysis["maps"]}
    counts = {"model": len(analysis["models"]), "head": heads, "sentence": len(sentences)}
    words = ", ".join(f"{number} {noun}{'s' * (number != 1)}" for noun, number in counts.items())
    print(f"{output}: {words}, {output.stat().st_size / 1e6:.1f} MB; open it in a browser")
