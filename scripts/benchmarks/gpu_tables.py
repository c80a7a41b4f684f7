"""From what the benchmarks write to the lines of one table."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

TITLES = ["part", "case", "figure", "here", "against", "times as fast", "others"]
OUTCOMES = {"PASSED": "passed", "FAILED": "failed", "ERROR": "failed", "SKIPPED": "skipped"}
_OUTCOME = rf"(?P<outcome>{'|'.join(OUTCOMES)})"
OF_ONE_PROCESS = re.compile(rf"(?P<name>\S+::.+?) {_OUTCOME}\b")
OF_SEVERAL = re.compile(rf"\[gw\d+\] \[ *\d+%\] {_OUTCOME} (?P<name>\S+::.+)")
# Failed tests that are named
MOST_NAMES = 5


class Line(NamedTuple):
    """One figure.

    Attributes:
        case: what is measured: a shape, a precision.
        figure: and its unit.
        here: alpha-entmax with a learned alpha, or what is tested.
        against: the peer, and its number.
        faster: how many times as fast as the peer attention, or a mapping, is here.
        others: what else was in turns with them.
    """

    case: str
    figure: str
    here: str
    against: str = ""
    faster: str = ""
    others: str = ""


def nothing(_: Any) -> list[Line]:
    """Of a part that has no figures."""
    return []


def tests(output: str) -> list[Line]:
    """Of what ``pytest -v`` printed, whole or not."""
    found = dict.fromkeys(("passed", "failed", "skipped"), 0)
    names = []
    for line in output.splitlines():
        one = OF_ONE_PROCESS.match(line) or OF_SEVERAL.match(line)
        if one is None:
            continue
        outcome = OUTCOMES[one["outcome"]]
        found[outcome] += 1
        names += [one["name"].rstrip()] if outcome == "failed" else []
    said = ", ".join(f"{number} {what}" for what, number in found.items())
    more = [f"and {len(names) - MOST_NAMES} more"] if len(names) > MOST_NAMES else []
    return [Line("", "tests", said, others=", ".join([*names[:MOST_NAMES], *more]))]


def compared(
    case: str,
    figure: str,
    numbers: dict[str, float],
    here: str,
    peers: Iterable[str],
    rates: bool = False,
) -> Line:
    """A line of numbers by name, against the first of the peers that is there.

    Args:
        case, figure: of the line.
        numbers: of all that were in turns.
        here: which is ours.
        peers: by name, first choice first.
        rates: whether more is faster.
    """
    peer = next((name for name in peers if name in numbers), "")
    said = {name: f"{name} {short(value)}" for name, value in numbers.items()}
    if here not in numbers or not peer:
        return Line(case, figure, "", others=", ".join(said.values()))
    others = [text for name, text in said.items() if name not in (here, peer)]
    quotient = numbers[here] / numbers[peer]
    faster = quotient if rates else 1 / quotient
    own = short(numbers[here])
    return Line(case, figure, own, said[peer], f"{faster:.2f}", ", ".join(others))


def short(value: float) -> str:
    """Three digits, or all in front of the point."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _grouped(
    rows: list[dict[str, Any]], of: Callable[[dict[str, Any]], str]
) -> dict[str, list[dict[str, Any]]]:
    groups: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        groups.setdefault(of(row), []).append(row)
    return groups


def _whole(row: dict[str, Any]) -> float:
    return float(row["forward_ms"] + row["backward_ms"])


def attention(report: dict[str, Any]) -> list[Line]:
    """Of fused_attention.py."""
    lines = []
    causal = ", causal" if report["settings"]["causal"] else ""
    groups = _grouped(
        report["results"],
        lambda row: (
            f"{row['model']}, {row['dtype']}, {row['length']} keys{causal}, density {row['density']:.3f}"
        ),
    )
    here, peers = "fused, learned alpha", ("softmax, flash", "softmax, torch's choice")
    for case, rows in groups.items():
        forward = {row["attention"]: row["forward_ms"] for row in rows}
        both = {row["attention"]: _whole(row) for row in rows}
        memory = {row["attention"]: row["peak_mib"] for row in rows if row["peak_mib"]}
        lines.append(compared(case, "forward, ms", forward, here, peers))
        lines.append(compared(case, "forward + backward, ms", both, here, peers))
        if memory:
            line = compared(case, "memory, MiB", memory, here, peers)
            lines.append(line._replace(faster=""))
    return lines


