"""The report of an analysis: the papers' figures, roles of heads in words, and a page."""
