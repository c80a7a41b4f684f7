"""Read what fairseq-generate and sacrebleu write, for the tables and files of a recipe.

translations.py generate-test.txt text/test.en > test.hyp    # in the order of the test set
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from messages import one_sentence

from fairseq_entmax.summaries.generated import hypotheses


def lines_of(path: Path) -> list[str]:
    """The lines of a UTF-8 text without their ends, split at "\\n" alone."""
    return path.read_bytes().decode("utf-8", "surrogateescape").split("\n")[:-1]


def score_of(metric: str, scores: Path) -> str:
    """The number in a line such as ``BLEU|nrefs:1|... = 24.50 ...``, or ``accuracy 92.45 % ...``."""
    found = re.search(rf"(?m)^ *{re.escape(metric)}(?:\|.*? =)? (\S+)", scores.read_text("utf-8"))
    if not found:
        raise ValueError(f"no {metric} in {scores}: remove that file and run again")
    return found[1]


def main(arguments: list[str]) -> None:
    with one_sentence():
        generated, references = arguments
        lines = hypotheses(generated, len(lines_of(Path(references))))
        sys.stdout.buffer.write("".join(f"{line}\n" for line in lines).encode())


if __name__ == "__main__":
    main(sys.argv[1:])
