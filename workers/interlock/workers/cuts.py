"""Cuts results that are too large for a caller.

A result over the limit loses the ends of its texts, its images, its structured copy and its other
large fields; the whole of it is kept in a file (0600), and the last content item names that file.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from interlock.workers.kept import keep

FIELDS_ROOM: Final = 4096
"""Bytes at most of what a result has besides its content, such as `_meta`."""
TEXT_FRAME: Final = 40
"""Bytes of a text item without its text."""
NOTE_ROOM: Final = 2048
"""Bytes of the limit that are left for the note about the cut."""


class Cut(NamedTuple):
    """A shortened result. `problem`: why the whole could not be kept, or empty."""

    body: bytes
    problem: str


def cut(body: bytes, limit: int, folder: Path, tool: str) -> Cut:
    """Shorten a result to at most about `limit` bytes and keep the whole below `folder`.

    Reads and writes a file; run it in a thread. Never raises for what is in `body` or for a disk
    that is full: the note then says that the whole is lost.
    """
    try:
        document = msgspec.json.decode(body)
    except (msgspec.MsgspecError, RecursionError):
        document = None
    content = document.get("content") if isinstance(document, dict) else None
    if not isinstance(content, list):
        document, content = {}, [{"type": "text", "text": body.decode(errors="replace")}]
    path, problem = keep(*_whole(body, content), folder=folder, tool=tool)
    room = max(limit - NOTE_ROOM, 0)
    short, spent = _fields(document, min(FIELDS_ROOM, room // 4))
    shown, left_out = shorten(content, room - spent)
    kept = f"the whole is in {path}" if path else f"the whole could not be kept ({problem})"
    if left_out:
        kept = f"{left_out} of {len(content)} items are left out; {kept}"
    note = f"[Cut by Interlock: the result has {len(body)} bytes, the limit is {limit}; {kept}]"
    short["content"] = [*shown, {"type": "text", "text": note}]
    if path:
        # An item of its own, so that programs need not take a sentence apart.
        short["content"].append({"type": "text", "text": str(path)})
    return Cut(msgspec.json.encode(short), problem)


def whole_of(body: bytes) -> tuple[bytes, str]:
    """Return what a file keeps of a result, and the ending of its name: its only text, or all.

    >>> whole_of(b'{"content": [{"type": "text", "text": "a"}]}')
    (b'a', 'txt')
    """
    try:
        document = msgspec.json.decode(body)
    except (msgspec.MsgspecError, RecursionError):
        return body, "json"
    content = document.get("content") if isinstance(document, dict) else None
    return _whole(body, content if isinstance(content, list) else [])


def _whole(body: bytes, content: list[Any]) -> tuple[bytes, str]:
    text = _text(content[0]) if len(content) == 1 else None
    return (body, "json") if text is None else (text.encode(errors="replace"), "txt")


def _fields(document: dict[str, Any], room: int) -> tuple[dict[str, Any], int]:
    """Return the small fields beside the content that fit into `room`, and their bytes."""
    fields: dict[str, Any] = {}
    spent = 0
    for name, value in document.items():
        if name == "isError":
            fields[name] = value is not False  # what is no boolean counts as an error
        elif name not in ("content", "structuredContent"):
            size = len(msgspec.json.encode({name: value}))
            if spent + size <= room:
                fields[name] = value
                spent += size
    return fields, spent


def _text(item: Any) -> str | None:
    if isinstance(item, dict) and item.get("type") == "text" and isinstance(item.get("text"), str):
        return str(item["text"])
    return None


def shorten(content: list[Any], room: int) -> tuple[list[Any], int]:
    """Return the content items that fit into `room` bytes, and how many are left out.

    The first text that does not fit is cut, and nothing follows it.
    """
    kept: list[Any] = []
    left_out = 0
    for item in content:
        size = len(msgspec.json.encode(item)) + 1
        text = _text(item)
        if size <= room:
            kept.append(item)
            room -= size
        elif text is None or room <= TEXT_FRAME:
            left_out += 1
        else:
            kept.append({"type": "text", "text": _head(text, room - TEXT_FRAME)})
            room = 0
    return kept, left_out


def _head(text: str, room: int) -> str:
    """Return the longest beginning that takes at most `room` bytes as JSON, roughly."""
    head = text.encode(errors="replace")[:room].decode(errors="ignore")
    while head and (size := len(msgspec.json.encode(head))) > room + 2:
        head = head[: len(head) * room // size]
    return head
