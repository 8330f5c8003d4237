"""Results of tool calls: telling success from failure."""

from __future__ import annotations

from typing import Final, Literal

import msgspec

from interlock.workers.mcp.frames import RpcError, json_string

INVALID_PARAMS: Final = -32602


Outcome = Literal["ok", "tool_error"]


class _Flag(msgspec.Struct, rename="camel"):
    is_error: bool = False


_FLAG = msgspec.json.Decoder(_Flag)
_SUFFIX: Final = b'"isError":false}'


def is_result(body: bytes) -> bool:
    """Whether an answer can be a tool result at all: a JSON object."""
    return body[:1] == b"{"


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
