"""The report of a pruning, as text."""

from __future__ import annotations

from fairseq_entmax.pruning.surgery import PruningReport
from fairseq_entmax.text_table import text_table


def as_table(report: PruningReport, bytes_before: int, bytes_after: int) -> str:
    """The report as lines of text; the bytes are those of the two files."""
    rows = [("", "before", "after", "left in each layer")]
    for attention, after in report.heads_after.items():
        before = sum(report.heads_before[attention])
        rows.append((f"heads {attention}", f"{before}", f"{sum(after)}", ",".join(map(str, after))))
    sizes = (
        ("parameters", report.parameters_before, report.parameters_after),
        ("bytes of weights", report.weight_bytes_before, report.weight_bytes_after),
        ("bytes of the file", bytes_before, bytes_after),
    )
    rows += [(name, f"{before:,}", f"{after:,}", "") for name, before, after in sizes]
    table = text_table(rows, left_aligned=(0, 3))
    for attention, after in report.heads_after.items():
        if sum(report.heads_before[attention]) and not sum(after):
            table += f"\n{attention} lost all its heads; --keep {attention}=N keeps N of them"
    if report.undecided:
        heads = ", ".join(f"{head} {gate:.3f}" for head, gate in sorted(report.undecided.items()))
        table += (
            f"\n{len(report.undecided)} heads had a gate strictly between 0 and 1, which is now part "
            f"of their output projection: {heads}"
        )
    return table
