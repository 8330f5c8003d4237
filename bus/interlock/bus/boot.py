"""What a worker process learns before anything else."""

from __future__ import annotations

import msgspec


class Boot(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker process learns on its lifeline before anything else; msgpack, one record."""

    name: str
    kind: str
    generation: int
    nonce: str
    token: str
    control: str
    """Endpoint of the control plane."""
    home: str
    log: str
    """Absolute path of the worker's log file."""
    nice: int = 0
    image: str = "base"

    @property
    def identity(self) -> bytes:
        """Routing id on the control plane."""
        return f"{self.name}#{self.generation}#{self.nonce}".encode()
