"""Headers to bytes and back, for every plane, whatever the other side sends.

A `decode_*` function returns a message of its own plane or raises `MalformedError`; there is no
third way, so a receive loop needs to catch only that.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar, cast

import msgspec

from interlock.bus.errors import MalformedError, TooLargeError
from interlock.bus.messages import (
    MAX_HEADER,
    MAX_MESSAGE,
    MAX_NESTING,
    ApiAnswer,
    ApiRequest,
    ControlDown,
    ControlUp,
    DataDown,
    DataUp,
)

if TYPE_CHECKING:
    from interlock.bus.events import AnyEvent

Encoding = Literal["msgpack", "json"]
"""How a header is written; bodies are JSON in either case."""

_JSON_OBJECT: Final = 0x7B
"""`{`: no msgpack map begins with it, so the first byte of a data header tells its encoding."""

T = TypeVar("T")
S = TypeVar("S", bound=msgspec.Struct)

_to_msgpack = msgspec.msgpack.Encoder().encode
_to_json = msgspec.json.Encoder().encode
_any_msgpack = msgspec.msgpack.Decoder().decode
_any_json = msgspec.json.Decoder().decode

_FEW_PARTS: Final = 100
"""Values of a document that are walked through before its brackets are counted."""

_HOSTILE: Final = (msgspec.MsgspecError, RecursionError, UnicodeError, ValueError, OverflowError)
"""All that a msgspec decoder raises for bytes that are not what it expects."""


class _Numbered(msgspec.Struct):
    """All that is read of a request that is not understood: who sent it may not be known."""

    id: int = 0


class _Decoders:
    """The decoder of each plane, built at its first use.

    Building all of them takes longer than most commands of `interlock`, which need one.
    """

    @cached_property
    def control_up(self) -> Callable[[bytes], ControlUp]:
        return msgspec.msgpack.Decoder(ControlUp).decode

    @cached_property
    def control_down(self) -> Callable[[bytes], ControlDown]:
        return msgspec.msgpack.Decoder(ControlDown).decode

    @cached_property
    def data_up(self) -> Callable[[bytes], DataUp]:
        return msgspec.msgpack.Decoder(DataUp).decode

    @cached_property
    def data_up_json(self) -> Callable[[bytes], DataUp]:
        return msgspec.json.Decoder(DataUp).decode

    @cached_property
    def data_down(self) -> Callable[[bytes], DataDown]:
        return msgspec.msgpack.Decoder(DataDown).decode

    @cached_property
    def data_down_json(self) -> Callable[[bytes], DataDown]:
        return msgspec.json.Decoder(DataDown).decode

    @cached_property
    def request(self) -> Callable[[bytes], ApiRequest]:
        return msgspec.msgpack.Decoder(ApiRequest).decode

    @cached_property
    def request_json(self) -> Callable[[bytes], ApiRequest]:
        return msgspec.json.Decoder(ApiRequest).decode

    @cached_property
    def answer(self) -> Callable[[bytes], ApiAnswer]:
        return msgspec.msgpack.Decoder(ApiAnswer).decode

    @cached_property
    def answer_json(self) -> Callable[[bytes], ApiAnswer]:
        return msgspec.json.Decoder(ApiAnswer).decode

    @cached_property
    def event(self) -> Callable[[bytes], AnyEvent]:
        from interlock.bus.events import AnyEvent

        return msgspec.msgpack.Decoder(AnyEvent).decode

    @cached_property
    def event_json(self) -> Callable[[bytes], AnyEvent]:
        from interlock.bus.events import AnyEvent

        return msgspec.json.Decoder(AnyEvent).decode

    def build(self) -> None:
        """Build all, for a process that others are forked from."""
        for name, found in vars(_Decoders).items():
            if isinstance(found, cached_property):
                getattr(self, name)


_decoders: Final = _Decoders()
build_decoders = _decoders.build


def encode(message: msgspec.Struct, encoding: Encoding = "msgpack") -> bytes:
    """Write a message, event or item as one header frame.

    Raises `MalformedError` for what no encoding can carry (lone surrogates, integers over 64 bits).
    """
    try:
        return _to_msgpack(message) if encoding == "msgpack" else _to_json(message)
    except (UnicodeError, OverflowError) as error:
        raise MalformedError(f"This message cannot be written: {error}") from None


def writable(text: str) -> str:
    """Return `text` with `?` for what cannot be sent: lone surrogates.

    They come from JSON texts and from file names and variables that are no UTF-8.
    """
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")


def mended(message: S) -> S:
    """Return the message with all its texts `writable`; for one that `encode` refuses.

    Raises `MalformedError` for what no mending helps.
    """
    try:
        plain = msgspec.to_builtins(message, builtin_types=(bytes, bytearray))
        return msgspec.convert(_writable(plain), type(message))
    except _HOSTILE as error:
        raise MalformedError(f"This message cannot be written: {error}") from None


def encoding_of(frame: bytes) -> Encoding:
    """Tell the encoding of a data plane header from its first byte."""
    return "json" if frame[:1] == b"{" else "msgpack"


def api_encoding(frame: bytes) -> Encoding:
    """Read the first frame of an api or events message; raises `MalformedError` for others."""
    if frame == b"msgpack":
        return "msgpack"
    if frame == b"json":
        return "json"
    raise MalformedError("The first frame must be `msgpack` or `json`.")


def decode_control_up(frame: bytes) -> ControlUp:
    """Read a header that a worker sent to the supervisor."""
    if len(frame) > MAX_HEADER:
        raise TooLargeError(len(frame), MAX_HEADER)
    try:
        return _decoders.control_up(frame)
    except _HOSTILE as error:
        raise _malformed(error) from None


def decode_control_down(frame: bytes) -> ControlDown:
    """Read a header that the supervisor sent to a worker."""
    if len(frame) > MAX_HEADER:
        raise TooLargeError(len(frame), MAX_HEADER)
    try:
        return _decoders.control_down(frame)
    except _HOSTILE as error:
        raise _malformed(error) from None


def decode_data_up(frame: bytes) -> DataUp:
    """Read a header that a caller sent to its target, in either encoding."""
    if len(frame) > MAX_HEADER:
        raise TooLargeError(len(frame), MAX_HEADER)
    try:
        if frame and frame[0] == _JSON_OBJECT:
            return _decoders.data_up_json(frame)
        return _decoders.data_up(frame)
    except _HOSTILE as error:
        raise _malformed(error) from None


def decode_data_down(frame: bytes) -> DataDown:
    """Read a header that a target sent to its caller, in either encoding."""
    if len(frame) > MAX_HEADER:
        raise TooLargeError(len(frame), MAX_HEADER)
    try:
        if frame and frame[0] == _JSON_OBJECT:
            return _decoders.data_down_json(frame)
        return _decoders.data_down(frame)
    except _HOSTILE as error:
        raise _malformed(error) from None


def decode_api_request(encoding: bytes, frame: bytes) -> ApiRequest:
    """Read a client's request; `encoding` is the first frame of its message."""
    if len(frame) > MAX_HEADER:
        raise TooLargeError(len(frame), MAX_HEADER)
    decode = _decoders.request if api_encoding(encoding) == "msgpack" else _decoders.request_json
    try:
        return decode(frame)
    except _HOSTILE as error:
        raise _malformed(error) from None


