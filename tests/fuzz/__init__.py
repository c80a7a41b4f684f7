"""Command lines and files changed at random.

What comes of each is success, or a status that is not 0 and one sentence: no traceback, no name of an
exception. What was there is as it was, nothing half written is left, and nothing in the input ran.

``FAIRSEQ_ENTMAX_FUZZ_EXAMPLES`` is how many examples each test tries (default: a slice, in seconds);
the same number gives the same examples each time. With 1000 of each, as before a release::

    FAIRSEQ_ENTMAX_FUZZ_EXAMPLES=1000 python -m pytest tests/fuzz/test_command_lines.py tests/fuzz/test_text_files.py

takes some hours on one core: half a second for each example of what loads a model or draws.
"""
