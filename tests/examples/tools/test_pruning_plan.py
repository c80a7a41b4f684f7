"""Which heads prune.sh keeps, when they are decided, and the options that say so."""

import pytest
from messages import UsageError
from pruning_plan import main, parse_budget, parse_budgets, schedule

EVERYWHERE = ("--head-gates", "encoder-self,decoder-self,cross", "--target-heads")


@pytest.mark.parametrize(
    ("updates", "warmup", "decision"),
    [(1030, 648, 978), (30000, 18900, 28500), (4, 2, 3), (12, 7, 11)],
)
def test_heads_are_decided_near_the_end_and_pushed_in_two_thirds_of_that(updates, warmup, decision):
    options = ("--l0-warmup-updates", f"{warmup}", "--decide-heads-at", f"{decision}")
    assert schedule(updates) == options


def test_too_few_updates_are_refused():
    with pytest.raises(UsageError, match="--search-updates got '3': give 4 or more"):
        schedule(3)


@pytest.mark.parametrize(
    ("text", "name", "options"),
    [
        ("all=72", "all72", (*EVERYWHERE, "72")),
        ("2/03/24", "2-03-24", (*EVERYWHERE, "encoder-self=2,decoder-self=03,cross=24")),
        (
            *("12/-/18", "12-x-18"),
            ("--head-gates", "encoder-self,cross", "--target-heads", "encoder-self=12,cross=18"),
        ),
        (
            *("encoder=4", "encoder4"),
            *[("--head-gates", "encoder-self", "--target-heads")],
        ),
    ],
)
def test_a_budget_has_a_name_for_folders_and_options_for_training(text, name, options):
    budget = parse_budget(text, heads=24)
    assert budget.name == name
    assert budget.options[: len(options)] == options


def test_a_budget_of_the_encoder_freezes_the_decoder():
    assert parse_budget("encoder=4", heads=24).options[-2:] == (
        "encoder-self=4",
        "--freeze-decoder",
    )


@pytest.mark.parametrize(
    "text",
    ["all=73", "encoder=25", "24/25/24", "2/3", "-/-/-", "1/-/25", "all=", "all=-1", "all=00001"],
)
def test_a_budget_that_is_none_or_too_large_is_named_with_the_limits(text):
    with pytest.raises(UsageError, match=f"got '{text}': give all=N with N up to 72, encoder=N"):
        parse_budget(text, heads=24)


def test_budgets_stand_between_commas_and_one_may_end_the_list():
    assert [x.text for x in parse_budgets("all=3,2/2/2,", 24, "all=3")] == ["all=3", "2/2/2"]


@pytest.mark.parametrize("text", [",all=3", "all=3,,all=4"])
def test_an_empty_budget_in_a_list_is_refused(text):
    with pytest.raises(UsageError, match="got ''"):
        parse_budgets(text, 24, "all=3")


def test_the_shell_reads_the_schedule_and_then_a_line_a_budget(capsys):
    main(["all=6,1/2/3", "--updates", "12", "--layers", "3", "--heads", "8", "--example", "all=6"])
    assert capsys.readouterr().out.splitlines() == [
        "--l0-warmup-updates 7 --decide-heads-at 11",
        "all6\t--head-gates encoder-self,decoder-self,cross --target-heads 6",
        "1-2-3\t--head-gates encoder-self,decoder-self,cross --target-heads "
        "encoder-self=1,decoder-self=2,cross=3",
    ]


def test_a_model_with_one_attention_has_budgets_of_it_alone(capsys):
    budget = parse_budget("all=5", heads=8, attentions=("decoder-self",))
    assert budget.options == ("--head-gates", "decoder-self", "--target-heads", "5")
    for text in ("all=9", "encoder=2", "1/2/3"):
        with pytest.raises(UsageError, match=f"got '{text}': give all=N with N up to 8$"):
            parse_budget(text, heads=8, attentions=("decoder-self",))
    main(["all=3", "--updates", "40", "--layers", "2", "--heads", "4", "--example", "all=3",
          "--attentions", "decoder-self"])  # fmt: skip
    assert capsys.readouterr().out.splitlines()[1] == (
        "all3\t--head-gates decoder-self --target-heads 3"
    )
