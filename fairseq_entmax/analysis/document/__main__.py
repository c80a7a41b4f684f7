"""Prints the JSON Schema of ``analysis.json`` with the fields of all registered measures."""

import json

from fairseq_entmax.analysis.document.schema import schema

print(json.dumps(schema(), indent=1, ensure_ascii=False))
