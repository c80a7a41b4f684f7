"""Writes ``analysis.schema.json`` anew, with the fields of the measures that there are."""

from fairseq_entmax.analysis.document.schema import SCHEMA, as_text, schema

SCHEMA.write_text(as_text(schema()) + "\n", encoding="utf-8")
