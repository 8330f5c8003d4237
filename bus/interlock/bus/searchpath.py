"""In which folders the program of an entry is looked for."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from typing import Final

EXTRA_FOLDERS: Final = (
    "~/.local/bin",
    "~/bin",
    "~/.cargo/bin",
    "~/go/bin",
    "~/.bun/bin",
    "~/.deno/bin",
    "~/.volta/bin",
    "/opt/homebrew/bin",
    "/home/linuxbrew/.linuxbrew/bin",
    "/usr/local/bin",
    "/snap/bin",
)
"""Where programs are that a login shell finds and a desktop's or a service's PATH does not."""

WHOLE_COMMAND: Final = "Write the path alone as `command`, and the words after it as `args`."
"""What to do about a command line in place of a program."""
_SOURCES: Final = {"npx": "Node.js", "node": "Node.js", "uvx": "uv", "docker": "Docker"}


def source_hint(command: str) -> str:
    """Return the sentence that says with what a well-known program comes; "" for others.

    >>> source_hint("uvx"), source_hint("x")
    ('uvx comes with uv. ', '')
    """
    source = _SOURCES.get(command)
    return f"{command} comes with {source}. " if source else ""


def not_there(command: str) -> str:
    """Return what to do about a program that is not found.

    >>> not_there("/opt/x")
    'Put it there, or write where it is as `command`.'
    """
    if "/" in command:
        return "Put it there, or write where it is as `command`."
    return (
        "Install it, or write its full path as `command` (the PATH is that of `interlock up`: "
        "after a change of it, `interlock down` first)."
    )


def set_before(variable: str) -> str:
    """Return the beginning of the sentence about a variable that is not set.

    >>> set_before("X")
    'Set X before `interlock up` (one that runs: `interlock down` first)'
    """
    return f"Set {variable} before `interlock up` (one that runs: `interlock down` first)"


def search_path(environ: Mapping[str, str]) -> list[str]:
    """Return the folders in which an entry's command is looked for, PATH first.

    Folders that are not there or may not be read are passed over.
    """
    home = environ.get("HOME") or os.path.expanduser("~")
    folders = environ.get("PATH", os.defpath).split(os.pathsep)
    folders += [folder.replace("~", home, 1) for folder in EXTRA_FOLDERS]
    folders += _node_folders(os.path.join(home, ".nvm", "versions", "node"))
    # Servers installed together with Interlock, as `interlock[demo]` does.
    folders.append(os.path.dirname(sys.executable))
    return list(dict.fromkeys(folder for folder in folders if folder))


def _node_folders(versions: str) -> list[str]:
    """Return the programs' folders of the versions of Node that nvm has installed, newest first."""
    try:
        found = os.listdir(versions)
    except OSError:
        return []  # no nvm, or a home that is closed to this user, as a service's may be
    found.sort(key=lambda name: [int(part) for part in re.findall(r"[0-9]{1,9}", name)])
    return [os.path.join(versions, name, "bin") for name in reversed(found)]
