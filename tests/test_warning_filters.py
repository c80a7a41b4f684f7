"""Warnings that users cannot act on are hidden, and all others are shown."""

import logging
import os
import re
import subprocess
import warnings

from fairseq_entmax import warning_filters
from tests import commands

OLD = "`torch.cuda.amp.autocast(args...)` is deprecated."
HUSHED = [
    ("fairseq.tasks.fairseq_task", FutureWarning, OLD),
    ("fairseq_cli.train", DeprecationWarning, "invalid escape sequence"),
    ("hydra.experimental.initialize", UserWarning, "hydra.experimental.initialize() is no longer"),
    ("fairseq_cli.hydra_train", UserWarning, "\nThe version_base parameter is not specified."),
    ("sys", UserWarning, "\n'config' is validated against ConfigStore schema with the same name."),
    ("torch.utils.data.dataloader", UserWarning, "'pin_memory' argument is set as true but no"),
    ("torch.nn.functional", UserWarning, "Support for mismatched key_padding_mask and attn_mask"),
    ("torch.jit._script", FutureWarning, "`torch.jit.script` is deprecated. Please switch to"),
]
SHOWN = [
    ("my_models.mine", FutureWarning, OLD),
    ("__main__", UserWarning, "The strict flag in the compose API is deprecated"),
    ("fairseqlike.tasks", FutureWarning, OLD),
    ("fairseq.data.data_utils", UserWarning, "1 samples have invalid sizes and will be skipped"),
    ("torch.nn.functional", UserWarning, "Using a target size that is different"),
]


def shown(module, category, message, *filters):
    """The warnings shown when one is raised, with the user's filters."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.resetwarnings()
        for action in filters:
            warnings.simplefilter(action)
        warning_filters.hush()
        warnings.warn_explicit(message, category, "some.py", 1, module=module)
    return caught


def test_warnings_between_libraries_are_hidden_unless_the_user_wants_them():
    for case in HUSHED:
        assert not shown(*case), case
        assert len(shown(*case, "always")) == 1
    for case in SHOWN:
        assert len(shown(*case)) == 1, case
    with warnings.catch_warnings():
        warning_filters.hush()
        before = len(warnings.filters)
        warning_filters.hush()  # the second call adds nothing
        assert len(warnings.filters) == before


def test_log_lines_below_warnings_are_hidden(caplog):
    warning_filters.hush()
    for name in ("tasks.text_to_speech", "tasks.fairseq_task", "models.fairseq_model"):
        logger = logging.getLogger(f"fairseq.{name}")
        with caplog.at_level(logging.DEBUG):
            logger.info("Please install tensorboardX: pip install tensorboardX")
            logger.warning("Please install tensorboardX: it was asked for")
    assert [record.levelname for record in caplog.records] == ["WARNING"] * 3


def test_training_and_translation_show_no_warnings(data, trained, tmp_path):
    # Stock fairseq's decoder has two types of mask, about which torch warns if sentences are padded
    options = ["--max-update=1", "--disable-validation", "--no-save"]
    stock = commands.train(data, tmp_path, *options, arch="transformer")
    generated = commands.generate(data, trained / "checkpoint_best.pt")
    for output in (
        (trained / "log.txt").read_text(encoding="utf-8"),
        *(result.stdout + result.stderr for result in (stock, generated)),
    ):
        assert output
        assert not re.findall(r"(?m)^.*(?:Warning|DEBUG|hydra|deprecated|Traceback).*$", output)


def test_the_packages_command_prints_only_its_result_in_a_new_process(trained, tmp_path):
    # As if tensorboardX were missing, which fairseq reports when it is imported
    (tmp_path / "tensorboardX.py").write_text("raise ImportError('not installed')\n")
    before = os.environ.get("PYTHONPATH", "")
    result = subprocess.run(
        [commands.COMMANDS / "fairseq-entmax", "alpha", trained / "checkpoint_best.pt"],
        env={**os.environ, "PYTHONPATH": f"{before}{os.pathsep * bool(before)}{tmp_path}"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert result.stdout.startswith("alpha of each head")
    assert result.stderr == ""
