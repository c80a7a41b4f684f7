"""Whether the papers' claims hold: verdicts from the record of many trained models.

record.py reads the record, statistics.py has intervals and tests, verdicts.py the rules of decision;
correia.py, voita.py, attention_papers.py and beyond.py have the claims, and table.py writes them.
"""
