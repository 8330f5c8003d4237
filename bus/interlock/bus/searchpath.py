"""In which folders the program of an entry is looked for."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
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


def search_path(environ: Mapping[str, str]) -> list[str]:
    """Return the folders in which an entry's command is looked for, PATH first."""
    home = environ.get("HOME") or str(Path.home())
    folders = environ.get("PATH", os.defpath).split(os.pathsep)
    folders += [folder.replace("~", home, 1) for folder in EXTRA_FOLDERS]
    versions = Path(home, ".nvm", "versions", "node")
    if versions.is_dir():
        folders += [str(node / "bin") for node in sorted(versions.iterdir(), reverse=True)]
    # Servers installed together with Interlock, as `interlock[demo]` does.
    folders.append(os.path.dirname(sys.executable))
    return list(dict.fromkeys(folder for folder in folders if folder))
