"""The report of an analysis: figures after the papers, roles of heads in words, and a page."""
