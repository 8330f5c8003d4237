"""Looks into results without making an object of each value in them; pure.

A result of 64 MiB may hold twenty million values. Making objects of them takes seconds, in which no
other thread of the process runs: whoever looks into a result that somebody else wrote does it here.
"""

from __future__ import annotations

import contextlib
from typing import Any, Final, NamedTuple

import msgspec

NOTHING: Final = msgspec.Raw(b"")
"""A part that a result does not have."""
LOOKED_INTO: Final = 16 << 20
"""Bytes of a result up to which `glance` looks into it; passing over them takes some 40 ms."""
BEGINNING: Final = 64 << 10
"""Bytes of a larger result that `glance` shows, as text."""
MOST_ITEMS: Final = 1_000
"""Items that are told apart where there may be very many."""
FEW: Final = 10_000
"""Items up to which all are told apart."""
FIELDS: Final = 64 << 10
"""Bytes of all fields beside the content up to which they are told apart; else two are known."""
_TAKEN: Final = frozenset({"content", "structuredContent"})


class Look(NamedTuple):
    """What a result is made of, each part as it is written; texts are not yet checked.

    `more`: further items follow, which were not told apart.
    """

    content: list[msgspec.Raw]
    structured: msgspec.Raw = NOTHING
    failed: msgspec.Raw = NOTHING
    meta: msgspec.Raw = NOTHING
    more: bool = False

    def left_out(self, shown: int) -> str:
        """Return how many items there are beside `shown`, in words; empty for none."""
        count = len(self.content)
        if self.more:
            return f"all but {shown} of more than {count} items" if count > 1 else ""
        return f"{count - shown} of {count} items" if shown < count else ""


def beginning(most: int) -> Any:
    """Return the type of a list of which `most` items and one more are read; see `items`."""
    # An array that is read as a struct is passed over behind the struct's last field.
    fields = [(f"item{n}", msgspec.Raw, NOTHING) for n in range(most + 1)]
    return msgspec.defstruct(
        "Beginning", fields, array_like=True, frozen=True, repr_omit_defaults=True
    )


def items(found: msgspec.Struct) -> list[msgspec.Raw]:
    """Return what was read of a list as its `beginning`, each item as it is written."""
    return [item for item in msgspec.structs.astuple(found) if len(item)]


_First: Final[Any] = beginning(MOST_ITEMS)
_NONE: Final = _First()


class _Parts(msgspec.Struct):
    content: _First = _NONE
    structured: msgspec.Raw = msgspec.field(name="structuredContent", default=NOTHING)
    failed: msgspec.Raw = msgspec.field(name="isError", default=NOTHING)
    meta: msgspec.Raw = msgspec.field(name="_meta", default=NOTHING)


class _Content(msgspec.Struct):
    content: list[msgspec.Raw]


class _Text(msgspec.Struct):
    type: str
    text: str


_parts: Final = msgspec.json.Decoder(_Parts).decode
_content: Final = msgspec.json.Decoder(_Content).decode
_fields: Final = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_text: Final = msgspec.json.Decoder(_Text).decode


def look(body: bytes) -> Look | None:
    """Take a result apart; None for what is no object or has a content that is no list."""
    try:
        parts = _parts(body)
        content = items(parts.content)
        more = len(content) > MOST_ITEMS
        if more and body.count(b",") <= FEW:
            content, more = _content(body).content, False
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    found = content[:MOST_ITEMS] if more else content
    return Look(found, parts.structured, parts.failed, parts.meta, more)


def fields_of(body: bytes, found: Look) -> dict[str, msgspec.Raw]:
    """Return the fields of a result beside its content and its structured content.

    Of more than `FIELDS` bytes only those that MCP names.
    """
    fields = {"isError": found.failed, "_meta": found.meta}
    if len(body) - sum(map(len, found.content)) - len(found.structured) <= FIELDS:
        with contextlib.suppress(msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            fields = _fields(body)
    return {name: value for name, value in fields.items() if len(value) and name not in _TAKEN}


def glance(body: bytes) -> Look | None:
    """Do as `look`, but take a body over `LOOKED_INTO` for a text, of which the beginning is seen.

    For a process that serves more than the one who wrote the result.
    """
    if len(body) <= LOOKED_INTO:
        return look(body)
    text = body[:BEGINNING].decode(errors="replace")
    return Look([msgspec.Raw(msgspec.json.encode({"type": "text", "text": text}))], more=True)


def text_of(item: msgspec.Raw) -> str | None:
    """Return the text of a text item; None for other items and for one that cannot be read."""
    try:
        found = _text(item)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    return found.text if found.type == "text" else None
