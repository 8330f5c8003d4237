"""What the spawner is asked to start; pure."""

from __future__ import annotations

from typing import Final

import msgspec

from interlock.bus.records import Boot

WORKER_ENTRY: Final = "interlock.workers.host:main"


class SpawnRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What to start. Name, generation, nice, image, home and log file stand in the boot record.

    `keep_env`: names or patterns of variables that the worker gets beyond the allow-list. Limits
    apply to each process by itself; None means no limit of its own. Units: descriptors, seconds,
    bytes.
    """

    boot: Boot
    entry: str = WORKER_ENTRY
    keep_env: tuple[str, ...] = ()
    open_files: int | None = None
    cpu_seconds: int | None = None
    address_space: int | None = None
