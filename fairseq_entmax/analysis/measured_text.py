"""Whose text the attention is measured on: the data's, or that which the model writes."""

REFERENCE, GENERATED = "reference", "generated"
