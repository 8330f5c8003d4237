"""Lets what runs go on when its entry gets a mistake, as a broken file does; pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

import msgspec

from interlock.bus.settings import PolicySettings
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
from interlock.supervisor.config.validate import policy_is_unread
from interlock.supervisor.policy.decision import CAREFUL

_E = TypeVar("_E", ServerEntry, CliEntry, AgentEntry)


def keep_entries(
    previous: Loaded,
    merged: Merged,
    layers: Iterable[LayerFile],
    settings: Settings,
    problems: list[Problem],
    *,
    incomplete: bool = False,
) -> tuple[Settings, list[Problem]]:
    """Return settings in which an entry that has a mistake now is the one that was in force before.

    So does all of a section that is no table now. An entry comes back only if every file that had a
    part in it still is in force: what lost its trust must not go on through a mistake elsewhere.
    The problems of kept entries say so. Of policy, what forbids stays until a mistake is mended,
    and while nobody knows what a file forbids (`incomplete`).
    """
    lost = merged.lost()
    wrong = {problem.entry for problem in problems if problem.severity == "error"}
    files = {layer.file for layer in layers}
    kept: set[str] = set()

    def parts(name: str, key: str, entry: _E) -> set[str]:
        """The files that had a part in an entry, and the one that it was kept from."""
        tables = ((one.file, one.tables.get(name)) for one in previous.layers)
        found = {file for file, table in tables if isinstance(table, dict) and key in table}
        return found | ({entry.origin.file} if entry.origin.file else set())

    def section(name: str, old: dict[str, _E], new: dict[str, _E]) -> dict[str, _E]:
        entries: dict[str, _E] = {}
        names = dict.fromkeys((*merged.sections[name], *(old if name in lost else ())))
        for key in names:
            mistaken = worker_name(name, key) in wrong and key not in new
            if key in old and (mistaken or name in lost) and parts(name, key, old[key]) <= files:
                kept.add(worker_name(name, key))
                entries[key] = old[key]
            elif key in new:
                entries[key] = new[key]
        return entries

    before = previous.settings
    unread = incomplete or "policy" in lost or any(map(policy_is_unread, problems))
    settings = msgspec.structs.replace(
        settings,
        policy=_stricter(before.policy, settings.policy) if unread else settings.policy,
        mcp_servers=section("mcp_servers", before.mcp_servers, settings.mcp_servers),
        cli_tools=section("cli_tools", before.cli_tools, settings.cli_tools),
        agents=section("agents", before.agents, settings.agents),
    )
    # An agent that goes on as before is there, whatever was said before that was known.
    there = settings.supervisor.default_agent in settings.agents
    told = [one for one in problems if one.code != "unknown_agent" or not there]
    return settings, [_told(problem, kept) for problem in told]


def _stricter(old: PolicySettings, new: PolicySettings) -> PolicySettings:
    """Return the new policy with what forbade before."""
    careful = (rule for rule in old.rules if rule.tier in CAREFUL)
    return msgspec.structs.replace(
        new,
        approval=old.approval if new.approval == PolicySettings().approval else new.approval,
        block=tuple(dict.fromkeys((*old.block, *new.block))),
        ask=tuple(dict.fromkeys((*old.ask, *new.ask))),
        rules=tuple(dict.fromkeys((*careful, *new.rules))),
    )


def _told(problem: Problem, kept: set[str]) -> Problem:
    if problem.entry not in kept or problem.severity != "error":
        return problem
    message = f"{problem.message}; until it is mended the entry counts as it was before"
    return msgspec.structs.replace(problem, message=message)