def _of_shapes(report: dict[str, Any], prefix: str, peer: str) -> list[Line]:
    """Lines for each shape, of the mapping whose name begins so, beside a peer."""
    lines = []
    groups = _grouped(report["results"], lambda row: f"{row['rows']} rows of {row['keys']}")
    for case, rows in groups.items():
        numbers = {row["mapping"]: _whole(row) for row in rows}
        here = next(name for name in numbers if name.startswith(prefix))
        lines.append(compared(case, "forward + backward, ms", numbers, here, [peer]))
    return lines


def mapping(report: dict[str, Any]) -> list[Line]:
    """Of mapping.py."""
    return _of_shapes(report, "alpha-entmax (", "torch.softmax")


def drawn(report: dict[str, Any]) -> list[Line]:
    """Of mapping.py --drawn."""
    lines = []
    for row in report["results"]:
        here = next(name for name in row["ms"] if name.startswith("alpha-entmax"))
        line = compared(
            f"{row['rows']} rows of {row['keys']}",
            "forward + backward, ms",
            row["ms"],
            here,
            ["entmax.entmax_bisect"],
        )
        lines.append(line._replace(faster=f"{row['ratio']['entmax.entmax_bisect']:.1f}"))
    return lines


def _models(report: dict[str, Any], field: str, figure: str, case: str) -> list[Line]:
    # The ratio is a median of ratios within a round: that of the medians is another
    numbers = {row["model"]: row[field] for row in report["models"]}
    ratios = {row["model"]: row["ratio"] for row in report["models"]}
    line = compared(case, figure, numbers, "entmax", ["stock fairseq"], rates=True)
    others = [
        f"{name} {short(value)} ({ratios[name]:.2f})"
        for name, value in numbers.items()
        if name not in ("entmax", "stock fairseq")
    ]
    return [line._replace(faster=f"{ratios['entmax']:.2f}", others=", ".join(others))]


def training(report: dict[str, Any]) -> list[Line]:
    """Of training.py."""
    settings = report["settings"]
    dtype = next((name for name in ("fp16", "bf16") if settings[name]), "fp32")
    case = f"{settings['model']}, {dtype}"
    lines = _models(report, "tokens_per_second", "target tokens/s", case)
    memory = {row["model"]: row["peak_memory_bytes"] for row in report["models"]}
    if all(memory.values()):
        mib = {name: value / 2**20 for name, value in memory.items()}
        line = compared(case, "memory, MiB", mib, "entmax", ["stock fairseq"])
        lines.append(line._replace(faster=""))
    return lines


def generation(report: dict[str, Any]) -> list[Line]:
    """Of generation.py."""
    settings = report["settings"]
    case = f"{settings['size']}, beam {settings['beam']}" + ", fp16" * settings["fp16"]
    return _models(report, "sentences_per_second", "sentences/s", case)


def losses(report: dict[str, Any]) -> list[Line]:
    """Of losses.py."""
    lines = []
    for case, rows in _grouped(report["results"], lambda row: f"{row['scores']} scores").items():
        numbers = {row["loss"]: _whole(row) for row in rows}
        here = next(name for name in numbers if name.startswith("here 1.5 ("))
        lines.append(
            compared(case, "forward + backward, ms", numbers, here, ["torch cross_entropy"])
        )
    return lines


def copying(report: dict[str, Any]) -> list[Line]:
    """Of copying.py."""
    lines = []
    for what in ("step", "loss"):
        numbers = {row["model"]: row[f"{what}_seconds"] for row in report["models"]}
        peers = ["fairseq's example"]
        lines.append(compared("CNN/DM's sizes", f"{what}, s", numbers, "alpha-entmax", peers))
    return lines


def structured(report: dict[str, Any]) -> list[Line]:
    """Of structured.py."""
    return _of_shapes(report, "fusedmax (", "fusedmax (torch)")
