"""Configuration at run time: what is in force, and what a new reading of it changes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import Final, Protocol

import msgspec

from interlock.bus.errors import ConfigError, InterlockError
from interlock.bus.events import ConfigReloaded
from interlock.bus.messages import Apply
from interlock.supervisor.attempts import attempt
from interlock.supervisor.attention import Attention, Row
from interlock.supervisor.config.diff import Diff, diff
from interlock.supervisor.config.mistyped import CODE
from interlock.supervisor.config.model import Loaded, Problem, Settings
from interlock.supervisor.events.sequencer import Sequencer
from interlock.supervisor.fleet.boot import configure_body
from interlock.supervisor.fleet.fleet import DISABLED, Fleet
from interlock.supervisor.fleet.member import Member
from interlock.supervisor.lifecycle import inputs
from interlock.supervisor.lifecycle.states import UP, After, State

Loader = Callable[[Loaded | None], Loaded]
"""Reads all configuration, given what is in force. Reads files, so it is called in a thread."""


_UNREAD: Final = frozenset({"unreadable", "syntax", "encoding", "too_large", "wrong_type"})
"""Codes of what is wrong with a whole file."""


class Sources(Protocol):
    """Who has to know of new settings besides the workers."""

    def settings_changed(self, settings: Settings) -> None:
        """These settings are in force from now on."""


class Configuration:
    """Owns what is in force, and brings the fleet in line with it."""

    def __init__(
        self,
        loader: Loader,
        loaded: Loaded,
        fleet: Fleet,
        attention: Attention,
        sequencer: Sequencer,
        sources: Sources,
    ) -> None:
        self.loaded = loaded
        self._loader = loader
        self._fleet = fleet
        self._attention = attention
        self._sequencer = sequencer
        self._sources = sources
        self._lock = asyncio.Lock()
        self._spawn = loaded.settings.supervisor.spawn
        """What this supervisor was started with."""
        self._closed = False

    def close(self) -> None:
        """From now on nothing is changed any more, not even by a reading that is under way."""
        self._closed = True

    def files(self) -> Iterable[Path]:
        """All files that a change of would matter."""
        return self.loaded.files

    def begin(self) -> None:
        """Take in the first reading; nothing is started yet."""
        for name, entry in self.loaded.settings.workers().items():
            self._fleet.add(name, entry)
        self._sources.settings_changed(self.loaded.settings)
        self._attend(self.loaded.problems)

    async def reload(self) -> bytes:
        """Read everything again, apply the difference, return `{changed, problems}` as JSON.

        Raises ConfigError, code `config`, when a named file cannot be read, and InterlockError,
        code `stopping`, after `close`; all stays as it is.
        """
        async with self._lock:
            try:
                loaded = await asyncio.to_thread(self._loader, self.loaded)
            except ConfigError as error:
                row = Row(
                    name="configuration",
                    code="unreadable",
                    message=error.message,
                    fix="Mend the file; what was in force goes on.",
                    subject="--config",
                )
                self._attention.set(row)
                raise
            if self._closed:
                raise InterlockError("The supervisor is stopping.", code="stopping")
            change = diff(self.loaded.settings, loaded.settings)
            told = loaded.problems != self.loaded.problems
            self.loaded = loaded
            self._attend(loaded.problems)
            if not change.empty:
                self._apply(change, loaded.settings)
            if told or not change.empty:
                self._announce(change, loaded.problems)
        return msgspec.json.encode(
            {
                "changed": {
                    "added": change.added,
                    "removed": change.removed,
                    "enabled": change.enabled,
                    "disabled": change.disabled,
                    "restarted": change.restart,
                    "applied": change.apply,
                },
                "problems": loaded.problems,
            }
        )

    def _announce(self, change: Diff, problems: tuple[Problem, ...]) -> None:
        self._sequencer.publish(
            ConfigReloaded(
                added=change.added + change.enabled,
                removed=change.removed + change.disabled,
                restarted=change.restart,
                applied=change.apply,
                problems=len(problems),
            )
        )

    def _apply(self, change: Diff, settings: Settings) -> None:
        fleet, now = self._fleet, time.monotonic()
        self._tell_restart(settings)
        fleet.settings = settings
        entries = settings.workers()
        for name, entry in entries.items():
            fleet.add(name, entry)
        fleet.arrange(entries)
        attempt(self._sources.settings_changed, settings)
        for name in change.removed:
            fleet.feed(name, inputs.Remove(now=now))
        for name in change.disabled:
            fleet.feed(name, inputs.Stop(now=now, reason=DISABLED))
        for name in change.added + change.enabled:
            if entries[name].settings.enabled:
                fleet.feed(name, inputs.Start(now=now))
            else:  # perhaps its process, which was removed before, still ends
                fleet.feed(name, inputs.Stop(now=now, reason=DISABLED, configured=True))
        for name in change.restart:
            if _wanted(fleet.members[name]):
                reason = "its configuration changed"
                fleet.feed(name, inputs.Restart(now=now, reason=reason, changed=True))
        for name in change.apply:
            attempt(self._apply_live, fleet.members[name], now)
        if change.supervisor:
            for name in change.unchanged:
                attempt(self._send_settings, fleet.members[name])

    def _tell_restart(self, settings: Settings) -> None:
        """Keep the row true that says what only a new supervisor takes over."""
        if settings.supervisor.spawn == self._spawn:
            self._attention.clear("supervisor", "needs_restart")
            return
        self._attention.set(
            Row(
                name="supervisor",
                code="needs_restart",
                message="The new value of `spawn` is not in force yet.",
                fix="interlock down; interlock up",
            )
        )

    def _apply_live(self, member: Member, now: float) -> None:
        if member.worker.state is State.FAILED:  # perhaps this is what it failed for
            self._fleet.feed(member.worker.name, inputs.Start(now=now))
        else:
            self._send_settings(member)

    def _send_settings(self, member: Member) -> None:
        worker = member.worker
        if worker.state in UP:
            body = configure_body(self._fleet.home, worker.name, member.entry, self._fleet.timing)
            self._fleet.send(worker.name, worker.generation, Apply(), body)

    def _attend(self, problems: tuple[Problem, ...]) -> None:
        kept = {layer.file for layer in self.loaded.layers}
        rows = [
            Row(
                name=problem.entry or "configuration",
                code=problem.code,
                message=str(problem),
                fix=problem.fix or _todo(problem, kept),
                file=problem.file,
                line=problem.line,
                subject=f"{problem.file}:{problem.line}:{problem.column}:{problem.key}",
            )
            for problem in problems
        ]
        self._attention.replace(
            rows, lambda row: row.code == CODE or not (row.file or row.name == "configuration")
        )


def _todo(problem: Problem, kept: Collection[str]) -> str:
    """What to do about a whole file that cannot be read, and what counts meanwhile."""
    if problem.code not in _UNREAD or problem.key or problem.severity != "error":
        return ""
    now = "what it said before goes on" if problem.file in kept else "it is left out"
    return f"Mend the file, it is read again at once; until then {now}."


def _wanted(member: Member) -> bool:
    worker = member.worker
    stopping_for_good = worker.state is State.STOPPING and worker.after is After.STAY
    return worker.state is not State.STOPPED and not stopping_for_good