def decode_api_answer(encoding: bytes, frame: bytes) -> ApiAnswer:
    """Read the supervisor's answer; `encoding` is the first frame of its message."""
    if len(frame) > MAX_HEADER:
        raise TooLargeError(len(frame), MAX_HEADER)
    decode = _decoders.answer if api_encoding(encoding) == "msgpack" else _decoders.answer_json
    try:
        return decode(frame)
    except _HOSTILE as error:
        raise _malformed(error) from None


def read_answer(frames: list[bytes]) -> tuple[ApiAnswer, bytes | None] | None:
    """Read a whole message from the supervisor to a client; None if it is none."""
    if len(frames) not in (2, 3):
        return None
    try:
        message = decode_api_answer(frames[0], frames[1])
    except MalformedError:
        return None
    return message, frames[2] if len(frames) == 3 else None


def request_id(encoding: bytes, frame: bytes) -> int:
    """Find the id in a request that could not be read as a whole, 0 if it has none.

    With it an unknown or invalid request still gets a coded answer that its sender can match.
    """
    if len(frame) > MAX_HEADER:
        return 0
    try:
        if api_encoding(encoding) == "msgpack":
            found = msgspec.msgpack.decode(frame, type=_Numbered).id
        else:
            found = msgspec.json.decode(frame, type=_Numbered).id
    except (MalformedError, *_HOSTILE):
        return 0
    return found if 0 <= found < 1 << 63 else 0


