"""Lets what runs go on when its entry gets a mistake, as a broken file does; pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

import msgspec

from interlock.supervisor.config.merge import Merged
from interlock.supervisor.config.model import (
    AgentEntry,
    CliEntry,
    LayerFile,
    Loaded,
    Problem,
    ServerEntry,
    Settings,
    worker_name,
)

_E = TypeVar("_E", ServerEntry, CliEntry, AgentEntry)


def keep_entries(
    previous: Loaded,
    merged: Merged,
    layers: Iterable[LayerFile],
    settings: Settings,
    problems: list[Problem],
) -> tuple[Settings, list[Problem]]:
    """Return settings in which an entry that has a mistake now is the one that was in force before.

    An entry comes back only if every file that had a part in it still is in force: what lost its
    trust must not go on through a mistake elsewhere. The problems of kept entries say so.
    """
    wrong = {problem.entry for problem in problems if problem.severity == "error"}
    files = {layer.file for layer in layers}
    kept: set[str] = set()

    def section(name: str, old: dict[str, _E], new: dict[str, _E]) -> dict[str, _E]:
        entries: dict[str, _E] = {}
        for key in merged.sections[name]:
            if key in new:
                entries[key] = new[key]
            elif key in old and worker_name(name, key) in wrong:
                parts = {one.file for one in previous.layers if key in one.tables.get(name, {})}
                if parts <= files:
                    kept.add(worker_name(name, key))
                    entries[key] = old[key]
        return entries

    before = previous.settings
    settings = msgspec.structs.replace(
        settings,
        mcp_servers=section("mcp_servers", before.mcp_servers, settings.mcp_servers),
        cli_tools=section("cli_tools", before.cli_tools, settings.cli_tools),
        agents=section("agents", before.agents, settings.agents),
    )
    return settings, [_told(problem, kept) for problem in problems]


def _told(problem: Problem, kept: set[str]) -> Problem:
    if problem.entry not in kept or problem.severity != "error":
        return problem
    message = f"{problem.message}; until it is mended the entry counts as it was before"
    return msgspec.structs.replace(problem, message=message)
