"""Pure: what of a tool result or of arguments a turn item carries itself."""

from __future__ import annotations

import re
from typing import Any, Final, NamedTuple

import msgspec

from interlock.bus.codec import check_json
from interlock.bus.errors import MalformedError
from interlock.bus.messages import RESULT_INLINE
from interlock.workers.looks import LOOKED_INTO, Look, glance, look, text_of

_FRAME: Final = 512
"""Bytes kept free for the note and for the items' own braces."""
_ENDING_MAX: Final = 8 << 10
"""Bytes of the note and the path with which a worker that cut a result itself ends it."""
_LAST_TEXT: Final = re.compile(rb'(\{"type":"text","text":"(?:[^"\\]|\\.)*"\})\]\}\Z', re.DOTALL)
"""How a worker that cut a result itself writes the end of it."""
_LAST_MAX: Final = 1 << 10
"""Bytes up to which a last item is kept: it often says what the rest is."""
_LOOKS: Final = 4 * RESULT_INLINE
"""Bytes of items that are read to see whether they can be shown; some of them cannot."""


class Whole(NamedTuple):
    """Where the whole of a cut result is: its `path`, or none and the `problem`."""

    path: str = ""
    problem: str = ""
    named: bool = False
    """The result was cut before: its last two items are a note about that and the path."""


def shown_result(body: bytes, whole: Whole | None = None) -> tuple[Any, Any]:
    """Return content and structured content for a turn item, at most `RESULT_INLINE` bytes.

    What is over is cut, with a text item that names the whole size; the last item is the path of
    the whole, if there is one. A body that is no MCP result becomes one text item that says so.
    """
    try:
        if len(body) <= RESULT_INLINE:
            check_json(body)
        found = glance(body)
    except MalformedError:
        found = None
    if found is None:
        return [text_item("[a result that cannot be read]")], None
    if len(body) <= RESULT_INLINE:
        return found.content, found.structured if len(found.structured) else None
    return _cut(found, len(body), whole or Whole()), None


def shown_arguments(arguments: bytes, valid: bool) -> Any:
    """Return arguments for a turn item: as written, or as text if they are no JSON object."""
    if len(arguments) > RESULT_INLINE:
        return f"[arguments of {len(arguments)} bytes]"
    return msgspec.Raw(arguments) if valid else arguments.decode("utf-8", "replace")


def arguments_problem(arguments: bytes) -> str:
    """Return why arguments cannot be sent, as the end of a sentence, or an empty text."""
    try:
        # The brackets stand for the turn item that will hold them.
        (value,) = check_json(b"[%b]" % arguments)
    except (MalformedError, ValueError):
        return "the arguments are no JSON, or nested too deep"
    return "" if isinstance(value, dict) else "the arguments have to be a JSON object"


def text_item(text: str) -> dict[str, str]:
    """Return an MCP text item."""
    return {"type": "text", "text": text}


def failure_body(message: str) -> bytes:
    """Return an MCP result that tells a failure to a model."""
    return msgspec.json.encode({"content": [text_item(message)], "isError": True})


def last_text(body: bytes) -> str:
    """Return the text with which a result ends after another item, or an empty text."""
    if len(body) > LOOKED_INTO:
        ending = _LAST_TEXT.search(body[-_ENDING_MAX:])
        return text_of(msgspec.Raw(ending[1])) or "" if ending else ""
    found = look(body)
    if found is None or found.more or len(found.content) < 2 or not _ends_small(found.content):
        return ""
    return text_of(found.content[-1]) or ""


def _ends_small(content: list[msgspec.Raw]) -> bool:
    return sum(map(len, content[-2:])) <= _ENDING_MAX


def _ending(content: list[msgspec.Raw], named: bool) -> list[msgspec.Raw]:
    """Return the last items that are kept whatever is cut: a note and a path, or a small one."""
    last = content[-2:] if named else content[-1:]
    size = sum(map(len, last))
    small = size <= _ENDING_MAX if named else len(content) > 1 and size <= _LAST_MAX
    return last if small and all(_fits(bytes(item)) for item in last) else []


def _cut(found: Look, size: int, whole: Whole) -> list[Any]:
    content = found.content
    last = [] if found.more else _ending(content, whole.named)
    problem = msgspec.json.encode(whole.problem)
    path = [text_item(whole.path)] if whole.path and not (whole.named and last) else []
    room = RESULT_INLINE - _FRAME - sum(map(len, last)) - len(problem)
    room -= len(msgspec.json.encode(path))
    kept: list[Any] = []
    shown, looks = len(last), _LOOKS
    for item in content[: len(content) - len(last)]:
        small = len(item) < min(room, looks)
        looks -= len(item) if small else 0
        if small and _fits(bytes(item)):
            kept.append(item)
            room -= len(item) + 1
            shown += 1
        elif room > _FRAME and (text := text_of(item)):
            kept.append(text_item(_prefix(text, room)))
            room = 0
    note = f"cut here: this shows the beginning of a result of {size} bytes"
    if left_out := found.left_out(shown):
        note += f"; {left_out} are not whole"
    if whole.path:
        note += "; the whole is in the file that is named last"
    else:
        note += "; the whole could not be kept" + (f": {whole.problem}" if whole.problem else "")
    return [*kept, text_item(f"[{note}]"), *last, *path]


def _fits(item: bytes) -> bool:
    try:
        check_json(b"[[%b]]" % item)
    except MalformedError:
        return False
    return True


def _prefix(text: str, room: int) -> str:
    """Return the longest beginning whose JSON form surely fits into `room` bytes."""
    part = text[:room]
    while len(msgspec.json.encode(text_item(part))) > room:
        part = part[: len(part) * 3 // 4]
    return part
