"""What is looked at: texts and their annotations, in batches.

``REFERENCE`` and ``GENERATED``: whose text attention is measured on, the data's or the model's."""

REFERENCE, GENERATED = "reference", "generated"
