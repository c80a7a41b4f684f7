"""Rewrites ``analysis.schema.json`` with the fields of all registered measures."""

from fairseq_entmax.analysis.document.schema import SCHEMA, as_text, schema

SCHEMA.write_text(as_text(schema()) + "\n", encoding="utf-8")
