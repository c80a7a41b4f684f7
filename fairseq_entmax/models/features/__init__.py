"""The features of models, one per file."""
