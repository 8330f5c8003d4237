"""What configuration is once it has been read: settings with their origin, and problems."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final, Literal

import msgspec

from interlock.bus.names import WorkerName
from interlock.bus.settings import (
    AgentSettings,
    CliToolSettings,
    CoreSettings,
    McpServerSettings,
    PolicySettings,
    SupervisorSettings,
)

Layer = Literal["built-in", "mcp.json", "user", "workspace", "local", "explicit"]
Severity = Literal["error", "warning"]


class Origin(msgspec.Struct, frozen=True, kw_only=True):
    """Where an entry comes from: the last layer that says anything about it.

    `file` is empty and `line` 0 for what is built in.
    """

    layer: Layer = "built-in"
    file: str = ""
    line: int = 0


class ServerEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One MCP server. `folder` is absolute: the base of relative paths in `settings`."""

    settings: McpServerSettings
    folder: str
    origin: Origin = Origin()


class AgentEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One agent."""

    settings: AgentSettings
    origin: Origin = Origin()


class CliEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One command-line tool. `folder` is absolute: the base of relative paths in `settings`."""

    settings: CliToolSettings
    folder: str
    origin: Origin = Origin()


class CoreEntry(msgspec.Struct, frozen=True, kw_only=True):
    """The worker of Interlock's own tools; it is in no file."""

    settings: CoreSettings = CoreSettings()
    origin: Origin = Origin()


Entry = ServerEntry | AgentEntry | CliEntry | CoreEntry
CORE_WORKER: Final = "core:basics"
"""Name of the worker that serves all `core:` capabilities."""
KINDS: Final = {"mcp_servers": "mcp", "cli_tools": "cli", "agents": "agent"}
"""Kind of the workers that the entries of each section are."""


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that is in force; disabled entries are present.

    An entry with an error is absent, or the one that was in force before.
    """

    supervisor: SupervisorSettings = SupervisorSettings()
    policy: PolicySettings = PolicySettings()
    mcp_servers: dict[str, ServerEntry] = {}
    cli_tools: dict[str, CliEntry] = {}
    agents: dict[str, AgentEntry] = {}
    core: CoreEntry | None = None
    """None only where nothing was read."""

    def workers(self) -> dict[str, Entry]:
        """Return all entries by worker name (`mcp:git`), agents first, each kind in file order."""
        named: dict[str, Entry] = {}
        for name, agent in self.agents.items():
            named[worker_name("agents", name)] = agent
        for name, server in self.mcp_servers.items():
            named[worker_name("mcp_servers", name)] = server
        for name, tool in self.cli_tools.items():
            named[worker_name("cli_tools", name)] = tool
        if self.core is not None:
            named[CORE_WORKER] = self.core
        return named


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """Something in a file that a person should know about.

    `message` is one plain sentence without the place; `line` and `column` count from 1, 0 =
    unknown. `entry` is the worker whose entry has it, empty if none; after an error it
    does not run, or as its entry was before. Codes:
    unreadable, encoding, syntax, too_large, wrong_type, wrong_value, missing_key, unknown_key,
    unread_key, unknown_agent, matches_nothing, duplicate_key, comments, shadowed, not_configured,
    untrusted, changed, gone, nearer, trust_file.
    """

    file: str
    line: int = 0
    column: int = 0
    key: str = ""
    message: str
    severity: Severity = "error"
    code: str
    fix: str = ""
    entry: str = ""

    def place(self) -> str:
        """Return `file:line:column`, as far as it is known."""
        parts = [self.file]
        if self.line:
            parts.append(str(self.line))
            if self.column:
                parts.append(str(self.column))
        return ":".join(parts)

    def __str__(self) -> str:
        """Return place and message on one line."""
        place = self.place()
        return f"{place}: {self.message}" if place else self.message


class Written(msgspec.Struct, frozen=True, kw_only=True):
    """A pattern of capabilities, or the name of a tool of one source, as somebody wrote it."""

    text: str
    source: str = ""
    """The worker that must have a tool of that name; empty for a pattern."""
    forbids: bool = True
    """Whether it matches every spelling, as what forbids does."""
    key: str
    file: str
    line: int = 0


class LayerFile(msgspec.Struct, frozen=True, kw_only=True):
    """The last good content of one file, kept so that a broken save changes nothing."""

    layer: Layer
    file: str
    digest: str
    """SHA-256 of the bytes, hex; what trust is recorded for."""
    key: str = ""
    """Its name in the record of trust; empty for what needs no trust."""
    tables: dict[str, Any]
    lines: dict[tuple[str, ...], int] = {}
    """Line of each key path, as far as known."""


class Loaded(msgspec.Struct, frozen=True, kw_only=True):
    """Result of one reading. `files` are all that a change of matters, also those that do not
    exist."""

    settings: Settings
    problems: tuple[Problem, ...] = ()
    files: tuple[Path, ...] = ()
    layers: tuple[LayerFile, ...] = ()
    """What is in force, weakest first; the next reading falls back on it file by file."""
    trusted: dict[str, str] = {}
    """The record of trust that was read: it counts on if it is damaged or gone later."""
    written: tuple[Written, ...] = ()
    """The names and patterns of capabilities in it."""


def worker_name(section: str, name: str) -> str:
    """Return the name of the worker of an entry of `section`: `mcp:git`, `agent:main`.

    Raises UsageError for an empty name and for one that has no written form.
    """
    return str(WorkerName(KINDS[section], name))
