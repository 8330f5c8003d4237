"""Tickets: signed, expiring permissions to call named capabilities of one generation of a worker.

Text form: `v1.CLAIMS.MAC`, both parts base64url without padding. CLAIMS is msgpack, MAC is
HMAC-SHA256 under the target's key over the text before the last dot. Pure: the clock is an
argument.
"""

from __future__ import annotations

import binascii
import hashlib
import hmac
import json
import re
from typing import Any, Final

import msgspec

from interlock.bus.errors import MalformedError, TicketError, TooLargeError
from interlock.bus.limits import MAX_ARGUMENTS, MAX_VALUES
from interlock.bus.messages import TICKET_LIFE

MAX_TICKET: Final = 256 << 10
"""Characters of one ticket."""
CLOCK_SLACK: Final = 5.0
"""Seconds by which a ticket may outlive `TICKET_LIFE` before it is taken for a forgery."""


class TicketClaims(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a ticket permits. Its text form is a secret, the claims are not."""

    id: str
    caller: str
    """Name of the worker or client that may use it."""
    target: str
    """Name of the worker that serves it."""
    generation: int
    names: tuple[str, ...]
    """Local names of the capabilities that may be called."""
    turn: str = ""
    expires: float
    """Unix seconds."""
    digest: str = ""
    """`arguments_digest` of the only arguments permitted; empty = any."""
    single_use: bool = False
    issued: float = 0.0
    """Unix seconds; decides whether a `revoke` by turn or caller came after it. 0 = unknown."""

    @property
    def issued_at(self) -> float:
        """Unix seconds of issue; where it is not said, the earliest that is possible."""
        return self.issued or self.expires - TICKET_LIFE


_encode = msgspec.msgpack.Encoder().encode
_VALUES: Final = (b",", b"[", b"{")
"""One of them stands before each value but those that follow a key."""
_STRING: Final = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)
_decode = msgspec.msgpack.Decoder(TicketClaims).decode


def mint(key: bytes, claims: TicketClaims) -> str:
    """Sign claims under the target's key."""
    signed = b"v1." + _b64(_encode(claims))
    return (signed + b"." + _mac(key, signed)).decode()


def verify(
    key: bytes, token: str, now: float, target: str, generation: int, caller: str | None = None
) -> TicketClaims:
    """Check a ticket in full and return its claims; raises `TicketError` with the reason.

    `now` is in Unix seconds. `caller`: who presents it, None if that is not known yet.
    """
    signed, mac = _split(token)
    if not hmac.compare_digest(_mac(key, signed), mac):
        raise TicketError("forged")
    claims = _claims(signed)
    if claims.target != target:
        raise TicketError("wrong_target")
    if claims.generation != generation:
        raise TicketError("wrong_generation")
    if caller is not None and claims.caller != caller:
        raise TicketError("wrong_caller")
    if not claims.expires > now:
        raise TicketError("expired")
    if claims.expires > now + TICKET_LIFE + CLOCK_SLACK:
        raise TicketError("malformed")
    return claims


def peek(token: str) -> TicketClaims:
    """Read a ticket's claims without the key, so without any proof; raises `TicketError`.

    For its holder, who needs the id to name it in calls.
    """
    return _claims(_split(token)[0])


def arguments_digest(body: bytes) -> str:
    """Digest of a call's arguments, the same for every spelling of the same JSON object.

    SHA-256, 64 hex digits, over sorted keys without spaces. Raises as `read_arguments`.
    """
    return read_arguments(body)[1]


def read_arguments(body: bytes) -> tuple[dict[str, Any], str]:
    """Arguments as an object, and their digest.

    Raises `MalformedError` for what is no JSON object, for more than `MAX_ARGUMENTS` bytes or
    `MAX_VALUES` values, and for a key that occurs twice: servers disagree on which of the two
    counts.
    """
    if len(body) > MAX_ARGUMENTS:
        raise TooLargeError(len(body), MAX_ARGUMENTS)
    if _values(body) > MAX_VALUES:
        raise MalformedError(f"Arguments may have at most {MAX_VALUES} values here.")
    try:
        document = json.loads(
            body.decode("utf-8"), object_pairs_hook=_unique, parse_constant=_no_constant
        )
        if not isinstance(document, dict):
            raise MalformedError("Arguments are a JSON object.")
        text = json.dumps(document, sort_keys=True, separators=(",", ":"), allow_nan=False)
    except (ValueError, RecursionError) as error:
        raise MalformedError(f"Arguments are a JSON object: {error}") from None
    return document, hashlib.sha256(text.encode("ascii")).hexdigest()


def _values(body: bytes) -> int:
    """About how many values a JSON text has, a little more at most if these are many."""
    found = sum(map(body.count, _VALUES))
    return found if found <= MAX_VALUES else sum(map(_STRING.sub(b"", body).count, _VALUES))


def _split(token: str) -> tuple[bytes, bytes]:
    if len(token) > MAX_TICKET or not token.isascii():
        raise TicketError("malformed")
    signed, dot, mac = token.encode("ascii").rpartition(b".")
    if not dot or not signed.startswith(b"v1."):
        raise TicketError("malformed")
    return signed, mac


def _claims(signed: bytes) -> TicketClaims:
    text = signed[3:]
    try:
        packed = binascii.a2b_base64(
            text.translate(_FROM_URL) + b"=" * (-len(text) % 4), strict_mode=True
        )
        return _decode(packed)
    except (binascii.Error, msgspec.MsgspecError, RecursionError, UnicodeError):
        raise TicketError("malformed") from None


def _mac(key: bytes, signed: bytes) -> bytes:
    return _b64(hmac.digest(key, signed, "sha256"))


def _b64(data: bytes) -> bytes:
    return binascii.b2a_base64(data, newline=False).translate(_TO_URL).rstrip(b"=")


_TO_URL: Final = bytes.maketrans(b"+/", b"-_")
_FROM_URL: Final = bytes.maketrans(b"-_", b"+/")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key occurs twice")
    return found


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")
