"""The message bus: what other programs import to talk to a running Interlock.

The clients are loaded when they are first asked for, so that a worker that needs messages only
does not carry them, and the synchronous client does not load asyncio.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from interlock.bus.errors import (
    ConnectionLostError,
    InterlockError,
    NoSupervisorError,
    NotFoundError,
    RequestTimeoutError,
    UsageError,
)

if TYPE_CHECKING:
    from interlock.bus.aclient import AsyncClient
    from interlock.bus.client import Client, connect
    from interlock.bus.results import CallResult

__all__ = [
    "AsyncClient",
    "CallResult",
    "Client",
    "ConnectionLostError",
    "InterlockError",
    "NoSupervisorError",
    "NotFoundError",
    "RequestTimeoutError",
    "UsageError",
    "connect",
]

_LOADED_FROM = {
    "AsyncClient": "interlock.bus.aclient",
    "CallResult": "interlock.bus.results",
    "Client": "interlock.bus.client",
    "connect": "interlock.bus.client",
}


def __getattr__(name: str) -> Any:
    """Load a client at its first use."""
    module = _LOADED_FROM.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(module), name)
