"""The options of the penalty: which are refused, and the defaults of those that are not given."""

import math

import pytest

from fairseq_entmax.criterions.penalty_options import HeadL0Options, read_penalty

BUDGET = {"target_heads": "24", "max_update": 100}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"l0_weight": -0.1}, "--l0-weight must be from 0 to 1000, not -0.1"),
        ({"l0_weight": math.nan}, "--l0-weight must be from 0 to 1000, not nan"),
        ({"l0_multiplier_lr": 0}, "--l0-multiplier-lr must be from 1e-06 to 10, not 0"),
        ({"l0_warmup_updates": -2}, "--l0-warmup-updates must be from -1 to .*, not -2"),
        ({"decide_heads_at": 10**10}, "--decide-heads-at must be from -1 to .*, not 10000000000"),
        ({"l0_weight": 0.1, "target_heads": "24"}, r"0.1 and --target-heads 24 were both given: "),
        ({"target_heads": "24"}, "--target-heads 24 needs .*--decide-heads-at UPDATE, or --max-up"),
        ({**BUDGET, "decide_heads_at": 100}, "--decide-heads-at 100 is not before --max-update 10"),
        ({**BUDGET, "l0_warmup_updates": 80}, "--l0-warmup-updates 80 is after --decide-heads-at"),
        *(
            ({"target_heads": text}, f"--target-heads got '{part}' in .*such as encoder-self=10")
            for text, part in (
                *(("many", "many"), ("-1", "-1"), ("10,12", "10"), ("all=3", "all=3")),
                *(("cross=x", "cross=x"), ("cross=3,cross=4", "cross=4"), ("cross=3,12", "12")),
                *(("٣", "٣"), ("9" * 90, "9" * 90)),
            )
        ),
    ],
)
def test_wrong_options_are_named_with_their_values_and_a_remedy(options, message):
    with pytest.raises(ValueError, match=message):
        read_penalty(HeadL0Options(**{"max_update": 0, **options}))


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        # with a weight: neither warm-up nor decision by default
        ({"max_update": 100}, (0.0, None, 0, None)),
        ({"l0_weight": 0.1, "max_update": 100}, (0.1, None, 0, None)),
        ({"l0_weight": 0.1, "l0_warmup_updates": 30}, (0.1, None, 30, None)),
        ({"l0_weight": 0.1, "decide_heads_at": 70}, (0.1, None, 0, 70)),
        # with a budget: decided at 3/4 of training, reached at 2/3 of that
        ({**BUDGET, "l0_multiplier_lr": 0.3}, (0.0, {"all": 24}, 50, 75)),
        ({"target_heads": 24, "decide_heads_at": 60}, (0.0, {"all": 24}, 40, 60)),
        (
            {"target_heads": " cross = 3 , decoder-self = 0 ", "decide_heads_at": 50},
            (0.0, {"cross": 3, "decoder-self": 0}, 33, 50),
        ),
        (
            {"target_heads": " 0 ", "decide_heads_at": 50, "l0_warmup_updates": 50},
            (0.0, {"all": 0}, 50, 50),
        ),
    ],
)
def test_missing_options_are_derived_from_the_given_ones(options, expected):
    penalty = read_penalty(HeadL0Options(**{"max_update": 0, **options}))
    found = (penalty.weight, penalty.targets, penalty.warmup_updates, penalty.decide_at)
    assert found == expected
    assert penalty.multiplier_lr == options.get("l0_multiplier_lr", 0.02)
