"""What pruning did, and heads, as text."""

from __future__ import annotations

from fairseq_entmax.models.config import HEADS_OPTIONS, option_name
from fairseq_entmax.pruning.surgery import HeadCounts, PruningReport


def as_options(counts: HeadCounts) -> str:
    """Options of ``fairseq-train`` that build a model with these heads."""
    return " ".join(
        f"{option_name(HEADS_OPTIONS[attention])} {','.join(map(str, layers))}"
        for attention, layers in counts.items()
    )


def as_table(report: PruningReport, bytes_before: int, bytes_after: int) -> str:
    """The report as lines of text; the bytes are those of the two files."""
    rows = [("", "before", "after", "left in each layer")]
    for attention, before in report.heads_before.items():
        after = report.heads_after[attention]
        layers = ",".join(map(str, after))
        rows.append((f"heads {attention}", str(sum(before)), str(sum(after)), layers))
    rows += [
        ("parameters", f"{report.parameters_before:,}", f"{report.parameters_after:,}", ""),
        (
            "bytes of weights",
            f"{report.weight_bytes_before:,}",
            f"{report.weight_bytes_after:,}",
            "",
        ),
        ("bytes of the file", f"{bytes_before:,}", f"{bytes_after:,}", ""),
    ]
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    lines = [
        f"{name:<{widths[0]}}  {before:>{widths[1]}}  {after:>{widths[2]}}  {layers}".rstrip()
        for name, before, after, layers in rows
    ]
    if report.undecided:
        heads = ", ".join(f"{head} {gate:.3f}" for head, gate in sorted(report.undecided.items()))
        lines.append(
            f"{len(report.undecided)} heads had a gate strictly between 0 and 1, which is now part "
            f"of their output projection: {heads}"
        )
    return "\n".join(lines)
