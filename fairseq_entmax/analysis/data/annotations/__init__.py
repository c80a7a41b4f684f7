"""Parses of the source text: made by a tagger, read, and aligned with the model's subwords."""
