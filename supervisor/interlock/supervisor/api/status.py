"""The status document."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from importlib import metadata
from typing import Any

import msgspec

from interlock.supervisor.attention import Attention
from interlock.supervisor.fleet.fleet import Fleet
from interlock.supervisor.fleet.member import Member
from interlock.supervisor.fleet.resources import Sampler


def version() -> str:
    """Version of the installed Interlock; empty when it runs without being installed."""
    try:
        return metadata.version("interlock")
    except metadata.PackageNotFoundError:
        return ""


class Status:
    """Makes the document of `interlock status --json`; measures only because somebody asks.

    `measure` comes first, and takes a while; what is made then is of one moment.
    """

    def __init__(
        self,
        fleet: Fleet,
        attention: Attention,
        sampler: Sampler,
        epoch: str,
        dropped: Callable[[], int],
        left_out: Mapping[str, int],
    ) -> None:
        self._fleet = fleet
        self._attention = attention
        self._sampler = sampler
        self._epoch = epoch
        self._dropped = dropped
        self._left_out = left_out
        self._begun = time.monotonic()
        self._version = version()

    async def measure(self) -> None:
        """Bring the loads up to date."""
        await self._sampler.measure(self._fleet.pids())

    def document(self, members: tuple[Member, ...] | None = None) -> dict[str, Any]:
        """Make the document, of some workers or of all."""
        chosen = tuple(self._fleet.members.values()) if members is None else members
        own = self._sampler.own()
        now = time.monotonic()
        names = {member.worker.name for member in chosen}
        return {
            "supervisor": {
                "pid": os.getpid(),
                "epoch": self._epoch,
                "uptime": now - self._begun,
                "version": self._version,
                "rss_bytes": own.rss_bytes,
                "cpu_percent": own.cpu_percent,
                "home": str(self._fleet.home.path),
                "dropped": self._dropped(),
            },
            "workers": [self.row(member) for member in chosen],
            "needs_attention": [
                msgspec.to_builtins(row)
                for row in self._attention.rows()
                if members is None or row.name in names
            ],
        }

    def row(self, member: Member) -> dict[str, Any]:
        """Make the row of one worker."""
        load = self._sampler.load(member.worker.name, member.worker.pid)
        row = member.row(load, time.monotonic(), time.time())
        row["left_out"] = self._left_out.get(member.worker.name, 0)
        return row
