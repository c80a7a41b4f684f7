"""Which heads prune.sh keeps, when they are decided, and the options that say so."""

import pytest
from messages import UsageError
from pruning_plan import ATTENTIONS, main, options_of, schedule

EVERYWHERE = "--head-gates encoder-self,decoder-self,cross --target-heads"


@pytest.mark.parametrize(
    ("updates", "warmup", "decision"),
    [(1030, 648, 978), (30000, 18900, 28500), (4, 2, 3), (12, 7, 11)],
)
def test_heads_are_decided_near_the_end_and_pushed_in_two_thirds_of_that(updates, warmup, decision):
    options = ("--l0-warmup-updates", f"{warmup}", "--decide-heads-at", f"{decision}")
    assert schedule(updates) == options


@pytest.mark.parametrize(
    ("text", "options"),
    [
        ("all=72", f"{EVERYWHERE} 72"),
        ("2/03/24", f"{EVERYWHERE} encoder-self=2,decoder-self=03,cross=24"),
        (
            "12/-/18",
            "--head-gates encoder-self,cross --target-heads encoder-self=12,cross=18",
        ),
        (
            "encoder=4",
            "--head-gates encoder-self --target-heads encoder-self=4 --freeze-decoder",
        ),
    ],
)
def test_a_budget_has_options_for_training(text, options):
    assert " ".join(options_of(text, heads=24)) == options


@pytest.mark.parametrize(
    ("attentions", "heads", "texts", "allowed"),
    [
        (ATTENTIONS, 24, "all=73 encoder=25 24/25/24 2/3 -/-/- all= all=-1", "up to 72, encoder=N"),
        (("decoder-self",), 8, "all=9 encoder=2 1/2/3", "up to 8$"),
    ],
)
def test_a_budget_that_is_none_or_too_large_is_named_with_the_limits(
    attentions, heads, texts, allowed
):
    for text in texts.split():
        with pytest.raises(UsageError, match=f"got '{text}': give all=N with N {allowed}"):
            options_of(text, heads, attentions)


def test_the_shell_reads_the_schedule_and_then_a_line_a_budget(capsys):
    main(["all=6,1/-/3,", "--updates", "12", "--layers", "3", "--heads", "8"])
    assert capsys.readouterr().out.splitlines() == [
        "--l0-warmup-updates 7 --decide-heads-at 11",
        f"all6\t{EVERYWHERE} 6",
        "1-x-3\t--head-gates encoder-self,cross --target-heads encoder-self=1,cross=3",
    ]
    main(["all=5", "--updates", "12", "--layers", "2", "--heads", "4", "--attentions", "cross"])
    assert capsys.readouterr().out.endswith("all5\t--head-gates cross --target-heads 5\n")
