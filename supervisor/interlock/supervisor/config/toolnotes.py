"""Which tools each server had in the last run, and what was wrong, for `interlock validate`.

One small file in the home. It is kept by the digest of what defines the server, so what it says of
an entry that has changed since is not believed.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import re
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

import msgspec

from interlock.bus.records import DroppedTool
from interlock.bus.regular import regular
from interlock.supervisor.config.diff import RESTART_KEYS
from interlock.supervisor.config.model import (
    CORE_WORKER,
    Problem,
    ServerEntry,
    Settings,
    worker_name,
)

FILE: Final = "tools.json"
"""Name of the file in the home."""
DELAY: Final = 1.0
"""Seconds from news to the file: servers report in bursts."""
MAX_NOTES: Final = 100
"""Tools of one server."""
MAX_TEXT: Final = 500
MAX_NAMES: Final = 64 << 10
"""Characters of all names of one server's tools."""
MAX_FILE: Final = 16 << 20
_PLACE: Final = re.compile(r"(tool|resource|template|prompt) \d+")
"""What stands for the name of something that has none."""


class ServerNotes(msgspec.Struct, frozen=True, kw_only=True):
    """What was wrong with the tools of one server, and the names of all that it has."""

    digest: str
    tools: tuple[DroppedTool, ...]
    names: tuple[str, ...] | None = None
    """Local names; None if there are too many, or an older Interlock wrote it."""


class ToolNotes:
    """Owner of the file while a supervisor runs; a file that cannot be written is left as it is."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._notes = _read(home)
        self._timer: asyncio.TimerHandle | None = None
        self._writing: asyncio.Future[None] | None = None

    def note(
        self,
        worker: str,
        entry: object,
        dropped: Iterable[DroppedTool],
        names: Sequence[str] = (),
    ) -> None:
        """A server has reported its tools, by local name, and of others what is wrong."""
        if not isinstance(entry, ServerEntry):
            return
        few = sum(map(len, names)) <= MAX_NAMES
        tools = tuple(_cut(tool) for _, tool in zip(range(MAX_NOTES), dropped, strict=False))
        notes = ServerNotes(
            digest=entry_digest(entry), tools=tools, names=tuple(names) if few else None
        )
        if self._notes.get(worker) != notes:
            self._notes[worker] = notes
            if self._timer is None:
                self._timer = asyncio.get_running_loop().call_later(DELAY, self._flush)

    def close(self) -> None:
        """Write what has not been written yet."""
        if self._timer is not None:
            self._timer.cancel()
            _write(self._home, msgspec.json.encode(self._notes))

    def _flush(self) -> None:
        self._timer = None
        data = msgspec.json.encode(self._notes)
        loop = asyncio.get_running_loop()
        self._writing = loop.run_in_executor(None, _write, self._home, data)


def entry_digest(entry: ServerEntry) -> str:
    """Return what tells whether an entry still means the same server."""
    keys = [getattr(entry.settings, key) for key in RESTART_KEYS]
    return hashlib.sha256(msgspec.json.encode([entry.folder, keys], order="sorted")).hexdigest()


def tool_problems(home: Path, settings: Settings) -> list[Problem]:
    """Return a warning for every tool that had a fault when its server ran last."""
    notes = _read(home)
    problems = []
    for name, entry in settings.mcp_servers.items():
        worker = worker_name("mcp_servers", name)
        known = notes.get(worker)
        if known is None or known.digest != entry_digest(entry):
            continue
        for tool in known.tools:
            problems.append(
                Problem(
                    file=entry.origin.file,
                    line=entry.origin.line,
                    key=f"mcp_servers.{name}",
                    message=f"when {worker} ran last: {left_out(tool)}",
                    severity="warning",
                    code="tool_schema",
                    fix=f"Report it to the makers of {worker}; all its other tools work.",
                    entry=worker,
                )
            )
    return problems


def served_last(home: Path, settings: Settings) -> dict[str, tuple[str, ...] | None]:
    """Return the local names of what each source served when it ran last; None if nobody knows."""
    notes = _read(home)
    served: dict[str, tuple[str, ...] | None] = {CORE_WORKER: None}
    for name, entry in settings.mcp_servers.items():
        worker = worker_name("mcp_servers", name)
        known = notes.get(worker)
        same = known is not None and known.digest == entry_digest(entry)
        served[worker] = known.names if known is not None and same else None
    for name in settings.cli_tools:
        served[worker_name("cli_tools", name)] = (name,)
    return served


def left_out(tool: DroppedTool) -> str:
    """Return the sentence about a tool that was mended or left out, or about several.

    >>> left_out(DroppedTool(name="tool 8", reason="it has no name"))
    'Tool 8 is left out: it has no name'
    >>> left_out(DroppedTool(name="further prompts", reason="there are too many"))
    'Further prompts are left out: there are too many'
    """
    name = tool.name.replace("resourceTemplates", "resource templates")
    several = name.startswith("further ") or name.endswith(" and further tools")
    if several or _PLACE.fullmatch(name):  # It has no name of its own.
        name = name[0].upper() + name[1:]
    else:
        name = f"The tool {name}"
    what = "was mended" if tool.mended else "are left out" if several else "is left out"
    return f"{name} {what}: {tool.reason}"


def _read(home: Path) -> dict[str, ServerNotes]:
    try:
        with open(home / FILE, "rb", opener=regular) as file:
            return msgspec.json.decode(file.read(MAX_FILE), type=dict[str, ServerNotes])
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return {}


def _write(home: Path, data: bytes) -> None:
    # Only `validate` reads it, and it does without; so a full disk is told of by others.
    with contextlib.suppress(OSError):
        with tempfile.NamedTemporaryFile(dir=home, prefix=".tools-", delete=False) as file:
            try:
                file.write(data)
                file.flush()
                os.replace(file.name, home / FILE)
            except OSError:
                os.unlink(file.name)


def _cut(tool: DroppedTool) -> DroppedTool:
    return msgspec.structs.replace(tool, name=tool.name[:MAX_TEXT], reason=tool.reason[:MAX_TEXT])
