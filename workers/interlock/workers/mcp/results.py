"""Results of tool calls: telling success from failure."""

from __future__ import annotations

from typing import Final, Literal

import msgspec

from interlock.bus.codec import check_json
from interlock.bus.errors import InterlockError
from interlock.workers.looks import look
from interlock.workers.mcp.frames import RpcError, json_string

INVALID_PARAMS: Final = -32602
CHECKED: Final = 256 << 10
"""Bytes of a result up to which all its values are looked at."""


Outcome = Literal["ok", "tool_error"]


class _Flag(msgspec.Struct, rename="camel"):
    is_error: bool = False


class _Shape(msgspec.Struct):
    content: list[msgspec.Raw] = []


class _Known(msgspec.Struct, omit_defaults=True):
    """The fields that MCP names; others are passed over, however many there are."""

    content: msgspec.Raw = msgspec.Raw(b"")
    structuredContent: msgspec.Raw = msgspec.Raw(b"")  # noqa: N815
    isError: msgspec.Raw = msgspec.Raw(b"")  # noqa: N815
    _meta: msgspec.Raw = msgspec.Raw(b"")


_SHAPE = msgspec.json.Decoder(_Shape)
_KNOWN = msgspec.json.Decoder(_Known)
_FIELDS = msgspec.json.Decoder(dict[str, msgspec.Raw])
_LIST = msgspec.json.Decoder(list[msgspec.Raw])
_STRING = msgspec.json.Decoder(str)
_FLAG = msgspec.json.Decoder(_Flag)
_SUFFIX: Final = b'"isError":false}'


def is_result(body: bytes) -> bool:
    """Whether an answer can be a tool result at all: a JSON object."""
    return body[:1] == b"{"


def fit(body: bytes) -> bytes:
    """Return a result in a form that all readers read alike; most are returned as they are.

    Of one with values that not everybody can read the rest is kept, and a text says what is
    missing. Raises ValueError with the reason if nothing of it is a tool's result. Of a large
    result no object is made of each value, and of its fields only those that MCP names are kept.

    >>> fit(b'{"content":"hello"}')
    b'{"content":[{"type":"text","text":"hello"}]}'
    """
    if len(body) > CHECKED:
        return _rest(body) if look(body) is None else body
    try:
        _SHAPE.decode(body)  # a small one costs less so
        check_json(body)
    except (msgspec.MsgspecError, RecursionError, InterlockError):
        return _rest(body)
    return body


def _fields(body: bytes) -> dict[str, msgspec.Raw]:
    if len(body) <= CHECKED:
        return _FIELDS.decode(body)
    known = msgspec.structs.asdict(_KNOWN.decode(body))
    return {name: raw for name, raw in known.items() if len(raw)}


def _rest(body: bytes) -> bytes:
    try:
        fields = _fields(body)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise ValueError("it is not valid JSON") from error
    lost: list[str] = []
    items = _items(fields.pop("content", msgspec.Raw(b"[]")), lost)
    kept = {name: raw for name, raw in fields.items() if _readable(name, raw, lost)}
    if not items and "structuredContent" not in kept:
        raise ValueError("; ".join(lost))
    if lost:
        items.append(_text(f"[Left out of this result: {'; '.join(lost[:20])}]"))
    return msgspec.json.encode({"content": items} | kept)


def _items(raw: msgspec.Raw, lost: list[str]) -> list[msgspec.Raw]:
    match bytes(raw).lstrip()[:1]:
        case b"[":
            found = enumerate(_LIST.decode(raw), 1)
            return [one for n, one in found if _readable(f"item {n}", one, lost)]
        case b"{" if _readable("content", raw, lost):
            return [raw]
        case b'"':
            return [_text(_STRING.decode(raw))]
    if not lost:
        lost.append("its content is no list")
    return []


def _readable(what: str, raw: msgspec.Raw, lost: list[str]) -> bool:
    if len(raw) > CHECKED:
        return True  # as in a large result that is as it should be
    try:
        check_json(b'{"":[%b]}' % bytes(raw))
    except InterlockError as error:
        lost.append(f"{what} ({error.message.partition(' - at')[0].rstrip('.')})")
        return False
    return True


def _text(text: str) -> msgspec.Raw:
    return msgspec.Raw(b'{"type":"text","text":%b}' % json_string(text))


def is_error(body: bytes) -> bool:
    """Whether a tool result says that the tool failed. Looks into the body only where it must.

    >>> is_error(b'{"content":[],"isError":true}'), is_error(b'{"content":[]}')
    (True, False)
    """
    if body.endswith(_SUFFIX) or b'"isError"' not in body:
        return False
    try:
        return _FLAG.decode(body).is_error
    except (msgspec.MsgspecError, RecursionError):
        return True


def error_body(message: str) -> bytes:
    """Return a tool result that says `message` and that the tool failed.

    >>> error_body("no")
    b'{"content":[{"type":"text","text":"no"}],"isError":true}'
    """
    return b'{"content":[{"type":"text","text":%b}],"isError":true}' % json_string(message)


def is_argument_error(error: RpcError) -> bool:
    """Whether a JSON-RPC error means that the arguments were wrong."""
    return error.code == INVALID_PARAMS
