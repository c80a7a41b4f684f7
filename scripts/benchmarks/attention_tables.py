"""What cpu_attention.py measured, as tables in Markdown."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from common import markdown

# Contenders, as cpu_attention.py tells them, and what each is timed in
HERE, SDPA, BMM, APART = NAMES = ("here", "sdpa", "bmm", "apart")
PASSES = {"forward": "forward", "both": "forward + backward"}


def table(rows: list[dict[str, Any]]) -> str:
    """All rows in Markdown: milliseconds, and ratios to sdpa in brackets."""
    titles = ["shape", "queries", "spread", "α", "threads", "density"]
    titles += [f"{part}: {name}" for part in PASSES.values() for name in NAMES]
    lines = []
    for row in rows:
        cells = [*_place(row), str(row["threads"]), f"{row['density']:.3f}"]
        for part in PASSES:
            for name in NAMES:
                cells.append(f"{row[f'{part}_ms'][name]:.2f} ({row[f'{part}_ratio'][name]:.2f})")
        lines.append([*cells, _multiple(row["kept"][HERE]), _multiple(row["peak"][HERE])])
    return markdown([*titles, "kept", "peak"], lines, left=2)


def ratios(rows: list[dict[str, Any]]) -> str:
    """What is here to sdpa, in Markdown: a line for a case, threads side by side."""
    numbers = list(dict.fromkeys(row["threads"] for row in rows))
    cases: dict[tuple[str, ...], dict[int, dict[str, Any]]] = {}
    for row in rows:
        cases.setdefault((*_place(row), f"{row['density']:.3f}"), {})[row["threads"]] = row
    lines = [
        [
            *place,
            *(
                f"{found[number][f'{part}_ratio'][HERE]:.2f}" if number in found else ""
                for part in PASSES
                for number in numbers
            ),
            *(_multiple(next(iter(found.values()))[what][HERE]) for what in ("kept", "peak")),
        ]
        for place, found in cases.items()
    ]
    titles = ["shape", "queries", "spread", "α", "density"]
    titles += [f"{part}, {number} thread(s)" for part in PASSES.values() for number in numbers]
    return markdown([*titles, "kept", "peak"], lines, left=2)


def _place(row: dict[str, Any]) -> tuple[str, ...]:
    return row["shape"], row["queries"], f"{row['spread']:g}", f"{row['alpha']:g}"


def _multiple(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"


def worst(rows: list[dict[str, Any]]) -> str:
    """The largest ratios of what attention here takes, in Markdown, and where they are."""
    kinds: list[tuple[str, str, Callable[[dict[str, Any]], bool]]] = [
        ("both_ratio", "512 keys and more, density below 5 %", _is_long_and_sparse),
        ("both_ratio", "64 to 128 keys", lambda row: 64 <= row["keys"] <= 128),
        ("forward_ratio", "64 keys and more", lambda row: row["keys"] >= 64),
        ("forward_to_apart", "64 keys and more", lambda row: row["keys"] >= 64),
        ("both_to_apart", "64 keys and more", lambda row: row["keys"] >= 64),
    ]
    lines = []
    for field, which, is_one in kinds:
        found = [
            (row[field] if field.endswith("apart") else row[field][HERE], row)
            for row in rows
            if is_one(row)
        ]
        if not found:
            continue
        value, row = max(found, key=lambda pair: pair[0])
        where = f"{row['shape']}, {row['queries']}, spread {row['spread']:g}, density {row['density']:.3f}, {row['threads']} thread(s)"
        part, peer = PASSES[field.partition("_")[0]], APART if field.endswith("apart") else SDPA
        lines.append([part, which, where, f"{value:.2f} of {peer}"])
    return markdown(["pass", "of rows with", "worst at", "time here"], lines, left=3)


def _is_long_and_sparse(row: dict[str, Any]) -> bool:
    return bool(row["keys"] >= 512 and row["density"] < 0.05)
