"""Following one turn from its offset to its end. Pure; the clients do the sending."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import Any, Final

from interlock.bus.codec import check_json
from interlock.bus.errors import MalformedError
from interlock.bus.messages import Items

WINDOW: Final = 256
"""Items that a client lets the supervisor send ahead of its reader."""
ANSWER: Final = 10.0
"""Seconds that the supervisor has for each question of a stream."""
SILENCE: Final = 15.0
"""Seconds without an item after which a client asks how the turn is doing."""
ENDED: Final = frozenset({"completed", "failed", "cancelled", "interrupted"})
"""States of a turn that has no more items to come."""


def new_turn_id() -> str:
    """Make an id for a turn."""
    return secrets.token_hex(16)


class Watch:
    """The reader's place in a turn's stream. Offsets have no gaps, so one shows what was lost."""

    def __init__(self, turn: str, offset: int = 0) -> None:
        self.turn = turn
        self.offset = offset
        """Of the next item."""
        self.ended = False
        self._uncredited = 0
        self._doubted: int | None = None

    def on_items(self, message: Items, body: bytes | None) -> list[dict[str, Any]] | None:
        """Take a batch and return what is new in it; None means it has to be asked for again."""
        items = check_json(body or b"[]")
        if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
            raise MalformedError("Turn items are not a list of objects.")
        if message.offset > self.offset:
            return None
        self._uncredited += len(items)
        fresh = items[self.offset - message.offset :]
        self.offset += len(fresh)
        self.ended = message.end
        return fresh

    def credit(self, send: Callable[[int], bool]) -> None:
        """Grant with `send` what was taken, if it is much; what cannot be sent is granted later."""
        if not self.ended and self._uncredited >= WINDOW // 2 and send(self._uncredited):
            self._uncredited = 0

    def again(self) -> None:
        """Begin anew at the same offset: the next request grants a whole window."""
        self._uncredited = 0

    def doubt(self) -> None:
        """Take the news that the turn is over although nothing came that says so.

        Asked again at the same offset in vain, the stream ends there.
        """
        self.ended = self._doubted == self.offset
        self._doubted = self.offset
