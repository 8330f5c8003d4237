"""Pure: what of a tool result or of arguments a turn item carries itself."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import msgspec

from interlock.bus.codec import check_json
from interlock.bus.errors import MalformedError
from interlock.bus.messages import RESULT_INLINE

_FRAME: Final = 512
"""Bytes kept free for the note and for the items' own braces."""
_ENDING_MAX: Final = 8 << 10
"""Bytes of the note and the path with which a worker that cut a result itself ends it."""

_LAST_MAX: Final = 1 << 10
"""Bytes up to which a last item is kept: it often says what the rest is."""


class Whole(NamedTuple):
    """Where the whole of a cut result is: its `path`, or none and the `problem`."""

    path: str = ""
    problem: str = ""
    named: bool = False
    """The result was cut before: its last two items are a note about that and the path."""


class _Result(msgspec.Struct):
    content: list[msgspec.Raw] = []
    structuredContent: msgspec.Raw = msgspec.Raw()  # noqa: N815 - as MCP writes it


class _Text(msgspec.Struct):
    type: str = ""
    text: str = ""


def shown_result(body: bytes, whole: Whole | None = None) -> tuple[Any, Any]:
    """Return content and structured content for a turn item, at most `RESULT_INLINE` bytes.

    What is over is cut, with a text item that names the whole size; the last item is the path of
    the whole, if there is one. A body that is no MCP result becomes one text item that says so.
    """
    try:
        # Raw values are passed on unread, so their UTF-8 and depth are checked here.
        body.decode()
        if len(body) <= RESULT_INLINE:
            check_json(body)
        result = msgspec.json.decode(body, type=_Result)
    except (MalformedError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return [text_item("[a result that cannot be read]")], None
    if len(body) <= RESULT_INLINE:
        return result.content, result.structuredContent if len(result.structuredContent) else None
    return _cut(result.content, len(body), whole or Whole()), None


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
    try:
        content = msgspec.json.decode(body, type=_Result).content
        return _text_of(content[-1]) if len(content) > 1 and _ends_small(content) else ""
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return ""


def _ends_small(content: list[msgspec.Raw]) -> bool:
    return sum(map(len, content[-2:])) <= _ENDING_MAX


def _ending(content: list[msgspec.Raw], named: bool) -> list[msgspec.Raw]:
    """Return the last items that are kept whatever is cut: a note and a path, or a small one."""
    last = content[-2:] if named else content[-1:]
    size = sum(map(len, last))
    small = size <= _ENDING_MAX if named else len(content) > 1 and size <= _LAST_MAX
    return last if small and all(_fits(bytes(item)) for item in last) else []


def _cut(content: list[msgspec.Raw], size: int, whole: Whole) -> list[Any]:
    last = _ending(content, whole.named)
    problem = msgspec.json.encode(whole.problem)
    path = [text_item(whole.path)] if whole.path and not (whole.named and last) else []
    room = RESULT_INLINE - _FRAME - sum(map(len, last)) - len(problem)
    room -= len(msgspec.json.encode(path))
    kept: list[Any] = []
    left_out = 0
    for item in content[: len(content) - len(last)]:
        if len(item) <= room and _fits(bytes(item)):
            kept.append(item)
            room -= len(item)
            continue
        text = _text_of(item)
        if text and room > _FRAME:
            kept.append(text_item(_prefix(text, room)))
            room = 0
        left_out += 1
    note = f"cut here: this shows the beginning of a result of {size} bytes"
    if left_out:
        note += f"; {left_out} of {len(content)} items are not whole"
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


def _text_of(item: msgspec.Raw) -> str:
    try:
        text = msgspec.json.decode(item, type=_Text)
    except (msgspec.MsgspecError, RecursionError):
        return ""
    return text.text if text.type == "text" else ""


def _prefix(text: str, room: int) -> str:
    """Return the longest beginning whose JSON form surely fits into `room` bytes."""
    part = text[:room]
    while len(msgspec.json.encode(text_item(part))) > room:
        part = part[: len(part) * 3 // 4]
    return part
