"""Files with random changes, and outputs that exist already.

Each command succeeds, or ends with a nonzero status and a one-line error without a traceback or an
exception's name. Existing files stay unchanged, nothing unfinished is left, and no input runs.

With ``FAIRSEQ_ENTMAX_FUZZ_EXAMPLES=1000``, each test tries 1000 examples, which takes hours in all;
without it, a small number, the same in every run.
"""
