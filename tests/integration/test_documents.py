"""Every command in README, tutorial and how-to guides runs as it stands there."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [
    ROOT / "README.md",
    *sorted((ROOT / "docs/tutorial").glob("*.md")),
    *sorted((ROOT / "docs/how-to").glob("*.md")),
]
BLOCK = re.compile(r"(?:[Ww]rite (?:an? )?`([^`]+)`[^\n]*\n\n)?```(\w+)\n(.*?)```", re.DOTALL)
ELSEWHERE = ("make ", "pipx ")
"""Commands that set up a machine: `make test` is what runs this test, and a wheel is installed
and tried by the packaging test."""


@pytest.mark.timeout(180)
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_commands_of_a_page_run(page: Path, tmp_path: Path) -> None:
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "INTERLOCK_HOME": str(tmp_path / "home"),
        "XDG_CONFIG_HOME": str(tmp_path / "config"),
        "GIT_CONFIG_GLOBAL": "/dev/null",
    }
    folder = tmp_path / "folder"
    folder.mkdir()
    ran = 0
    try:
        for name, language, text in BLOCK.findall(page.read_text()):
            if name:
                (folder / name).write_text(text)
            if language != "sh":
                continue
            for command in text.splitlines():
                if not command or command.startswith(ELSEWHERE):
                    continue
                if command == "interlock demo":
                    continue  # the demo has a test of its own
                done = subprocess.run(
                    ["bash", "-c", command],
                    cwd=folder,
                    env=environment,
                    capture_output=True,
                    text=True,
                    timeout=60,
                    check=False,
                )
                assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
                assert "Traceback" not in done.stderr
                ran += 1
    finally:
        subprocess.run(
            ["interlock", "down"], env=environment, capture_output=True, timeout=60, check=False
        )
    assert ran, "a page without commands needs no test"
