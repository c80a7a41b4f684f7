"""Hypothesis strategies that several tests draw from."""

import torch
from hypothesis import strategies as st

ENDS_AND_NAMED = (1.0, 1.5, 2.0)


def alphas(smallest=1.0, largest=2.0):
    """Any alpha of the interval; the ends and 1.5, which have their own code, come often."""
    named = [alpha for alpha in ENDS_AND_NAMED if smallest <= alpha <= largest]
    anywhere = st.floats(smallest, largest)
    return st.one_of(st.sampled_from(named), anywhere) if named else anywhere


@st.composite
def score_rows(draw, most_keys=12, largest=50.0, dtype=torch.float64):
    """One row of 1 to ``most_keys`` scores; ties and equal rows are frequent."""
    spread = draw(st.sampled_from((0.125, 1.0, 4.0, largest)))
    number = st.one_of(
        st.floats(-spread, spread, width=32), st.sampled_from((0.0, spread, -spread))
    )
    return torch.tensor(draw(st.lists(number, min_size=1, max_size=most_keys)), dtype=dtype)


@st.composite
def masked_score_rows(draw, most_keys=12, dtype=torch.float64):
    """A row, and a mask (true where the key is masked) that leaves at least one key."""
    row = draw(score_rows(most_keys=most_keys, dtype=dtype))
    count = row.numel()
    mask = torch.tensor(draw(st.lists(st.booleans(), min_size=count, max_size=count)))
    mask[draw(st.integers(0, count - 1))] = False
    return row, mask
