"""What a caller passes to a client, checked and written before anything of it is sent. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from interlock.bus.codec import encode
from interlock.bus.errors import MalformedError, UsageError
from interlock.bus.limits import MAX_HEADER, MAX_MESSAGE, MAX_TEXT
from interlock.bus.messages import Request

LONGEST: Final = 1e9
"""Seconds that any time may have at most."""

_to_json = msgspec.json.Encoder().encode


def check_times(*seconds: float | None) -> None:
    """Raise UsageError for times that no call or turn can have; None stands for the usual one."""
    for time_limit in seconds:
        if time_limit is None:
            continue
        if not isinstance(time_limit, int | float) or not 0 < time_limit <= LONGEST:
            raise UsageError(
                "A time limit is a number of seconds above 0 and at most a billion; "
                "leave it out for the usual."
            )


def encode_text(text: str) -> bytes:
    """Write the text of a request as JSON. Raises UsageError where it cannot be sent."""
    if not isinstance(text, str):
        raise UsageError("The text of a request must be text.")
    try:
        body = _to_json(text)
    except UnicodeError:
        raise UsageError("This text is not UTF-8; write it again as UTF-8.") from None
    if len(body) > MAX_TEXT:
        raise UsageError(
            f"A text has at most {MAX_TEXT >> 20} MiB, this one has {len(body)} bytes as JSON; "
            "write it to a file and name that."
        )
    return body


def encode_arguments(arguments: Mapping[str, Any] | None) -> bytes:
    """Write arguments as JSON. Raises UsageError for what JSON cannot say."""
    if type(arguments) is not dict:
        if arguments is not None and not isinstance(arguments, Mapping):
            raise UsageError("Arguments are a mapping from names to values.")
        arguments = dict(arguments or {})
    try:
        body = _to_json(arguments)
    except UnicodeError:
        raise UsageError("A text in these arguments is not UTF-8.") from None
    except OverflowError:
        raise UsageError(
            "These arguments hold a whole number of more than 64 bits; pass it as text."
        ) from None
    except RecursionError:
        raise UsageError("These arguments are nested too deeply.") from None
    except (TypeError, ValueError, msgspec.MsgspecError) as error:
        raise UsageError(f"These arguments cannot be written as JSON: {error}") from None
    if len(body) > MAX_MESSAGE:
        raise UsageError(f"Arguments have at most {MAX_MESSAGE >> 20} MiB; pass a file's name.")
    # The encoder writes null for them, so that most bodies need no second look.
    if b"null" in body and not all(map(math.isfinite, _floats(msgspec.to_builtins(arguments)))):
        raise UsageError("These arguments hold NaN or an infinite number; JSON has none.")
    return body


def encode_request(kind: type[Request], request_id: int, key: str, fields: dict[str, Any]) -> bytes:
    """Write the header of a request. Raises UsageError that names the field that cannot be sent."""
    try:
        header = encode(kind(id=request_id, key=key, **fields))
    except TypeError as error:
        raise UsageError(f"This is no {kind.__name__} request: {error}") from None
    except MalformedError:
        raise UsageError(_unsendable(fields)) from None
    if len(header) > MAX_HEADER:
        name = max(fields, key=lambda name: len(str(fields[name])))
        raise UsageError(f"`{name}` is too long; all fields together have at most 1 MiB.")
    return header


def _unsendable(fields: Mapping[str, Any]) -> str:
    for name, value in fields.items():
        if isinstance(value, int) and value.bit_length() > 63:
            return f"`{name}` is too large a number."
        if isinstance(value, str) and not _is_utf8(value):
            return f"`{name}` is not UTF-8 text."
    return "A field of this request cannot be sent."


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _floats(value: Any) -> Iterable[float]:
    """Yield every float inside a value that JSON can say."""
    waiting = [value]
    while waiting:
        value = waiting.pop()
        if isinstance(value, float):
            yield value
        elif isinstance(value, Mapping):
            waiting += value.values()
        elif isinstance(value, (list, tuple, set, frozenset)):
            waiting += value
