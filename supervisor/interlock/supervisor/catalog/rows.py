"""The catalog: reports of all workers merged to rows in a fixed order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from interlock.bus.errors import UsageError
from interlock.bus.names import CapabilityName, WorkerName, wire_name
from interlock.bus.records import CapabilityReport, Tier
from interlock.bus.settings import McpServerSettings

SUMMARY: Final = 140
"""Characters of a summary."""
MAX_TOOLS: Final = 1_000
"""Tools of one source in the catalog."""
MAX_NAMES: Final = 128 << 10
"""Bytes of all names of one source's tools; with it a ticket for all of them stays in bounds."""
MAX_NAME: Final = 256
"""Bytes of one tool's name."""
TIERS: Final[tuple[Tier, ...]] = ("safe", "monitor", "ask", "block")
"""From the least to the most careful."""
DIGEST: Final = 64
"""Characters of a digest; a report with another one has no document."""
USABLE: Final = "READY"
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
    """Usable capabilities that came and went, in catalog order."""

    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        """Whether anything changed."""
        return bool(self.added or self.removed)


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
    settings: McpServerSettings
    state: str = "STOPPED"
    reason: str = ""
    reports: tuple[CapabilityReport, ...] = ()
    over: int = 0
    rows: tuple[CatalogRow, ...] = ()

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
    same state gives the same lists. A source that is down keeps its rows, not connected.
    """

    def __init__(self) -> None:
        self._sources: dict[str, _Source] = {}
        self._merged: tuple[CatalogRow, ...] | None = None

    def configure(self, worker: str, settings: McpServerSettings) -> Delta:
        """Add a source or apply its new settings."""
        source = self._sources.setdefault(worker, _Source(settings))
        source.settings = settings
        return self._rebuild(worker, source)

    def remove(self, worker: str) -> Delta:
        """The source left the configuration."""
        source = self._sources.pop(worker, None)
        self._merged = None
        return Delta(removed=_usable(source.rows)) if source is not None else Delta()

    def report(self, worker: str, reports: Sequence[CapabilityReport]) -> Delta:
        """Replace what the source serves; nothing happens for a source not configured."""
        source = self._sources.get(worker)
        if source is None:
            return Delta()
        source.reports, source.over = _admit(WorkerName.parse(worker), reports)
        return self._rebuild(worker, source)

    def set_state(self, worker: str, state: str, reason: str) -> Delta:
        """The lifecycle state of the source changed; only READY is usable."""
        source = self._sources.get(worker)
        if source is None:
            return Delta()
        source.state, source.reason = state, reason
        rows = tuple(
            msgspec.structs.replace(row, connected=source.connected, reason=source.why)
            for row in source.rows
        )
        return self._replace(source, rows)

    def _rebuild(self, worker: str, source: _Source) -> Delta:
        return self._replace(source, _rows(worker, source))

    def _replace(self, source: _Source, rows: tuple[CatalogRow, ...]) -> Delta:
        before = source.rows
        source.rows = rows
        self._merged = None
        return _difference(_usable(before), _usable(source.rows))

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


def tier_of(report: CapabilityReport, settings: McpServerSettings) -> Tier:
    """The tier of a tool: what its own entry says, else the server's, raised by annotations.

    >>> tier_of(CapabilityReport(name="rm", digest="", destructive=True), McpServerSettings())
    'ask'
    """
    own = settings.tools.get(report.name)
    if own is not None and own.tier is not None:
        return own.tier
    tier: Tier = settings.tier
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
            wire = wire_name(CapabilityName(worker.kind, worker.id, report.name))
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
    name = CapabilityName(worker.kind, worker.id, report.name)
    settings = source.settings
    own = settings.tools.get(report.name)
    timeout = own.timeout if own is not None and own.timeout else settings.call_timeout
    return CatalogRow(
        name=str(name),
        wire=wire_name(name),
        kind=worker.kind,
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


def _usable(rows: Sequence[CatalogRow]) -> tuple[str, ...]:
    return tuple(
        row.name for row in rows if row.connected and not row.disabled and row.tier != "block"
    )


def _difference(before: Sequence[str], after: Sequence[str]) -> Delta:
    had, has = set(before), set(after)
    return Delta(
        added=tuple(name for name in after if name not in had),
        removed=tuple(name for name in before if name not in has),
    )
