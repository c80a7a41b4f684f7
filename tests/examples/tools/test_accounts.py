"""examples/tools/accounts.py: what a command took."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

from accounts import account
from jobs import spent

TOOLS = Path(__file__).resolve().parents[3] / "examples" / "tools"


def test_the_seconds_of_a_command_that_made_something_are_kept(tmp_path: Path) -> None:
    product, folder = tmp_path / "product", tmp_path / "folder"
    busy = "import time\nwhile time.process_time() < 0.2: pass"
    command = ["bash", "-c", f'"{sys.executable}" -c "{busy}"; touch {product}']
    assert account(folder, product, command) == 0
    assert spent(folder, "seconds") >= 0.2
    assert spent(folder) >= 0.2


def test_one_that_found_everything_done_took_nothing(tmp_path: Path) -> None:
    product = tmp_path / "product"
    product.touch()
    assert account(tmp_path / "folder", product, ["sleep", "0.2"], sample=0.05) == 0
    assert list((tmp_path / "folder").glob("*")) == []


def test_its_failure_is_that_of_the_command_and_its_time_is_kept(tmp_path: Path) -> None:
    script = [sys.executable, str(TOOLS / "accounts.py"), str(tmp_path / "folder"), "none", "--"]
    assert subprocess.run([*script, "bash", "-c", "exit 3"], check=False).returncode == 3
    assert len(list((tmp_path / "folder").iterdir())) == 1


def test_what_a_killed_command_took_is_kept(tmp_path: Path) -> None:
    code = f"import sys; sys.path.insert(0, {str(TOOLS)!r}); from accounts import account; from pathlib import Path; account(Path({str(tmp_path / 'folder')!r}), Path('none'), ['sleep', '2'], sample=0.1)"
    process = subprocess.Popen([sys.executable, "-c", code])
    deadline = time.monotonic() + 30
    while not list((tmp_path / "folder").glob("*.json")):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    process.kill()
    process.wait()
    [path] = (tmp_path / "folder").glob("*.json")
    assert json.loads(path.read_text())["seconds"] > 0
