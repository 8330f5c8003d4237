"""A ticket permits exactly what was signed, for as long as it says."""

from __future__ import annotations

import string
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlock.bus.errors import MalformedError, TicketError
from interlock.bus.tickets import TicketClaims, arguments_digest, mint, peek, verify

KEY = bytes(range(32))
NOW = 1_000_000.0


def claims(**changes: Any) -> TicketClaims:
    fields: dict[str, Any] = {
        "id": "t1",
        "caller": "agent:main",
        "target": "mcp:git",
        "generation": 2,
        "names": ("git_status", "git log"),
        "turn": "",
        "expires": NOW + 60,
    }
    return TicketClaims(**(fields | changes))


def check(token: str, **changes: Any) -> TicketClaims:
    fields: dict[str, Any] = {"key": KEY, "now": NOW, "target": "mcp:git", "generation": 2}
    return verify(token=token, **(fields | changes))


def test_what_was_signed_is_what_is_read() -> None:
    signed = claims(digest="d", single_use=True, issued=NOW, turn="t")
    token = mint(KEY, signed)
    assert check(token, caller="agent:main") == signed
    assert check(token) == signed
    assert peek(token) == signed
    assert set(token) <= set(string.ascii_letters + string.digits + "-_.")


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"key": b"other"}, "forged"),
        ({"now": NOW + 60}, "expired"),
        ({"now": NOW - 10}, "malformed"),
        ({"target": "mcp:other"}, "wrong_target"),
        ({"generation": 3}, "wrong_generation"),
        ({"caller": "agent:other"}, "wrong_caller"),
    ],
)
def test_reasons(changes: dict[str, Any], reason: str) -> None:
    with pytest.raises(TicketError) as caught:
        check(mint(KEY, claims()), **changes)
    assert (caught.value.reason, caught.value.code) == (reason, "denied")


@pytest.mark.parametrize("token", ["", ".", "v1", "v1.", "v2.a.b", "v1.\u00e9.x", "x" * 300_000])
def test_text_that_is_no_ticket(token: str) -> None:
    for read in (check, peek):
        with pytest.raises(TicketError) as caught:
            read(token)
        assert caught.value.reason == "malformed"


def test_a_valid_signature_does_not_make_nonsense_a_ticket() -> None:
    nested = b"\x91" * 10_000 + b"\x00"
    for packed in (b"", b"\xc1", nested, msgspec.msgpack.encode({"id": 5})):
        token = mint(KEY, claims())
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("interlock.bus.tickets._encode", lambda _, packed=packed: packed)
            token = mint(KEY, claims())
        with pytest.raises(TicketError) as caught:
            check(token)
        assert caught.value.reason == "malformed"


@given(st.integers(0, 10_000), st.sampled_from(string.ascii_letters + string.digits + "-_.=\n"))
def test_no_changed_ticket_passes(position: int, letter: str) -> None:
    token = mint(KEY, claims())
    position %= len(token)
    changed = token[:position] + letter + token[position + 1 :]
    if changed == token:
        return
    with pytest.raises(TicketError):
        check(changed)


@given(st.text(max_size=200))
def test_any_text_is_refused_with_a_reason(token: str) -> None:
    for read in (check, peek):
        with pytest.raises(TicketError):
            read(token)


@given(st.text(max_size=20), st.lists(st.text(max_size=30), max_size=5), st.integers(0, 2**31))
def test_any_claims_survive(name: str, names: list[str], generation: int) -> None:
    signed = claims(id=name, names=tuple(names), generation=generation)
    assert check(mint(KEY, signed), generation=generation) == signed


def test_the_digest_knows_the_object_not_its_spelling() -> None:
    digest = arguments_digest(b'{"b": [1, 2.5], "a": {"d": null, "c": "\\u00e9"}}')
    assert digest == arguments_digest('{"a":{"c":"\u00e9","d":null},\n"b":[1,2.5]}'.encode())
    assert digest != arguments_digest(b'{"b": [2.5, 1], "a": {"d": null, "c": "\\u00e9"}}')
    assert len(digest) == 64


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"5",
        b'{"a":1,"a":2}',
        b'{"x":{"a":1,"a":1}}',
        b'{"a":NaN}',
        b'{"a":1e999}',
        b"\xff",
        b'{"a":' * 20_000,
        b'{"a":' + b"9" * 10_000 + b"}",
    ],
)
def test_arguments_that_have_no_digest(body: bytes) -> None:
    with pytest.raises(MalformedError):
        arguments_digest(body)
