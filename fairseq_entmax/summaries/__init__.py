"""Summaries: words outside the vocabulary, and scores of generated text."""
