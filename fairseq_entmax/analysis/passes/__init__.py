"""Passes of models over data, and what measures add up in them."""
