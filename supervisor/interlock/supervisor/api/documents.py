"""Makes the documents of answers a slice at a time, so that turns go on however large they are."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, TypeVar

import msgspec

from interlock.bus.errors import InterlockError

SLICE: Final = 0.002
"""Seconds that the loop works on documents before everything else has its turn."""
AT_ONCE: Final = 4
"""Large documents that are made at the same time; each is in memory while it is."""
MAX_DOCUMENT: Final = 48 << 20
"""Bytes of a document; a client takes no message of more than `MAX_MESSAGE`."""

T = TypeVar("T")
_encode: Final = msgspec.json.Encoder().encode


class DocumentTooLargeError(InterlockError):
    """A document has more than `MAX_DOCUMENT` bytes; ask for less."""

    code = "too_large"


class Documents:
    """In one turn of the event loop one piece of one document is made, whoever asks for how many.

    `piece` is a time in seconds and `largest` a number of bytes.
    """

    def __init__(self, piece: float = SLICE, largest: int = MAX_DOCUMENT) -> None:
        self._piece = piece
        self._largest = largest
        self._alone = asyncio.Lock()
        self._few = asyncio.Semaphore(AT_ONCE)

    async def alone(self, work: Callable[[], T]) -> T:
        """Do `work`, which cannot be divided, once nobody else works on a document."""
        async with self._alone:
            await asyncio.sleep(0)  # whatever became ready meanwhile comes first
            return work()

    async def make(self, head: Mapping[str, Any], lists: Mapping[str, Iterable[object]]) -> bytes:
        """Encode an object: what `head` has, then the lists, whose rows are made one at a time.

        Raises DocumentTooLargeError.
        """
        parts = _Parts([_encode(head)[:-1]])
        comma = b"," if head else b""
        async with self._few:
            for key, rows in lists.items():
                parts.append(comma + _encode(key) + b":[")
                comma = b","
                todo = _encoded(rows)
                while await self.alone(lambda todo=todo: self._some(todo, parts)):  # type: ignore[misc]
                    pass
                parts.append(b"]")
            parts.append(b"}")
            return b"".join(parts)

    def _some(self, todo: Iterable[bytes], parts: _Parts) -> bool:
        """Add rows for a while; False after the last."""
        until = time.monotonic() + self._piece
        for row in todo:
            parts.append(row)
            parts.size += len(row)
            if time.monotonic() > until:
                if parts.size > self._largest:
                    raise DocumentTooLargeError(
                        f"The answer would have more than {self._largest >> 20} MiB; ask for less."
                    )
                return True
        return False


class _Parts(list[bytes]):
    """What a document is made of so far."""

    size = 0
    """Bytes of the rows."""


def _encoded(rows: Iterable[object]) -> Iterable[bytes]:
    """Each row as JSON, with a comma before all but the first; goes on where it was left."""
    commas = itertools.chain((b"",), itertools.repeat(b","))
    return (comma + _encode(row) for comma, row in zip(commas, rows, strict=False))