def decode_event(encoding: bytes, frame: bytes) -> AnyEvent | dict[str, Any]:
    """Read an event; one of a topic that this version does not know comes as a plain dict.

    Such a dict still has `topic`, `epoch` and `seq`, so a subscriber keeps its place in the
    sequence. Raises `MalformedError` for everything else.
    """
    if len(frame) > MAX_HEADER:
        raise TooLargeError(len(frame), MAX_HEADER)
    chosen = api_encoding(encoding)
    decode = _decoders.event if chosen == "msgpack" else _decoders.event_json
    try:
        return decode(frame)
    except _HOSTILE:
        pass  # perhaps a newer supervisor's topic: read it without its type
    event = _plain(chosen, frame)
    fields = (("topic", str), ("epoch", str), ("seq", int))
    if any(type(event.get(name)) is not kind for name, kind in fields):
        raise MalformedError("This is not an event: topic, epoch or seq is missing.")
    return event


def check_json(body: bytes, limit: int = MAX_MESSAGE) -> Any:
    """Parse a JSON body that somebody has to look into, within bounds of size and depth.

    `limit` is in bytes. Raises `TooLargeError`, and `MalformedError` for what is not JSON or is
    nested deeper than `MAX_NESTING`.
    """
    if len(body) > limit:
        raise TooLargeError(len(body), limit)
    try:
        document = _any_json(body)
    except _HOSTILE as error:
        raise _malformed(error) from None
    _check_depth(body, document)
    return document


def decode_as(body: bytes, kind: type[T], limit: int = MAX_MESSAGE) -> T:
    """Parse a JSON body into `kind`; raises as `check_json`, also for a wrong type."""
    if len(body) > limit:
        raise TooLargeError(len(body), limit)
    try:
        return msgspec.json.decode(body, type=kind)
    except _HOSTILE as error:
        raise _malformed(error) from None


def _writable(value: Any) -> Any:
    if isinstance(value, str):
        return writable(value)
    if isinstance(value, dict):
        return {_writable(key): _writable(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_writable(inner) for inner in value]
    return value


def _plain(encoding: Encoding, frame: bytes) -> dict[str, Any]:
    if len(frame) > MAX_HEADER:
        raise TooLargeError(len(frame), MAX_HEADER)
    try:
        document = _any_msgpack(frame) if encoding == "msgpack" else _any_json(frame)
    except (*_HOSTILE, TypeError) as error:  # TypeError: a map key that cannot be hashed
        raise _malformed(error) from None
    if not isinstance(document, dict):
        raise MalformedError("A header is an object.")
    return cast("dict[str, Any]", document)


def _check_depth(body: bytes, document: Any) -> None:
    if len(body) <= MAX_NESTING:
        return
    # A walk is cheap where there are few parts, however long their texts are. With many parts
    # counting the brackets is cheaper, and it settles nearly every body.
    level, parts = [document], 0
    for _ in range(MAX_NESTING + 1):
        inner: list[Any] = []
        for value in level:
            if isinstance(value, dict):
                inner.extend(value.values())
            elif isinstance(value, list):
                inner.extend(value)
        if not inner:
            return
        if parts <= _FEW_PARTS < parts + len(inner):
            if body.count(b"[") + body.count(b"{") <= MAX_NESTING:
                return
        level, parts = inner, parts + len(inner)
    raise MalformedError(f"A document is nested deeper than {MAX_NESTING} levels.")


def _malformed(error: Exception) -> MalformedError:
    if isinstance(error, RecursionError):
        return MalformedError(f"A document is nested deeper than {MAX_NESTING} levels.")
    return MalformedError(f"These bytes are not a message: {error}")
