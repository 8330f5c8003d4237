"""Whoever takes bytes of somebody else makes no object of each of a million values in them."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from contextlib import suppress

import pytest

from interlock.bus import codec, tickets
from interlock.bus.errors import MalformedError, TooLargeError
from interlock.bus.events import TurnCompleted
from interlock.bus.limits import ITEMS_BATCH, MAX_ARGUMENTS, MAX_HEADER, MAX_VALUES
from interlock.supervisor.catalog.schemas import Schemas
from interlock.supervisor.events import turnitems
from interlock.workers.mcp.extras import Extra, read_items
from interlock.workers.mcp.frames import is_object
from interlock.workers.mcp.results import fit
from interlock.workers.mcp.tools import MAX_TOOLS, read_page

SIZE = 4 << 20
PROMPT, TEMPLATE = Extra("prompt", "p"), Extra("template", "x:{a}")


def filled(start: bytes, part: bytes, end: bytes, size: int = SIZE) -> bytes:
    return start + b",".join([part] * (size // (len(part) + 1))) + end


def fields(size: int = SIZE) -> bytes:
    return b"{%b}" % b",".join(b'"%d":0' % n for n in range(size // 10))


LISTS = filled(b'{"a":[', b"[]", b"]}")
LOOKS: dict[str, tuple[Callable[[bytes], object], bytes]] = {
    "items": (turnitems.parse, filled(b"[", b"[]", b"]")),
    "one item": (turnitems.parse, filled(b'[{"type":"tool.result","content":[', b"[]", b"]}]")),
    "its text": (turnitems.parse, filled(b'[{"type":"text.delta","text":[', b"[]", b"]}]")),
    "its kind": (turnitems.parse, filled(b'[{"type":[', b"[]", b"]}]")),
    "documents": (lambda body: Schemas().report("w", (), body), fields()),
    "good documents": (
        lambda body: Schemas().report("w", ("0" * 64,), body),
        b"{%b}" % b",".join(b'"%064d":{}' % n for n in range(SIZE // 70)),
    ),
    "request": (lambda body: codec.request_id(b"json", body), filled(b"[", b"[]", b"]", 999_999)),
    "request id": (
        lambda body: codec.request_id(b"json", body),
        filled(b'{"id":[', b"[]", b"]}", 999_999),
    ),
    "packed": (
        lambda body: codec.request_id(b"msgpack", body),
        b"\xdd\0\x0f\0\0" + b"\x90" * 983040,
    ),
    "digest": (tickets.arguments_digest, LISTS),
    "decided": (tickets.arguments_digest, filled(b'{"a":[', b"[]", b"]}", MAX_ARGUMENTS - 9)),
    "call": (is_object, fields()),
    "prompt": (PROMPT.params, LISTS),
    "uri": (TEMPLATE.params, LISTS),
    "messages": (PROMPT.result, filled(b'{"messages":[', b'{"content":0}', b"]}")),
    "contents": (TEMPLATE.result, filled(b'{"contents":[', b"[]", b"]}")),
    "tools": (read_page, filled(b'{"tools":[', b"[]", b"]}")),
    "prompts": (lambda body: read_items(body, "prompts"), filled(b'{"prompts":[', b"[]", b"]}")),
    "result": (fit, filled(b'{"content":[', b"1", b"]}")),
    "its object": (fit, filled(b'{"content":{"a":[', b"[]", b"]}}")),
    "its rest": (fit, filled(b'{"content":"x","l":[', b"{}", b"]}")),
    "its fields": (fit, b'{"content":"x",' + fields()[1:]),
    "page": (lambda body: read_items(body, "prompts"), fields()),
}


@pytest.mark.parametrize(("look", "body"), LOOKS.values(), ids=LOOKS)
def test_many_values_do_not_become_objects(look: Callable[[bytes], object], body: bytes) -> None:
    tracemalloc.start()
    try:
        with suppress(MalformedError, ValueError):
            look(body)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 2 * len(body) + (1 << 20)


def test_a_large_text_is_an_item_and_other_large_items_are_not() -> None:
    text = "a, [b], {c}" * 100_000
    ended = turnitems.encode(TurnCompleted(text=text))
    (item,), bad = turnitems.parse(b"[%b]" % ended)
    assert bad == 0 and isinstance(item.terminal, TurnCompleted) and item.terminal.text == text
    assert item.raw == ended
    (owned,), _ = turnitems.parse(b'[{"offset":7,%b]' % ended[1:])
    assert owned.raw == ended
    large = b'{"type":"tool.result","id":"a","outcome":"ok","x":"%b"}' % (b"y" * turnitems.MOST)
    assert turnitems.parse(b"[%b]" % large) == ([], 1)
    with pytest.raises(MalformedError):
        turnitems.parse(filled(b"[", b'{"type":"turn.cancelled"}', b"]", ITEMS_BATCH + 100))


def test_texts_in_arguments_do_not_count_as_values() -> None:
    text = b'{"a": "%b"}' % (b'[],{}\\",' * 100_000)
    assert len(tickets.arguments_digest(text)) == 64
    most = filled(b'{"a":[', b"0", b"]}", 2 * (MAX_VALUES - 10))
    assert len(tickets.arguments_digest(most)) == 64
    with pytest.raises(MalformedError, match="50000 values"):
        tickets.arguments_digest(filled(b'{"a":[', b"0", b"]}", 2 * MAX_VALUES + 10))
    with pytest.raises(TooLargeError):
        tickets.arguments_digest(b'{"a":"%b"}' % (b"x" * MAX_ARGUMENTS))


def test_a_list_is_read_a_little_beyond_what_is_kept_of_it() -> None:
    """So that whoever keeps the first 2,000 sees that there are more."""
    assert len(turnitems.parse(b"[]")[0]) == 0
    entries, cursor = read_items(filled(b'{"prompts":[', b"{}", b'],"nextCursor":"c"}'), "prompts")
    assert (len(entries), cursor) == (201, "c")
    page = read_page(filled(b'{"tools":[', b"{}", b"]}"))
    assert page.tools is not None and MAX_TOOLS == 2_000


def test_what_was_asked_is_found_in_a_request_that_is_not_understood() -> None:
    assert codec.request_id(b"json", b'{"type":"odd","id":7}') == 7
    assert codec.request_id(b"json", b'{"id":9223372036854775808}') == 0
    assert codec.request_id(b"json", b'{"id":true}') == codec.request_id(b"json", b"{}") == 0
    assert codec.request_id(b"json", b'{"id":7,"x":"' + b"x" * MAX_HEADER + b'"}') == 0
