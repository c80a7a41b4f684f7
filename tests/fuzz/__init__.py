"""Files changed at random, and outputs that are there.

What comes of each is success, or a status that is not 0 and one sentence: no traceback, no name of an
exception. What was there is as it was, nothing half written is left, and nothing in the input ran.
``FAIRSEQ_ENTMAX_FUZZ_EXAMPLES=1000 python -m pytest tests/fuzz`` tries 1000 examples of each test, in
some hours; without, each tries a slice, the same one each time.
"""
