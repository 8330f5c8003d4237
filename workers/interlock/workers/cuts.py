"""Cuts results that are too large for a caller.

A result over the limit loses the ends of its texts, its images and its structured copy; the whole
of it is kept in a file (0600), and the last content item names that file.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from interlock.workers.kept import keep

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
    texts = [_text(item) for item in content]
    plain = len(texts) == 1 and texts[0] is not None
    whole = (texts[0] or "").encode(errors="replace") if plain else body
    path, problem = keep(whole, folder, tool, "txt" if plain else "json")
    document.pop("structuredContent", None)
    document["content"] = shorten(content, max(limit - NOTE_ROOM, 0))
    kept = f"the whole is in {path}" if path else f"the whole could not be kept ({problem})"
    note = f"[Cut by Interlock: the result has {len(body)} bytes, the limit is {limit}; {kept}]"
    document["content"].append({"type": "text", "text": note})
    if path:
        # An item of its own, so that programs need not take a sentence apart.
        document["content"].append({"type": "text", "text": str(path)})
    return Cut(msgspec.json.encode(document), problem)


def _text(item: Any) -> str | None:
    if isinstance(item, dict) and item.get("type") == "text" and isinstance(item.get("text"), str):
        return str(item["text"])
    return None


def shorten(content: list[Any], room: int) -> list[Any]:
    """Return the content items that fit into `room` bytes; the first text that does not is cut."""
    kept: list[Any] = []
    for item in content:
        size = len(msgspec.json.encode(item))
        if size <= room:
            kept.append(item)
            room -= size
            continue
        text = _text(item)
        if text is None:
            kind = item.get("type", "item") if isinstance(item, dict) else "item"
            kept.append({"type": "text", "text": f"[{kind} of {size} bytes left out]"})
            continue
        if room > 0:
            kept.append({**item, "text": _head(text, room)})
        room = 0
    return kept


def _head(text: str, room: int) -> str:
    """Return the longest beginning that takes at most `room` bytes as JSON, roughly."""
    head = text.encode(errors="replace")[:room].decode(errors="ignore")
    while head and (size := len(msgspec.json.encode(head))) > room + 2:
        head = head[: len(head) * room // size]
    return head
