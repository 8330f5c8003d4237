"""The small git repository that the demonstration works on."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Final

from interlock.bus.errors import InterlockError
from interlock.bus.threads import starting_process

_COMMITS: Final = (
    ("Begin with a greeting", "hello.py", 'print("hello")\n'),
    ("Say whom the greeting is for", "hello.py", 'print("hello, world")\n'),
    ("Write down what this is", "README.md", "# hello\n\nGreets the world.\n"),
)
_PATIENCE: Final = 20.0


def make_repository(folder: Path) -> Path:
    """Make a repository with three commits and one uncommitted change; returns its path.

    Raises InterlockError if git is missing or fails.
    """
    repository = folder / "hello"
    repository.mkdir()
    _git(repository, "init", "--quiet", "--initial-branch=main")
    for message, name, text in _COMMITS:
        (repository / name).write_text(text)
        _git(repository, "add", name)
        _git(repository, "commit", "--quiet", "-m", message)
    (repository / "hello.py").write_text('print("hello, everybody")\n')
    return repository


def _git(repository: Path, *arguments: str) -> None:
    # The user's own git configuration (signing, hooks) must not reach this repository.
    environment = os.environ | {
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_AUTHOR_NAME": "Demo",
        "GIT_AUTHOR_EMAIL": "demo@example.com",
        "GIT_COMMITTER_NAME": "Demo",
        "GIT_COMMITTER_EMAIL": "demo@example.com",
    }
    try:
        with starting_process():
            done = subprocess.run(
                ["git", *arguments],
                cwd=repository,
                env=environment,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=_PATIENCE,
                check=False,
            )
    except FileNotFoundError:
        raise InterlockError(
            "The demonstration needs the program git; install it and run `interlock demo` again.",
            code="command_not_found",
        ) from None
    except subprocess.TimeoutExpired:
        raise InterlockError(f"`git {arguments[0]}` did not end within {_PATIENCE:g} s.") from None
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip()
        raise InterlockError(f"`git {arguments[0]}` failed: {said}")
