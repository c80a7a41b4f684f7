"""Passes of models over data, and the sums that measures collect in them."""
