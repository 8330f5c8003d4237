"""Ctrl-C at any moment of a command: code 130, and never a traceback."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from command_line import CommandLine

PROGRAM = """
import os, signal, sys
from interlock.supervisor.cli import main

left = int(sys.argv.pop(1))

def count(event, arguments):
    global left
    left -= 1
    if not left:
        os.write(2, b"now\\n")
        os.kill(os.getpid(), signal.SIGINT)

sys.addaudithook(count)
main()
"""
"""Interrupts itself at the given of the moments that Python audits: imports, files, processes."""


def interrupted(cli: CommandLine, moment: int, *arguments: str) -> bool:
    """Run a command that is interrupted at a moment; False if it ended before."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(moment), *arguments],
        cwd=cli.folder,
        env=cli.environ,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    if "now\n" not in done.stderr:
        return False
    assert done.returncode == 130, (moment, done)
    assert done.stderr.replace("now\n", "").strip() == "", (moment, done)
    return True


@pytest.mark.parametrize(
    "arguments",
    [("status",), ("--help",), ("validate", "c.toml"), ("up", "--detach", "--config", "none")],
)
def test_ctrl_c_while_a_command_loads_and_runs(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    cli = CommandLine(tmp_path)
    (cli.folder / "c.toml").write_text('[mcp_servers.x]\ncommand = "x"\n')
    moments = [1, 2, 5, 20, 60, 120, 200, 290, 380]
    hit = [moment for moment in moments if interrupted(cli, moment, *arguments)]
    assert len(hit) > 6, hit


def test_ctrl_c_while_a_class_is_made(tmp_path: Path) -> None:
    """Python makes a RuntimeError of an interrupt there; it is an interrupt all the same."""
    cli = CommandLine(tmp_path)
    program = (
        "import os, signal\n"
        "from interlock.supervisor.cli import app, main\n"
        "class Field:\n"
        "    def __set_name__(self, owner, name):\n"
        "        os.kill(os.getpid(), signal.SIGINT)\n"
        "def use(*arguments):\n"
        "    class Owner:\n"
        "        field = Field()\n"
        "app.LazyGroup.invoke = lambda self, context: (app.interruptible(), use())\n"
        "main(['status'])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], env=cli.environ, capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stdout, done.stderr.strip()) == (130, "", "")


def test_ctrl_c_at_a_question_changes_nothing(tmp_path: Path) -> None:
    cli = CommandLine(tmp_path)
    (cli.folder / "interlock.toml").write_text('[mcp_servers.x]\ncommand = "x"\n')
    with cli.popen("trust", stdin=subprocess.PIPE) as process:
        assert process.stderr is not None
        while process.stderr.read(1) != "?":
            pass
        os.kill(process.pid, signal.SIGINT)
        assert process.wait(30) == 130
        assert "Traceback" not in process.stderr.read()
    assert cli.json("trust", "--list") == {"trusted": []}
