"""JSON-RPC frames as bytes: reading envelopes and building requests without touching payloads."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

import msgspec

_LONE_ID = re.compile(rb'"id"\s*:\s*"(i[0-9]{1,18})"')
_HALF = rb"\\u[dD][89a-fA-F][0-9a-fA-F]{2}"
_PAIR = rb"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
_LONE = re.compile(rb"((?:[^\\]++|%b|(?!%b)\\.?)*+)(%b|\Z)" % (_PAIR, _HALF, _HALF), re.DOTALL)
MAX_ESCAPES: Final = 4 << 20
"""Backslashes of a line up to which halves are looked for; it takes about a second."""
MAX_MENDS: Final = 200_000
"""Places of a line that are mended; one with more stays unreadable."""
_LINE_BREAKS = bytes.maketrans(b"\r\n", b"  ")
NOTHING: Final = msgspec.Raw(b"")
"""A payload that a frame does not have."""


class Frame(msgspec.Struct):
    """Envelope of a frame; the payloads stay as the server wrote them.

    A missing payload is empty. `id` is None in notifications.
    """

    id: str | int | float | None = None
    method: str | None = None
    params: msgspec.Raw = NOTHING
    result: msgspec.Raw = NOTHING
    error: msgspec.Raw = NOTHING


class RpcError(msgspec.Struct):
    """The error of a JSON-RPC answer."""

    code: int = 0
    message: str = ""


class _AnyObject(msgspec.Struct):
    """A JSON object, of whose fields none is kept."""


_FRAME = msgspec.json.Decoder(Frame)
_ERROR = msgspec.json.Decoder(RpcError)
_STRING = msgspec.json.Encoder()
_OBJECT = msgspec.json.Decoder(_AnyObject)


def read_frame(line: bytes) -> Frame | None:
    """Return the envelope of `line`, or None if it is no JSON-RPC frame. Never raises.

    >>> read_frame(b"Listening on port 80") is None
    True
    """
    if line[:1] != b"{" and line.lstrip()[:1] != b"{":
        return None
    try:
        frame = _FRAME.decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    return None if frame.method is None and frame.id is None else frame


def read_error(raw: bytes) -> RpcError:
    """Return the error of an answer; an unreadable one becomes code 0 with an empty message."""
    try:
        return _ERROR.decode(mend_text(raw))
    except (msgspec.MsgspecError, RecursionError):
        return RpcError()


def find_own_id(line: bytes) -> str | None:
    """Find one of our ids in the ends of an over-long line."""
    match = _LONE_ID.search(line)
    return match[1].decode() if match else None


def mend_text(raw: bytes) -> bytes:
    """Return `raw` as valid UTF-8: wrong bytes become U+FFFD. Valid text is returned as it is.

    The envelope decoder does not look into payloads, so this is done for whatever leaves.
    """
    if raw.isascii():
        return raw
    try:
        raw.decode()
    except UnicodeDecodeError:
        return raw.decode(errors="replace").encode()
    return raw


def one_line(body: bytes) -> bytes:
    """Return JSON text without line breaks; inside JSON strings there are none."""
    # Bytes are looked for by their numbers, which costs a quarter of looking for texts.
    return body.translate(_LINE_BREAKS) if 10 in body or 13 in body else body


def is_object(body: bytes) -> bool:
    """Whether `body` is one JSON object, so that it can stand inside a frame as it is.

    >>> is_object(b'{"a": [1]}'), is_object(b'{"a": 1}, "id": {}')
    (True, False)
    """
    try:
        _OBJECT.decode(body)
        return body.isascii() or bool(body.decode())
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return False


def mend_halves(line: bytes) -> bytes:
    """Return JSON text with U+FFFD for each half of a surrogate pair; others as they are.

    Servers that cut a text in the middle of an emoji write such halves, which no UTF-8 can carry.
    """
    if (b"\\ud" not in line and b"\\uD" not in line) or line.count(b"\\") > MAX_ESCAPES:
        return line
    return mend_places(line, _LONE, lambda _: b"\\ufffd")


def mend_places(line: bytes, places: re.Pattern[bytes], mend: Callable[[bytes], bytes]) -> bytes:
    """Return the line with the first `MAX_MENDS` places mended, in time linear in its length.

    The first group of `places` is all that comes before a place, the second the place itself. It
    has to match everywhere, also an end without a place: whatever is searched for a second time
    makes the time quadratic.
    """
    return places.sub(
        lambda found: found[1] + mend(found[2]) if found[2] else found[1], line, count=MAX_MENDS
    )


def json_string(text: str) -> bytes:
    """Return `text` as a JSON string."""
    return _STRING.encode(text)


def request_line(method: str, params: bytes, request_id: str) -> bytes:
    """Return a request as one line; `params` are the members of its params.

    The request's id is its progress token, too.

    >>> request_line("resources/read", b'"uri":"a:b"', "i7").partition(b'"params":')[2]
    b'{"uri":"a:b","_meta":{"progressToken":"i7"}}}\\n'
    """
    own = request_id.encode()
    return (
        b'{"jsonrpc":"2.0","id":"%b","method":%b,"params":{%b,"_meta":{"progressToken":"%b"}}}\n'
        % (own, json_string(method), one_line(params), own)
    )


def call_line(name: str, arguments: bytes, request_id: str) -> bytes:
    """Return a `tools/call` request as one line; the arguments go in as they came.

    The request's id is its progress token, too.

    >>> call_line("echo", b'{"a":1}', "i7")[49:-2]
    b'"params":{"name":"echo","arguments":{"a":1},"_meta":{"progressToken":"i7"}}'
    """
    own = request_id.encode()
    return (
        b'{"jsonrpc":"2.0","id":"%b","method":"tools/call","params":'
        b'{"name":%b,"arguments":%b,"_meta":{"progressToken":"%b"}}}\n'
        % (own, json_string(name), one_line(arguments), own)
    )
