"""Runs `interlock` as a user does: a process of its own, its own home, folder and configuration."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Any

SERVER = Path(__file__).parent / "small_server.py"
PATIENCE = 60


class Command(subprocess.Popen[str]):
    """A command that does not outlive a test that failed while it ran."""

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if kind is not None:
            self.kill()
        super().__exit__(kind, value, traceback)


class CommandLine:
    """A home and a workspace below a temporary folder, and the command in them."""

    def __init__(self, root: Path) -> None:
        self.home = root / "home"
        self.folder = root / "work"
        self.folder.mkdir(parents=True)
        self.environ = {
            **os.environ,
            "HOME": str(root),
            "XDG_CONFIG_HOME": str(root / "config"),
            "INTERLOCK_HOME": str(self.home),
        }

    def popen(self, *arguments: str, **options: Any) -> Command:
        """Start a command and return its process."""
        return Command(
            [sys.executable, "-m", "interlock.supervisor.cli", *arguments],
            cwd=self.folder,
            env=self.environ,
            **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, **options},
        )

    def shell(self, script: str) -> subprocess.CompletedProcess[str]:
        """Run a line of a shell in which `interlock` is the command."""
        line = f'interlock() {{ "$PYTHON" -m interlock.supervisor.cli "$@"; }}; {script}'
        return subprocess.run(
            ["bash", "-c", line],
            cwd=self.folder,
            env={**self.environ, "PYTHON": sys.executable},
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )

    def run(self, *arguments: str, code: int = 0, stdin: str = "") -> str:
        """Run a command, check its exit code, and return its standard output."""
        return self.both(*arguments, code=code, stdin=stdin)[0]

    def both(self, *arguments: str, code: int = 0, stdin: str = "") -> tuple[str, str]:
        """Run a command, check its exit code, and return standard output and error."""
        with self.popen(*arguments, stdin=subprocess.PIPE) as process:
            out, err = process.communicate(stdin, timeout=PATIENCE)
        assert process.returncode == code, (arguments, process.returncode, out, err)
        assert "Traceback" not in err + out
        return out, err

    def json(self, *arguments: str, code: int = 0) -> Any:
        """Run a command with --json and return its document."""
        return json.loads(self.run(*arguments, "--json", code=code))

    def lines(self, *arguments: str, code: int = 0) -> list[Any]:
        """Run a command with --json and return the document of each line."""
        return [json.loads(line) for line in self.run(*arguments, "--json", code=code).splitlines()]


def server_table(name: str, **keys: Any) -> str:
    """An `[mcp_servers.NAME]` table for the small server."""
    settings = {"command": sys.executable, "args": [str(SERVER)], **keys}
    lines = [f"{key} = {json.dumps(value)}" for key, value in settings.items()]
    return "\n".join([f"[mcp_servers.{name}]", *lines, ""])
