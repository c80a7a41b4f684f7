"""A report can be drawn where there is no fairseq."""

import json
import subprocess
import sys

from tests.analysis.report.synthetic import synthetic_analysis

CODE = """
import sys
sys.modules["fairseq"] = None
from fairseq_entmax.cli import main
sys.exit(main(["report", "analysis.json", "--output", "report.html"]))
"""


def test_the_report_needs_the_analysis_alone(tmp_path):
    analysis = synthetic_analysis(models=1, layers=1, heads=2, sentences=1, length=5)
    (tmp_path / "analysis.json").write_text(json.dumps(analysis))
    result = subprocess.run(
        [sys.executable, "-c", CODE], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
    assert (tmp_path / "report.html").stat().st_size > 500_000
