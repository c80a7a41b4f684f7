"""The programs of examples/tools are no package: they find each other as Python's scripts do."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[2] / "examples" / "tools"))
