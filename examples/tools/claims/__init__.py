"""Whether the papers' claims hold: verdicts from the record of many trained models.

A claim is a question, a measure, a test and a rule. claims.toml has them all, and the function that
judges each, in correia.py, alpha.py, voita.py, niculae_blondel.py, baan.py, beyond.py or measures.py. record.py
reads the record, statistics.py has intervals and tests, rules.py says how a verdict is reached, table.py
writes them.
"""
