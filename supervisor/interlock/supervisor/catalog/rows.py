"""The catalog: reports of all workers merged to rows in a fixed order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import msgspec

from interlock.bus.errors import UsageError
from interlock.bus.names import CapabilityName, WorkerName, capability_of, wire_name
from interlock.bus.records import CapabilityReport, Tier
from interlock.bus.settings import ToolSettings, UsageCard
from interlock.supervisor.policy.decision import TIERS

SUMMARY: Final = 140
"""Characters of a summary."""
MAX_TOOLS: Final = 1_000
"""Tools of one source in the catalog."""
MAX_NAMES: Final = 128 << 10
"""Bytes of all names of one source's tools; with it a ticket for all of them stays in bounds."""
MAX_NAME: Final = 256
"""Bytes of one tool's name."""
DIGEST: Final = 64
"""Characters of a digest; a report with another one has no document."""
USABLE: Final = "READY"
CURRENT: Final = (USABLE, "DEGRADED", "INITIALIZING")
"""States of a process that has reported what it serves, or is about to."""
_STATE_REASONS: Final = {
    "STOPPED": "stopped",
    "STARTING": "starting",
    "INITIALIZING": "starting",
    "BACKOFF": "restarting",
    "STOPPING": "stopping",
    "FAILED": "failed",
    "DEGRADED": "not usable",
}


_SPOKEN: Final = frozenset({"STARTING", "INITIALIZING", "BACKOFF", "FAILED"})
"""States that a reason, which tells of the attempt before, does not show."""


class SourceSettings(Protocol):
    """What the catalog needs of a source's entry, whatever its kind."""

    @property
    def enabled(self) -> bool:
        """Whether its worker is to run."""

    @property
    def tier(self) -> Tier:
        """For capabilities that `tools` says nothing about."""

    @property
    def tools(self) -> Mapping[str, ToolSettings]:
        """Settings of single capabilities, by local name."""

    @property
    def disabled_tools(self) -> Sequence[str]:
        """Local names of capabilities that nobody may use."""

    @property
    def description(self) -> str:
        """What it is for, in the user's words."""

    @property
    def usage_card(self) -> UsageCard:
        """Words and phrases that point to it."""

    @property
    def call_timeout(self) -> float:
        """Seconds without progress."""

    @property
    def call_timeout_max(self) -> float:
        """Seconds in all."""


class CatalogRow(msgspec.Struct, frozen=True, kw_only=True):
    """One capability; the first eight fields are what `interlock tools --json` shows."""

    name: str
    wire: str
    kind: str
    source: str
    tier: Tier
    connected: bool
    reason: str
    summary: str
    local: str
    digest: str = ""
    timeout: float = 60.0
    timeout_max: float = 600.0
    idempotent: bool = False
    disabled: bool = False
    """Listed in the entry's `disabled_tools`."""

    @property
    def capability(self) -> CapabilityName:
        """The name in its parts."""
        return CapabilityName.parse(self.name)


class Delta(msgspec.Struct, frozen=True, kw_only=True):
    """Capabilities that came, went, or changed between usable and not; in catalog order.

    One comes when it is usable for the first time, and goes when its row does.
    """

    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        """Whether anything changed."""
        return bool(self.added or self.removed or self.changed)


class SourceView(msgspec.Struct, frozen=True, kw_only=True):
    """How one source is, for those who explain why it is not offered."""

    name: str
    connected: bool
    reason: str
    tools: int
    state: str = ""
    """Its lifecycle state."""
    enabled: bool = True
    over: int = 0
    """Tools left out because the source has too many or their names are of no use."""


@dataclass(slots=True)
class _Source:
    settings: SourceSettings
    state: str = "STOPPED"
    reason: str = ""
    reports: tuple[CapabilityReport, ...] = ()
    over: int = 0
    rows: tuple[CatalogRow, ...] = ()
    known: frozenset[str] = frozenset()
    """Names of rows that were usable once and have not gone since."""
    stale: bool = False
    """It is down, and what its rows say is from before."""

    @property
    def connected(self) -> bool:
        return self.state == USABLE

    @property
    def why(self) -> str:
        if self.connected:
            return ""
        if not self.settings.enabled:
            return "disabled in the configuration"
        state = _STATE_REASONS.get(self.state, "")
        if self.reason and self.state in _SPOKEN:
            return f"{state}, {self.reason}"
        return self.reason or state


