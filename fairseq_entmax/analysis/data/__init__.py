"""The texts that are analysed, with their annotations, in batches.

``REFERENCE`` and ``GENERATED``: attention is measured on the data's text or on the model's."""

REFERENCE, GENERATED = "reference", "generated"
