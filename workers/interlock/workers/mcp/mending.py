"""Lines that are no strict JSON: what can be read all the same, and why the rest cannot; pure."""

from __future__ import annotations

import re
from typing import Any, Final, NamedTuple

import msgspec

from interlock.workers.looks import beginning, items
from interlock.workers.mcp.frames import (
    Frame,
    find_own_id,
    mend_halves,
    mend_places,
    read_frame,
)
from interlock.workers.mcp.lines import KEPT_OF_LONG

MAX_MENDED: Final = 8 << 20
"""Bytes of a line up to which it is mended; looking for what is wrong takes long."""
_BOM: Final = b"\xef\xbb\xbf"
_TEXT: Final = rb'"(?:[^"\\]++|\\.)*+(?:"|\\?\Z)'
_NUMBER: Final = rb"-?\b(?:Infinity|NaN)\b"
_NUMBERS = re.compile(
    rb'((?:[^"NI-]++|%b|(?!%b)[NI-])*+)(%b|\Z)' % (_TEXT, _NUMBER, _NUMBER), re.DOTALL
)
_ODD_TEXTS = re.compile(
    rb'((?:[^"]++|"(?:[^"\\\x00-\x1f]++|\\[^\x00-\x1f])*+")*+)(%b|\Z)' % _TEXT, re.DOTALL
)
_ANSWERS = re.compile(rb'"(?:result|error)"\s*:')
_CONTROL = re.compile(rb"[\x00-\x1f]")
_ESCAPES: Final = {code: f"\\u{code:04x}" for code in range(32)}
MAX_BATCH: Final = 1_000
"""Frames of one array that are read."""
_FIRST: Final[Any] = beginning(MAX_BATCH)
_BATCH = msgspec.json.Decoder(_FIRST)


class Batch(NamedTuple):
    """The frames of an array. `more`: there are further ones, which were not told apart."""

    frames: list[bytes]
    more: bool = False


def batch_of(line: bytes) -> Batch:
    """Return the frames of an array, which MCP allowed for a while; nothing for other lines.

    >>> batch_of(b'[{"id":"i1","result":{}}, 5]')
    Batch(frames=[b'{"id":"i1","result":{}}'], more=False)
    """
    try:
        found = items(_BATCH.decode(line))
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return Batch([])
    frames = [frame for one in found[:MAX_BATCH] if (frame := bytes(one))[:1] == b"{"]
    return Batch(frames, len(found) > MAX_BATCH)


class Answered:
    """Finds out whose answer a line is that is no frame: on one line, or the parts of it on many.

    Many servers print what they are asked, in any form, so a line with an id alone ends no call:
    a result or an error has to be there, and no method.
    """

    def __init__(self) -> None:
        self._id: str | None = None
        self._answers = False

    def find(self, line: bytes) -> str | None:
        """Return the id of our request that the line answers, or ends the signs of it."""
        ends = line if len(line) <= 2 * KEPT_OF_LONG else line[:KEPT_OF_LONG] + line[-KEPT_OF_LONG:]
        whole = ends.lstrip().removeprefix(_BOM)[:1] == b"{" and len(ends.strip()) > 1
        if whole or not ends[:1].isspace():
            self._id, self._answers = None, False
        if b'"' not in ends or b'"method"' in ends:
            return None
        if whole:
            answers = _ANSWERS.search(ends) is not None
            return find_own_id(ends) if answers and not _is_json(line) else None
        if ends[:1].isspace():
            self._id = self._id or find_own_id(ends)
            self._answers = self._answers or _ANSWERS.match(ends.lstrip()) is not None
        return self._id if self._answers else None


def mended_frame(line: bytes) -> tuple[bytes, Frame | None]:
    """Return the line as it can be read, and its envelope; None if it cannot be.

    NaN and Infinity, which Python and others write, become null; control characters inside texts
    are escaped, halves of characters replaced, and a byte order mark is left out.

    >>> mended_frame(b'{"id":"i1","result":{"a":[NaN,-Infinity,"NaN"]}}')[0]
    b'{"id":"i1","result":{"a":[null,null,"NaN"]}}'
    """
    if len(line) > MAX_MENDED:
        return line, None
    line = mend_halves(line.removeprefix(_BOM))
    if _CONTROL.search(line):
        line = mend_places(line, _ODD_TEXTS, _escaped)
    if b"NaN" in line or b"Infinity" in line:
        line = mend_places(line, _NUMBERS, lambda _: b"null")
    return line, read_frame(line)


def fault_of(line: bytes) -> str:
    """Say what is wrong with a line that is no frame, as the end of a sentence."""
    first = line.lstrip()[:1]
    if first != b"{":
        return "it is a part of a document that has more than one line"
    try:
        msgspec.json.decode(line, type=Frame)
    except RecursionError:
        return "it is nested too deeply"
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        return str(error)
    return "it is no answer"


def _is_json(line: bytes) -> bool:
    try:
        msgspec.json.decode(line, type=msgspec.Raw)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return False
    return True


def _escaped(text: bytes) -> bytes:
    return text.decode("latin-1").translate(_ESCAPES).encode("latin-1")