class Catalog:
    """What every source reported and how it is; one owner, no clock, no I/O.

    Sources stand in the order of their names, the rows of a source in the order of theirs, so the
    same state gives the same lists. A source that is down keeps its rows, not connected, until
    `expire`.
    """

    def __init__(self) -> None:
        self._sources: dict[str, _Source] = {}
        self._merged: tuple[CatalogRow, ...] | None = None

    def configure(self, worker: str, settings: SourceSettings) -> Delta:
        """Add a source or apply its new settings."""
        source = self._sources.setdefault(worker, _Source(settings))
        source.settings = settings
        return self._rebuild(worker, source)

    def remove(self, worker: str) -> Delta:
        """The source left the configuration."""
        source = self._sources.pop(worker, None)
        self._merged = None
        return Delta() if source is None else _announce(source, ())

    def report(self, worker: str, reports: Sequence[CapabilityReport]) -> Delta:
        """Replace what the source serves; nothing happens for a source not configured."""
        source = self._sources.get(worker)
        if source is None:
            return Delta()
        source.reports, source.over = _admit(WorkerName.parse(worker), reports)
        source.stale = False
        return self._rebuild(worker, source)

    def set_state(self, worker: str, state: str, reason: str) -> Delta:
        """The lifecycle state of the source changed; only READY is usable."""
        source = self._sources.get(worker)
        if source is None:
            return Delta()
        source.stale = source.stale or state not in CURRENT
        source.state, source.reason = state, reason
        rows = tuple(
            msgspec.structs.replace(row, connected=source.connected, reason=source.why)
            for row in source.rows
        )
        return self._replace(source, rows)

    def stale(self, worker: str) -> bool:
        """Whether the source is down and its rows are from before that."""
        source = self._sources.get(worker)
        return source is not None and source.stale and bool(source.rows)

    def expire(self, worker: str) -> Delta:
        """The source was down for too long: its rows go, unless it reported again since."""
        source = self._sources.get(worker)
        if source is None or not source.stale:
            return Delta()
        source.reports, source.over = (), 0
        return self._replace(source, ())

    def _rebuild(self, worker: str, source: _Source) -> Delta:
        return self._replace(source, _rows(worker, source))

    def _replace(self, source: _Source, rows: tuple[CatalogRow, ...]) -> Delta:
        self._merged = None
        return _announce(source, rows)

    def rows(self) -> tuple[CatalogRow, ...]:
        """All rows in order."""
        if self._merged is None:
            self._merged = tuple(
                row for name in sorted(self._sources) for row in self._sources[name].rows
            )
        return self._merged

    def rows_of(self, worker: str) -> tuple[CatalogRow, ...]:
        """The rows of one source in order."""
        source = self._sources.get(worker)
        return source.rows if source is not None else ()

    def sources(self) -> Mapping[str, SourceView]:
        """All sources by name, in order."""
        return {
            name: SourceView(
                name=name,
                connected=source.connected,
                reason=source.why,
                tools=len(source.rows),
                state=source.state,
                enabled=source.settings.enabled,
                over=source.over,
            )
            for name, source in sorted(self._sources.items())
        }


def tier_of(report: CapabilityReport, settings: SourceSettings) -> Tier:
    """The tier of a tool: what its own entry says, else the server's, raised by annotations.

    To let a tool run that its server calls destructive, list it under `allow`.

    >>> from interlock.bus.settings import McpServerSettings
    >>> tier_of(CapabilityReport(name="rm", digest="", destructive=True), McpServerSettings())
    'ask'
    """
    own = settings.tools.get(report.name)
    tier: Tier = settings.tier if own is None or own.tier is None else own.tier
    if report.destructive and not report.read_only:
        tier = _higher(tier, "ask")
    if report.open_world:
        tier = _higher(tier, "monitor")
    return tier


def _higher(one: Tier, other: Tier) -> Tier:
    return max(one, other, key=TIERS.index)


def _admit(
    worker: WorkerName, reports: Sequence[CapabilityReport]
) -> tuple[tuple[CapabilityReport, ...], int]:
    """The reports that get a row: names that can be written, each once, within the bounds."""
    kept: dict[str, CapabilityReport] = {}
    wires: set[str] = set()
    size = 0
    for report in reports:
        length = len(report.name.encode("utf-8", "replace"))
        if not report.name or report.name in kept or length > MAX_NAME:
            continue
        try:
            wire = wire_name(capability_of(worker, report.name))
        except UsageError:
            continue
        if wire in wires or len(kept) >= MAX_TOOLS or size + length > MAX_NAMES:
            continue
        size += length
        wires.add(wire)
        kept[report.name] = report
    return tuple(kept.values()), len(reports) - len(kept)


def _rows(worker: str, source: _Source) -> tuple[CatalogRow, ...]:
    named = WorkerName.parse(worker)
    return tuple(
        sorted((_row(named, source, report) for report in source.reports), key=lambda row: row.name)
    )


def _row(worker: WorkerName, source: _Source, report: CapabilityReport) -> CatalogRow:
    name = capability_of(worker, report.name)
    settings = source.settings
    own = settings.tools.get(report.name)
    timeout = own.timeout if own is not None and own.timeout else settings.call_timeout
    return CatalogRow(
        name=str(name),
        wire=wire_name(name),
        kind=name.kind,
        source=str(worker),
        tier=tier_of(report, settings),
        connected=source.connected,
        reason=source.why,
        summary=summary(report.summary),
        local=report.name,
        digest=report.digest if len(report.digest) == DIGEST else "",
        timeout=timeout,
        timeout_max=max(timeout, settings.call_timeout_max),
        idempotent=bool(report.idempotent or report.read_only),
        disabled=report.name in settings.disabled_tools,
    )


def summary(text: str) -> str:
    """The first line that says something, at most SUMMARY characters.

    >>> summary("\\n  Shows the status. \\nLong text")
    'Shows the status.'
    """
    line = next((line for line in map(str.strip, text.splitlines()) if line), "")
    return line if len(line) <= SUMMARY else line[: SUMMARY - 1].rstrip() + "…"


def _announce(source: _Source, rows: tuple[CatalogRow, ...]) -> Delta:
    """Give the source its new rows; return what that means for those who follow the catalog."""
    before, known = {row.name for row in source.rows if _usable(row)}, source.known
    gone = known - {row.name for row in rows if not _hidden(row)}
    now = [row.name for row in rows if _usable(row)]
    fresh = set(now) - known
    staying = (known - gone) & (before ^ set(now))
    delta = Delta(
        added=tuple(name for name in now if name in fresh),
        removed=tuple(row.name for row in source.rows if row.name in gone),
        changed=tuple(row.name for row in rows if row.name in staying),
    )
    source.rows, source.known = rows, (known - gone) | fresh
    return delta


def _usable(row: CatalogRow) -> bool:
    return row.connected and not _hidden(row)


def _hidden(row: CatalogRow) -> bool:
    return row.disabled or row.tier == "block"
