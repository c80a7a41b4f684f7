"""Whether the papers' claims hold: verdicts from the record of many trained models.

A claim has a question, a measure, a test and a rule. claims.toml lists all claims and the functions that
judge them, in correia.py, alpha.py, voita.py, niculae_blondel.py, baan.py, beyond.py, degrees.py or
measures.py. record.py reads the record, statistics.py has intervals and tests, rules.py says how a
verdict is reached, and table.py writes the verdicts.
"""
