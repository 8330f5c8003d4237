"""Cuts results that are too large for a caller.

A result over the limit loses the ends of its texts, its images, its structured copy and its other
large fields; the whole of it is kept in a file (0600), and the last content item names that file.
"""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from interlock.workers.disk import Disk
from interlock.workers.kept import keep, reason_of
from interlock.workers.looks import Look, fields_of, glance, look, text_of

FIELDS_ROOM: Final = 4096
"""Bytes at most of what a result has besides its content, such as `_meta`."""
TEXT_FRAME: Final = 40
"""Bytes of a text item without its text."""
NOTE_ROOM: Final = 2048
"""Bytes of the limit that are left for the note about the cut."""


class Cut(NamedTuple):
    """A shortened result. `problem`: why the whole could not be kept, if it could not."""

    body: bytes
    problem: OSError | None


def cut(body: bytes, limit: int, folder: Path, tool: str) -> Cut:
    """Shorten a result to at most about `limit` bytes and keep the whole below `folder`.

    Reads and writes a file; run it in a thread. Never raises for what is in `body` or for a disk
    that is full: the note then says that the whole is lost.
    """
    found = look(body) or Look([])
    whole, suffix = _whole(body, found)
    path, problem = keep(whole, suffix, folder=folder, tool=tool)
    return _shortened(body, found, limit, path, problem, len(whole))


class Cutter:
    """Cuts the results of one worker; for use in one event loop."""

    def __init__(self) -> None:
        self._disk = Disk()

    async def cut(self, body: bytes, limit: int, folder: Path, tool: str) -> Cut:
        """Shorten a result as `cut`, in a thread; a disk that hangs costs the file with the whole.

        It also keeps few results in memory: the next ones do not wait for it.
        """
        try:
            return await self._disk.do(partial(cut, body, limit, folder, tool))
        except TimeoutError:
            # In a thread, too, as it takes long; it waits for nothing.
            return await asyncio.to_thread(_without_file, body, limit)


def _without_file(body: bytes, limit: int) -> Cut:
    return _shortened(body, look(body) or Look([]), limit, None, TimeoutError())


def _shortened(
    body: bytes,
    found: Look,
    limit: int,
    path: Path | None,
    problem: OSError | None,
    size: int = 0,
) -> Cut:
    """Shorten a result; `size`: bytes of the file with the whole, which may be its text alone."""
    room = max(limit - NOTE_ROOM, 0)
    short, spent = _fields(fields_of(body, found), min(FIELDS_ROOM, room // 4))
    if found.content:
        shown, whole = shorten(found.content, room - spent)
    else:
        # Without a content this is what a caller gets to see of it.
        left = max(room - spent - TEXT_FRAME, 0)
        shown, whole = [_text_item(_head(body[:left].decode(errors="replace"), left))], 0
    if problem is None:
        kept = f"the whole, {size} bytes, is in {path}"
    else:
        kept = f"the whole could not be kept ({reason_of(problem)})"
    if left_out := found.left_out(whole):
        kept = f"{left_out} are left out; {kept}"
    sizes = f"the result has {len(body)} bytes as JSON, the limit is {limit}"
    note = f"[Cut by Interlock: {sizes}; {kept}]"
    short["content"] = [*shown, _text_item(note)]
    if path:
        # An item of its own, so that programs need not take a sentence apart.
        short["content"].append(_text_item(str(path)))
    return Cut(msgspec.json.encode(short), problem)


def whole_of(body: bytes) -> tuple[bytes, str]:
    """Return what a file keeps of a result, and the ending of its name: its only text, or all.

    >>> whole_of(b'{"content": [{"type": "text", "text": "a"}]}')
    (b'a', 'txt')
    """
    return _whole(body, glance(body) or Look([]))


def _whole(body: bytes, found: Look) -> tuple[bytes, str]:
    only = len(found.content) == 1 and not found.more
    text = text_of(found.content[0]) if only else None
    return (body, "json") if text is None else (text.encode(errors="replace"), "txt")


def _fields(fields: dict[str, msgspec.Raw], room: int) -> tuple[dict[str, Any], int]:
    """Return the small fields beside the content that fit into `room`, and their bytes."""
    kept: dict[str, Any] = {}
    spent = 0
    for name, value in fields.items():
        if name == "isError":
            kept[name] = bytes(value) != b"false"  # what is no boolean counts as an error
            continue
        size = len(msgspec.json.encode(name)) + len(value) + 4
        if spent + size <= room:
            kept[name] = value
            spent += size
    return kept, spent


def shorten(content: list[msgspec.Raw], room: int) -> tuple[list[Any], int]:
    """Return the content items that fit into `room` bytes, and how many of all these are.

    The first text that does not fit is cut, and nothing follows it.
    """
    kept: list[Any] = []
    for item in content:
        size = len(item) + 1
        if size <= room:
            kept.append(item)
            room -= size
        elif room > TEXT_FRAME and (text := text_of(item)) is not None:
            kept.append(_text_item(_head(text, room - TEXT_FRAME)))
            room = 0
    return kept, len(kept)


def _text_item(text: str) -> dict[str, str]:
    return {"type": "text", "text": text}


def _head(text: str, room: int) -> str:
    """Return the longest beginning that takes at most `room` bytes as JSON, roughly."""
    head = text.encode(errors="replace")[:room].decode(errors="ignore")
    while head and (size := len(msgspec.json.encode(head))) > room + 2:
        head = head[: len(head) * room // size]
    return head
