from __future__ import annotations

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlock.bus.errors import MalformedError
from interlock.bus.events import AnyItem, TextDelta, ToolCall, TurnCompleted, TurnFailed
from interlock.supervisor.events.turnitems import encode, parse, place

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)


def test_an_item_keeps_its_bytes_and_gets_its_place() -> None:
    body = b'[ {"type" : "text.delta",  "text":"a\\u00e9b"} ]'
    (item,), bad = parse(body)
    assert (item.raw, bad) == (b'{"type" : "text.delta",  "text":"a\\u00e9b"}', 0)
    placed = place(item.raw, "ab", 3)
    assert placed == b'{"turn":"ab","offset":3,"type" : "text.delta",  "text":"a\\u00e9b"}'


def test_terminal_items_are_recognised() -> None:
    items, _ = parse(msgspec.json.encode([TextDelta(text="x"), TurnFailed(code="c", message="m")]))
    assert [item.terminal for item in items] == [None, TurnFailed(code="c", message="m")]


@pytest.mark.parametrize(
    "raw",
    [
        b"1",
        b"[]",
        b"{}",
        b'{"type":1}',
        b'{"type":"text.delta"}',
        b'{"type":"text.delta","text":7}',
        b'{"type":"turn.finished"}',
        b'{"type":"Turn Completed"}',
        b'{"type":"text.delta","text":"\xff"}',
        b'{"type":"skill.used","x":' + b"[" * 300 + b"]" * 300 + b"}",
    ],
)
def test_a_bad_item_is_dropped_alone(raw: bytes) -> None:
    items, bad = parse(b'[{"type":"text.delta","text":"a"},' + raw + b"]")
    assert [item.raw for item in items] == [b'{"type":"text.delta","text":"a"}']
    assert bad == 1


@pytest.mark.parametrize("body", [None, b"", b"{}", b"[1", b"\xff", b"[" * 10_000, b"null"])
def test_what_is_no_array_is_malformed(body: bytes | None) -> None:
    with pytest.raises(MalformedError):
        parse(body)


def test_an_agent_cannot_say_turn_and_offset_itself() -> None:
    (item,), _ = parse(b'[{"turn":"other","type":"text.delta","offset":9,"text":"a"}]')
    assert json.loads(place(item.raw, "mine", 0)) == {
        "turn": "mine",
        "offset": 0,
        "type": "text.delta",
        "text": "a",
    }
    assert place(item.raw, "mine", 0).count(b'"turn"') == 1


@pytest.mark.parametrize("value", [b"null", b"0", b"false", b'""', b"[]", b'"other"'])
@pytest.mark.parametrize("keys", [(b"turn",), (b"offset",), (b"turn", b"offset"), (b"t\\u0075rn",)])
@pytest.mark.parametrize("kind", [b"text.delta", b"turn.completed", b"skill.used"])
def test_no_value_of_an_agent_stands_for_one_of_the_supervisors(
    kind: bytes, keys: tuple[bytes, ...], value: bytes
) -> None:
    said = b"".join(b',"%b":%b' % (key, value) for key in keys)
    (item,), bad = parse(b'[{"type":"%b","text":"a"%b}]' % (kind, said))
    assert bad == 0
    placed = json.loads(place(item.raw, "mine", 4), object_pairs_hook=list)
    assert placed == [("turn", "mine"), ("offset", 4), ("type", kind.decode()), ("text", "a")]


def test_types_of_newer_agents_pass() -> None:
    (item,), bad = parse(b'[{"type":"skill.used","name":"humanizer"}]')
    assert (item.terminal, bad) == (None, 0)


@given(st.lists(JSON, max_size=4), st.integers(0, 10**9))
def test_placing_changes_nothing_else(arguments: list[object], offset: int) -> None:
    items = [
        ToolCall(id=str(n), capability="mcp:a/b", arguments=value)
        for n, value in enumerate(arguments)
    ]
    parsed, bad = parse(msgspec.json.encode(items))
    assert bad == 0
    for item, sent in zip(items, parsed, strict=True):
        placed = json.loads(place(sent.raw, "ab" * 16, offset))
        assert placed.pop("turn") == "ab" * 16
        assert placed.pop("offset") == offset
        assert placed == json.loads(encode(item))
        assert msgspec.json.decode(sent.raw, type=AnyItem) == item


def test_own_items_look_like_those_of_agents() -> None:
    assert encode(TurnCompleted(text="x")) == b'{"type":"turn.completed","text":"x"}'
