"""Knows where configuration files are: the user's, a workspace's, the one of `--config`."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from interlock.supervisor.config.model import Layer

FILE: Final = "interlock.toml"
LOCAL_FILE: Final = "interlock.local.toml"
SHARED_FILE: Final = ".mcp.json"


class Candidate(msgspec.Struct, frozen=True):
    """A file that is read if it exists. `trusted`: it may act without being recorded."""

    path: Path
    layer: Layer
    trusted: bool


def user_file(environ: Mapping[str, str]) -> Path:
    """Return the user's own file, in the place that the platform has for configuration."""
    if sys.platform in ("darwin", "win32"):
        from platformdirs import user_config_path

        return user_config_path("interlock", appauthor=False) / FILE
    base = environ.get("XDG_CONFIG_HOME", "")
    if not base.strip() or not os.path.isabs(base):
        base = os.path.join(environ.get("HOME") or os.path.expanduser("~"), ".config")
    return Path(base) / "interlock" / FILE


def find_workspace(start: Path) -> Path:
    """Return the closest folder, from `start` upwards, that has an interlock.toml.

    Without one: the closest with an interlock.local.toml or .mcp.json, else `start` itself.
    """
    start = Path(os.path.abspath(start))
    for names in ((FILE,), (LOCAL_FILE, SHARED_FILE)):
        for folder in (start, *start.parents):
            if any(os.path.lexists(folder / name) for name in names):
                return folder
    return start


def workspace_files(folder: Path) -> list[Candidate]:
    """Return a workspace's files, weakest first."""
    return [
        Candidate(folder / SHARED_FILE, "mcp.json", False),
        Candidate(folder / FILE, "workspace", False),
        Candidate(folder / LOCAL_FILE, "local", False),
    ]


def candidates(
    workspace: Path | None, explicit: Path | None, environ: Mapping[str, str]
) -> list[Candidate]:
    """Return every file that counts, weakest first, each once.

    What `--config` or the user's own folder names is trusted, even if it stands in the workspace.
    """
    found = [Candidate(user_file(environ), "user", True)]
    if workspace is not None:
        shared, own, local = workspace_files(find_workspace(workspace))
        found = [shared, *found, own, local]
    if explicit is not None:
        found.append(Candidate(Path(os.path.abspath(explicit)), "explicit", True))
    kept: dict[str, Candidate] = {}
    for candidate in found:
        name = os.path.realpath(candidate.path)
        before = kept.get(name)
        if before is not None and before.trusted and not candidate.trusted:
            continue
        kept.pop(name, None)
        kept[name] = candidate
    return list(kept.values())
