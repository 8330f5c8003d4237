"""What a caller passes to a client is refused in plain words before anything is sent."""

from __future__ import annotations

import math
from collections import UserDict
from typing import Any

import pytest

from interlock.bus.codec import decode_api_request
from interlock.bus.errors import UsageError
from interlock.bus.given import check_times, encode_arguments, encode_request, encode_text
from interlock.bus.messages import MAX_HEADER, TurnStart

JARGON = ("codec", "surrogate", "Traceback", "msgpack", "frame", "expected `")


def plain(error: UsageError) -> bool:
    return error.message[-1] in ".!" and not any(word in error.message for word in JARGON)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"a": math.nan}, "NaN"),
        ({"a": None, "b": [{"c": (1.0, -math.inf)}]}, "infinite"),
        (UserDict(a={"b": math.inf}), "infinite"),
        ({"a": "x\udcff"}, "UTF-8"),
        ({"x\ud800": 1}, "UTF-8"),
        ({"a": object()}, "JSON"),
        ([1], "mapping"),
    ],
)
def test_arguments_that_json_cannot_say(arguments: Any, words: str) -> None:
    with pytest.raises(UsageError, match=words) as refused:
        encode_arguments(arguments)
    assert refused.value.message


def test_arguments_that_it_can() -> None:
    given = {"null": None, "list": [1, 1.5, None], "text": "null", "big": 2**63}
    body = b'{"null":null,"list":[1,1.5,null],"text":"null","big":9223372036854775808}'
    assert encode_arguments(given) == body
    assert encode_arguments(None) == b"{}"


def test_texts() -> None:
    assert encode_text("ä") == '"ä"'.encode()
    for text, words in (("a\udcff", "UTF-8"), ("x" * (1 << 20), "at most 1 MiB")):
        with pytest.raises(UsageError, match=words) as refused:
            encode_text(text)
        assert plain(refused.value)


@pytest.mark.parametrize("seconds", [0, -1.0, math.nan, math.inf, 10**30, 10**400])
def test_times(seconds: float) -> None:
    check_times(None, 0.001, 1e9)
    with pytest.raises(UsageError, match="seconds"):
        check_times(1.0, seconds)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"turn": "a", "session": "\udcff"}, "`session` is not UTF-8"),
        ({"turn": "a", "session": "x" * MAX_HEADER}, "`session` is too long"),
        ({"turn": "a", "deadline": 10**30}, "`deadline` is too large"),
    ],
)
def test_fields_of_requests(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words) as refused:
        encode_request(TurnStart, 1, "key", fields)
    assert plain(refused.value)


def test_a_request_that_can_be_sent() -> None:
    header = encode_request(TurnStart, 7, "key", {"turn": "a", "session": "ä"})
    message = decode_api_request(b"msgpack", header)
    assert isinstance(message, TurnStart)
    assert (message.id, message.session) == (7, "ä")
