"""Turn items as bytes: what an agent sent, checked, and placed in the log without re-encoding."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, get_args

import msgspec

from interlock.bus.errors import MalformedError
from interlock.bus.events import AnyItem, Item, TurnCancelled, TurnCompleted, TurnFailed
from interlock.bus.messages import ITEMS_BATCH, MAX_NESTING


class _Kind(msgspec.Struct):
    type: str = ""


_KNOWN: Final = frozenset(kind.__struct_config__.tag for kind in get_args(AnyItem))
_LATER: Final = re.compile(r"(?!turn\.)[a-z_]{1,32}\.[a-z_]{1,32}")
"""Item types that a newer agent may send; the turn's own are never new."""
_encode: Final = msgspec.json.Encoder().encode
MOST: Final = 256 << 10
"""Bytes of an item from which on it can only be a text: all others are bounded by agents."""
_TEXTS: Final = frozenset({"text.delta", "turn.completed", "turn.failed"})
_several: Final = msgspec.json.Decoder(list[msgspec.Raw]).decode
_one: Final = msgspec.json.Decoder(tuple[msgspec.Raw]).decode
_document: Final = msgspec.json.Decoder().decode
_known: Final = msgspec.json.Decoder(AnyItem).decode
_kind: Final = msgspec.json.Decoder(_Kind).decode

_OWNED: Final = frozenset({"turn", "offset"})
"""Keys of an item that only the supervisor says, whatever an agent puts there."""

Terminal = TurnCompleted | TurnFailed | TurnCancelled


class SentItem(msgspec.Struct, frozen=True, kw_only=True):
    """One valid item of an agent: its bytes, and the item itself if it ends the turn."""

    raw: bytes
    terminal: Terminal | None = None


def parse(body: bytes | None) -> tuple[list[SentItem], int]:
    """The valid items of a `turn.items` body in order, and how many were not valid.

    Raises MalformedError if the body is no JSON array at all, or several items make it larger than
    a batch may be.
    """
    body = body or b""
    parts: Sequence[msgspec.Raw]
    try:
        parts = _several(body) if len(body) <= ITEMS_BATCH else _one(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise MalformedError("A batch of turn items is no JSON array.") from error
    items = [item for part in parts if (item := _item(bytes(part))) is not None]
    return items, len(parts) - len(items)


def _item(raw: bytes) -> SentItem | None:
    try:
        if len(raw) > MOST:
            return _text(raw)
        found = _document(raw)
        if not isinstance(found, dict) or _depth(found) > MAX_NESTING:
            return None
        kind = found.get("type")
        if kind not in _KNOWN:
            if not isinstance(kind, str) or not _LATER.fullmatch(kind):
                return None
            item: Item | None = None
        else:
            item = msgspec.convert(found, AnyItem)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    if not _OWNED.isdisjoint(found):
        raw = _encode({key: found[key] for key in found if key not in _OWNED})
    terminal = item if isinstance(item, (TurnCompleted, TurnFailed, TurnCancelled)) else None
    return SentItem(raw=raw.strip(), terminal=terminal)


def _text(raw: bytes) -> SentItem | None:
    """A large item: a text, read without making objects of what else it holds."""
    if _kind(raw).type not in _TEXTS:
        return None
    item = _known(raw)
    terminal = item if isinstance(item, (TurnCompleted, TurnFailed, TurnCancelled)) else None
    return SentItem(raw=_encode(item), terminal=terminal)


def _depth(document: object) -> int:
    depth = 0
    level: list[object] = [document]
    while level and depth <= MAX_NESTING:
        depth += 1
        below: list[object] = []
        for value in level:
            if isinstance(value, dict):
                below.extend(value.values())
            elif isinstance(value, list):
                below.extend(value)
        level = below
    return depth


def encode(item: Item) -> bytes:
    """An item of the supervisor's own, as an agent would have sent it."""
    return _encode(item)


def place(raw: bytes, turn: str, offset: int) -> bytes:
    """The complete item: `turn` and `offset` put in front of what the agent sent.

    >>> place(b'{"type":"turn.cancelled"}', "ab", 7)
    b'{"turn":"ab","offset":7,"type":"turn.cancelled"}'
    """
    return b'{"turn":"%b","offset":%d,%b' % (turn.encode(), offset, raw[1:])
