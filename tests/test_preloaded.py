"""tests/preloaded.py: a forked command does the same as the installed command."""

import subprocess

import pytest

from tests import preloaded
from tests.commands import COMMANDS


@pytest.mark.skipif(
    not preloaded.is_possible(preloaded.server_environment()),
    reason="commands are forked on Linux alone",
)
def test_status_and_last_line_match_the_installed_command(tmp_path):
    name, arguments = "fairseq-train", ["/nowhere", "--arch=transformer", "--cpu", "--max-tokens=9"]
    environment = preloaded.server_environment()
    how = {"capture_output": True, "text": True, "check": False, "cwd": tmp_path}
    direct = subprocess.run([COMMANDS / name, *arguments], env=environment, **how)
    forked = preloaded.run(name, arguments, environment, **how)
    assert forked.returncode == direct.returncode != 0
    assert forked.stderr.splitlines()[-1] == direct.stderr.splitlines()[-1]
    # Logging goes to the same stream
    assert " | INFO | " in direct.stdout + direct.stderr
    for one, other in ((forked.stdout, direct.stdout), (forked.stderr, direct.stderr)):
        assert one.count(" | INFO | ") == other.count(" | INFO | ")
        assert one.count("INFO:") == other.count("INFO:")
