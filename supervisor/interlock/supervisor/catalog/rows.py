"""The catalog: reports of all workers merged to rows in a fixed order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec

from interlock.bus.records import CapabilityReport, Tier
from interlock.bus.settings import McpServerSettings


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


class Delta(msgspec.Struct, frozen=True, kw_only=True):
    """Usable capabilities that came and went, in catalog order."""

    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        """Whether anything changed."""
        return bool(self.added or self.removed)


class Catalog:
    """What every source reported and how it is; one owner, no clock, no I/O."""

    def configure(self, worker: str, settings: McpServerSettings) -> Delta:
        """Add a source or apply its new settings."""
        raise NotImplementedError

    def remove(self, worker: str) -> Delta:
        """The source left the configuration."""
        raise NotImplementedError

    def report(self, worker: str, reports: Sequence[CapabilityReport]) -> Delta:
        """Replace what the source serves."""
        raise NotImplementedError

    def set_state(self, worker: str, state: str, reason: str) -> Delta:
        """The lifecycle state of the source changed; only READY is usable."""
        raise NotImplementedError

    def rows(self) -> tuple[CatalogRow, ...]:
        """All rows in order."""
        raise NotImplementedError


Withheld = Literal["disabled", "policy", "grant", "deny", "state"]
