"""Parses of the source, and what heads do with them."""
