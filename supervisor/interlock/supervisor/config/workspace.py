"""Knows where configuration files are: the user's, a workspace's, the one of `--config`."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

import msgspec

from interlock.supervisor.config.model import Layer
from interlock.supervisor.config.trust import trust_key

FILE: Final = "interlock.toml"
LOCAL_FILE: Final = "interlock.local.toml"
SHARED_FILE: Final = ".mcp.json"

Recorded = Callable[[Path], bool]
"""Whether a person trusted the file of a workspace in that place, whatever it holds now."""


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


def find_workspace(start: Path, recorded: Recorded = lambda path: False) -> Path:
    """Return the closest folder, from `start` upwards, that has an interlock.toml.

    Without one: the closest with an interlock.local.toml or .mcp.json, else `start` itself. Files
    that a person trusted go before all others, even if they are gone: a file that appears nearer,
    or whose end somebody brings about, must not take away what a trusted one forbids.
    """
    start = Path(os.path.abspath(start))
    for counts in (recorded, os.path.lexists):
        for names in ((FILE,), (LOCAL_FILE, SHARED_FILE)):
            for folder in (start, *start.parents):
                if any(counts(folder / name) for name in names):
                    return folder
    return start


def workspace_files(folder: Path) -> list[Candidate]:
    """Return a workspace's files, weakest first."""
    return [
        Candidate(folder / SHARED_FILE, "mcp.json", False),
        Candidate(folder / FILE, "workspace", False),
        Candidate(folder / LOCAL_FILE, "local", False),
    ]


class Places(msgspec.Struct, frozen=True, kw_only=True):
    """The files that matter: `counting`, weakest first, each once.

    Those in `aside` would count in place of the workspace's, which are in `folder`, if they were
    trusted; they may not exist.
    """

    counting: tuple[Candidate, ...]
    aside: tuple[Path, ...] = ()
    folder: Path = Path()


def places(
    workspace: Path | None,
    explicit: Path | None,
    environ: Mapping[str, str],
    recorded: Recorded = lambda path: False,
) -> Places:
    """Return every file that matters from the folder `workspace` on upwards.

    What `--config` or the user's own folder names is trusted, even if it stands in the workspace.
    `recorded` tells whether a person trusted a file of a workspace.
    """
    own = Candidate(user_file(environ), "user", True)
    found, folder, aside = [own], Path(), tuple[Path, ...]()

    def chosen(path: Path) -> bool:
        named = explicit is not None and trust_key(path) == trust_key(explicit)
        return named or recorded(path)

    if workspace is not None:
        folder = find_workspace(workspace, chosen)
        shared, *others = workspace_files(folder)
        found = [shared, own, *others]
        has_own = chosen(folder / FILE) or os.path.lexists(folder / FILE)
        names = (FILE,) if has_own else (FILE, LOCAL_FILE, SHARED_FILE)
        aside = tuple(_nearer(Path(os.path.abspath(workspace)), folder, names))
    if explicit is not None:
        named = Candidate(Path(os.path.abspath(explicit)), "explicit", True)
        found = [one for one in found if not (one.trusted and _same(one.path, named.path))]
        found.append(named)
    mine = [one.path for one in found if one.trusted]
    counting = tuple(one for one in found if one.trusted or not _twice(one.path, mine, recorded))
    aside = tuple(path for path in aside if not any(_same(path, one) for one in mine))
    return Places(counting=counting, aside=aside, folder=folder)


def _nearer(start: Path, folder: Path, names: Iterable[str]) -> Iterator[Path]:
    for near in (start, *start.parents):
        if near == folder:
            return
        with contextlib.suppress(UnicodeEncodeError):
            str(near).encode()  # no message can carry others
            yield from (near / name for name in names)


def _twice(path: Path, trusted: Iterable[Path], recorded: Recorded) -> bool:
    """Whether a workspace's file is read as a trusted one already.

    Of one that a person trusted its own place decides, not what it links to: a link in its place
    must not make it disappear.
    """
    if recorded(path):
        return any(trust_key(path) == trust_key(one) for one in trusted)
    return any(_same(path, one) for one in trusted)


def _same(one: Path, other: Path) -> bool:
    return os.path.realpath(one) == os.path.realpath(other)
