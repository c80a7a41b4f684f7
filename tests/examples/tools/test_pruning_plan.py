"""The heads that prune.sh keeps, when they are decided, and the corresponding options."""

import pytest
from messages import UsageError
from pruning_plan import main, options_of

EVERYWHERE = "--head-gates encoder-self,decoder-self,cross --target-heads"


@pytest.mark.parametrize(
    ("text", "options"),
    [
        ("all=72", f"{EVERYWHERE} 72"),
        ("12/-/18", "--head-gates encoder-self,cross --target-heads encoder-self=12,cross=18"),
        ("encoder=4", "--head-gates encoder-self --target-heads encoder-self=4 --freeze-decoder"),
    ],
)
def test_a_budget_becomes_options_for_training(text, options):
    assert " ".join(options_of(text, heads=24)) == options


def test_an_invalid_or_too_large_budget_is_refused_with_the_limits():
    for text in ["all=73", "encoder=25", "24/25/24", "2/3", "-/-/-", "all="]:
        limits = f"got '{text}': give all=N with N up to 72, encoder=N"
        with pytest.raises(UsageError, match=limits):
            options_of(text, heads=24)
    for text in ["all=9", "encoder=2", "1/2/3"]:
        with pytest.raises(UsageError, match=f"got '{text}': give all=N with N up to 8$"):
            options_of(text, 8, ("decoder-self",))


def test_the_shell_reads_the_schedule_followed_by_a_line_per_budget(capsys):
    main(["all=6,1/-/3,", "--updates", "12", "--layers", "3", "--heads", "8"])
    assert capsys.readouterr().out.splitlines() == [
        "--l0-warmup-updates 7 --decide-heads-at 11",
        f"all6\t{EVERYWHERE} 6",
        "1-x-3\t--head-gates encoder-self,cross --target-heads encoder-self=1,cross=3",
    ]
    # Heads are decided near the end, and the penalty rises for two thirds of that time
    main(["all=5", "--updates", "4", "--layers", "2", "--heads", "4", "--attentions", "cross"])
    assert capsys.readouterr().out.splitlines() == [
        "--l0-warmup-updates 2 --decide-heads-at 3",
        "all5\t--head-gates cross --target-heads 5",
    ]
