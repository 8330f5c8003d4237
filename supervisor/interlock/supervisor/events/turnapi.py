"""Answers of the api that concern turns, tools and direct calls.

Every handler takes `(identity, message, body)` and returns the JSON document of the reply, or None
where the request has no reply of its own. They raise InterlockError; its code goes into the reply.
"""

from __future__ import annotations

from interlock.bus.messages import (
    Resolve,
    ToolsGet,
    TurnCredit,
    TurnGet,
    TurnsGet,
    TurnStart,
    TurnStop,
    TurnUnwatch,
    TurnWatch,
)
from interlock.supervisor.events.turns import TurnService


class TurnApi:
    """The handlers; the runtime dispatches by message type."""

    def __init__(self, turns: TurnService) -> None:
        raise NotImplementedError

    async def start(self, identity: bytes, message: TurnStart, body: bytes | None) -> bytes:
        """`{turn, state}` once the turn is accepted; the same id again answers the same turn."""
        raise NotImplementedError

    async def watch(self, identity: bytes, message: TurnWatch, body: bytes | None) -> None:
        """Streams `items`; a reply is sent only for an unknown turn (`not_found`)."""
        raise NotImplementedError

    async def credit(self, identity: bytes, message: TurnCredit, body: bytes | None) -> None:
        """Grants a watcher more items."""
        raise NotImplementedError

    async def unwatch(self, identity: bytes, message: TurnUnwatch, body: bytes | None) -> None:
        """Ends a watch."""
        raise NotImplementedError

    async def cancel(self, identity: bytes, message: TurnStop, body: bytes | None) -> bytes:
        """`{turn, state}`; the end itself arrives in the stream."""
        raise NotImplementedError

    async def turns(self, identity: bytes, message: TurnsGet, body: bytes | None) -> bytes:
        """`{turns: [...]}`, newest first."""
        raise NotImplementedError

    async def show(self, identity: bytes, message: TurnGet, body: bytes | None) -> bytes:
        """One turn's row with its calls."""
        raise NotImplementedError

    async def tools(self, identity: bytes, message: ToolsGet, body: bytes | None) -> bytes:
        """The catalog, or the offer for a request."""
        raise NotImplementedError

    async def resolve(self, identity: bytes, message: Resolve, body: bytes | None) -> bytes:
        """`{capability, local, timeout, timeout_max, target}` for a direct call."""
        raise NotImplementedError
