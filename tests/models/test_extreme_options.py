"""Options of training that are out of all bounds: refused when they are read, in one sentence."""

import pytest
from fairseq import options

from tests.commands import SMALL_MODEL, USER_DIR, as_command

GATES = ["--head-gates=cross", "--criterion=label_smoothed_cross_entropy_with_head_l0"]
DIGITS = "9" * 400

REFUSED = [
    *(
        f"--gate-init={value}"
        for value in (
            "1e300",
            "-1e300",
            "nan",
            "inf",
            "-inf",
            "1e39",
            "11",
            "-10.5",
            "1e999",
            "one",
        )
    ),
    *(
        f"--gate-lr-factor={value}"
        for value in ("1e300", "1e-300", "nan", "inf", "0", "-1", "1e39", "1e-320", "20000", "1e-4")
    ),
    *(
        f"--gate-temperature={value}"
        for value in ("1e-320", "1e-300", "1e-40", "0.009", "0", "1", "nan", "inf", "-0.1", "1e300")
    ),
    *(
        f"--gate-stretch={value}"
        for value in (
            *("-1e300,1e300", "-1e39,1.1", "-0.1,1e39", "-1e-300,1.1", "-0.1,1.0000001", "1e-9"),
            *("nan", "inf", "-inf,inf", "-0.1,nan", "20", "-0.009,1.1", ","),
        )
    ),
    *(
        f"--l0-weight={value}"
        for value in ("1e300", "1e39", "nan", "inf", "-1", "1e-300", "1e-320", "1001", "-0.0001")
    ),
    *(
        f"--l0-multiplier-lr={value}"
        for value in ("1e300", "nan", "inf", "0", "-1", "1e-300", "11")
    ),
    *(
        f"--target-heads={value}"
        for value in ("9", "1e300", DIGITS, f"cross={DIGITS}", "nan", "-1")
    ),
    *(f"--l0-warmup-updates={value}" for value in (DIGITS, "-2", "1e300", "nan", "10000000000")),
    *(f"--decide-heads-at={value}" for value in (DIGITS, "-2", "1e300", "nan", "10000000000")),
    *(f"--alpha-log-interval={value}" for value in (DIGITS, "-1", "1e300", "nan", "10000000000")),
]
ACCEPTED = [
    "--gate-init=-3",
    "--gate-init=8",
    "--gate-lr-factor=200",
    "--gate-lr-factor=1",
    "--gate-temperature=0.05",
    "--gate-temperature=0.9",
    "--gate-stretch=-0.05,1.5",
    "--gate-stretch=1",
    "--gate-stretch=0.01",
    "--l0-weight=0",
    "--l0-weight=0.00002",
    "--l0-weight=50",
    "--l0-multiplier-lr=1",
    "--target-heads=8",
    "--target-heads=cross=0",
    "--l0-warmup-updates=1000",
    "--decide-heads-at=60000",
    "--alpha-log-interval=100000",
]


def parsed(tmp_path, *given):
    """What fairseq-train makes of its arguments before it does anything."""
    parser = options.get_training_parser()
    more = [f"--user-dir={USER_DIR}", "--arch=entmax_transformer", "--max-tokens=100"]
    arguments = [str(tmp_path), *more, *SMALL_MODEL, *GATES, f"--save-dir={tmp_path / 'new'}"]
    more = ["--max-update=80000"] if any("target" in one for one in given) else []
    return options.parse_args_and_arch(parser, [*arguments, *more, *given])


@pytest.mark.parametrize("option", REFUSED, ids=lambda option: option[:40])
def test_an_option_out_of_all_bounds_is_refused_before_anything_is_made(
    option, tmp_path, capsys, monkeypatch
):
    as_command(monkeypatch)
    with pytest.raises(SystemExit) as stop:
        parsed(tmp_path, option)
    assert stop.value.code == 2
    said = capsys.readouterr().err.splitlines()[-1]
    name, _, value = option.partition("=")
    assert ": error: " in said
    assert name in said
    assert value[:20].lstrip("0") in said or repr(float(value)) in said
    assert len(said) < 1000
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("option", ACCEPTED)
def test_an_option_that_someone_may_want_is_taken(option, tmp_path):
    name, _, value = option.removeprefix("--").partition("=")
    taken = getattr(parsed(tmp_path, option), name.replace("-", "_"))
    assert taken == (value if isinstance(taken, str) else float(value))
