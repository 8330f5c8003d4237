from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlock.bus.events import AnyItem, TextDelta, ToolResult, TurnCompleted
from interlock.bus.messages import ITEMS_BATCH, RESULT_INLINE
from interlock.workers.agent.cut import (
    Whole,
    arguments_problem,
    shown_arguments,
    shown_result,
    text_item,
)
from interlock.workers.agent.items import BATCH_BURST, BATCH_INTERVAL, BUFFER_MAX, Batcher


def result(number: int, size: int = 0) -> ToolResult:
    content = [text_item("x" * size)]
    return ToolResult(id=f"call_{number}", outcome="ok", content=content, duration_ms=1.0)


def drain(batcher: Batcher) -> tuple[list[dict[str, Any]], list[int]]:
    items: list[dict[str, Any]] = []
    sizes: list[int] = []
    while len(batcher):
        body, count = batcher.peek()
        batch = json.loads(body)
        assert len(batch) == count > 0
        items += batch
        sizes.append(len(body))
        batcher.sent(count, 0.0)
    assert batcher.size == 0
    return items, sizes


def test_a_few_batches_may_go_at_once_and_never_more_than_20_in_a_second() -> None:
    batcher = Batcher()
    now = 5.0
    sent: list[float] = []
    while now < 8.0:
        batcher.put(TextDelta(text="a"))
        now += batcher.ready_in(now)
        batcher.sent(batcher.peek()[1], now)
        sent.append(now)
    assert sent[:BATCH_BURST] == [5.0] * BATCH_BURST
    busiest = max(sum(start <= each < start + 1.0 for each in sent) for start in sent)
    assert busiest <= 20
    assert len(sent) >= 48


def test_refused_items_stay() -> None:
    batcher = Batcher()
    batcher.put(result(1))
    batcher.refused(1.0)
    assert batcher.ready_in(1.0) == pytest.approx(BATCH_INTERVAL)
    assert [item["id"] for item in drain(batcher)[0]] == ["call_1"]


def test_neighbouring_deltas_become_one_and_order_is_kept() -> None:
    batcher = Batcher()
    for item in (TextDelta(text="a"), TextDelta(text="b"), result(1), TextDelta(text="c")):
        batcher.put(item)
    items, _ = drain(batcher)
    assert [(i["type"], i.get("text")) for i in items] == [
        ("text.delta", "ab"),
        ("tool.result", None),
        ("text.delta", "c"),
    ]


@given(st.lists(st.integers(0, 40_000) | st.text(max_size=30_000), max_size=20))
def test_batches_are_bounded_and_lose_nothing(parts: list[int | str]) -> None:
    batcher = Batcher()
    for part in parts:
        put: AnyItem = result(0, part) if isinstance(part, int) else TextDelta(text=part)
        batcher.put(put)
    items, sizes = drain(batcher)
    assert all(size <= ITEMS_BATCH for size in sizes)
    text = "".join(i["text"] for i in items if i["type"] == "text.delta")
    assert text == "".join(p for p in parts if isinstance(p, str))
    results = [len(i["content"][0]["text"]) for i in items if i["type"] == "tool.result"]
    assert results == [p for p in parts if isinstance(p, int)]


def test_an_item_above_a_batch_goes_alone() -> None:
    batcher = Batcher()
    batcher.put(result(1))
    batcher.put(TurnCompleted(text="x" * ITEMS_BATCH))
    items, sizes = drain(batcher)
    assert [i["type"] for i in items] == ["tool.result", "turn.completed"]
    assert len(sizes) == 2


def test_overflow_shortens_text_and_loses_no_result_and_no_end() -> None:
    batcher = Batcher()
    for number in range(2_000):
        batcher.put(TextDelta(text=f"{number} " + "t" * 8_000))
        if number % 10 == 0:
            batcher.put(result(number))
    batcher.put(TurnCompleted(text="all of it"))
    assert batcher.size < 2 * BUFFER_MAX
    items, _ = drain(batcher)
    assert sum(i["type"] == "tool.result" for i in items) == 200
    assert items[-1] == {"type": "turn.completed", "text": "all of it"}
    text = "".join(i["text"] for i in items if i["type"] == "text.delta")
    assert "left out" in text
    assert text.endswith("1999 " + "t" * 8_000)


def size_of(content: Any) -> int:
    return len(msgspec.json.encode(content))


def test_a_small_result_is_shown_as_it_is() -> None:
    body = b'{"content": [{"type":"text","text":"a",  "odd": 1}], "structuredContent": {"b": 2}}'
    content, structured = shown_result(body)
    assert bytes(content[0]) == b'{"type":"text","text":"a",  "odd": 1}'
    assert bytes(structured) == b'{"b": 2}'


def test_a_large_result_is_cut_and_names_its_size() -> None:
    body = json.dumps({"content": [text_item("ä" * 50_000)], "structuredContent": {}}).encode()
    content, structured = shown_result(body)
    assert structured is None
    assert size_of(content) <= RESULT_INLINE
    assert content[0]["text"].startswith("äää")
    assert f"a result of {len(body)} bytes" in content[-1]["text"]


@pytest.mark.parametrize("path", ["/home/results/agent_main/1.txt", '/"' * 1500])
def test_a_cut_result_ends_with_the_path_of_the_whole(path: str) -> None:
    body = json.dumps({"content": [text_item("x" * 20_000)]}).encode()
    content, _ = shown_result(body, Whole(path=path))
    assert content[-1] == text_item(path)
    assert "named last" in content[-2]["text"]
    assert size_of(content) <= RESULT_INLINE


def test_a_path_that_another_worker_named_stays_named() -> None:
    note, path = text_item("cut " * 500), text_item("/home/results/mcp_a/1.txt")
    body = json.dumps({"content": [text_item("x" * 20_000), note, path]}).encode()
    content, _ = shown_result(body, Whole(path=path["text"], named=True))
    assert [json.loads(bytes(item)) for item in content[-2:]] == [note, path]
    assert size_of(content) <= RESULT_INLINE


@pytest.mark.parametrize("named", [False, True])
def test_a_last_item_that_is_nested_too_deep_is_not_kept(named: bool) -> None:
    deep = b"[" * 400 + b"]" * 400
    pad = json.dumps(text_item("x" * 20_000)).encode()
    body = b'{"content": [%b, %b, %b]}' % (pad, deep, deep)
    content, _ = shown_result(body, Whole("/a", "", named))
    assert deep not in msgspec.json.encode(content)
    assert content[-1] == text_item("/a")


def test_a_result_that_could_not_be_kept_says_why() -> None:
    body = json.dumps({"content": [text_item("x" * 20_000)]}).encode()
    content, _ = shown_result(body, Whole(problem="No space left on device"))
    assert "could not be kept: No space left on device" in content[-1]["text"]


def test_a_large_result_that_is_no_text_is_left_out() -> None:
    image = {"type": "image", "data": "x" * 90_000, "mimeType": "image/png"}
    content, _ = shown_result(json.dumps({"content": [image, text_item("y" * 3000)]}).encode())
    assert json.loads(bytes(content[0])) == text_item("y" * 3000)
    assert "1 of 2 items are not whole" in content[1]["text"]


def test_what_is_no_result_is_said_to_be_none() -> None:
    for body in (b"[]", b"nonsense", b'{"content": 1}', b'{"content": ["\xff"]}', b"[" * 100_000):
        content, structured = shown_result(body)
        assert "cannot be read" in content[0]["text"]
        assert structured is None


def test_arguments_are_shown_as_written_or_named() -> None:
    assert bytes(shown_arguments(b'{"a": 1}', True)) == b'{"a": 1}'
    assert shown_arguments(b'{"a"', False) == '{"a"'
    assert shown_arguments(b"{}" + b" " * RESULT_INLINE, True) == "[arguments of 16386 bytes]"


@pytest.mark.parametrize("depth", [150, 250, 5_000])
def test_what_is_nested_too_deep_for_an_item_is_not_in_it(depth: int) -> None:
    deep = b'{"a":' * depth + b"1" + b"}" * depth
    assert bool(arguments_problem(deep)) == (depth > 190)
    for size in (0, RESULT_INLINE):
        pad = json.dumps(text_item("x" * size)).encode()
        content, _ = shown_result(b'{"content": [%b, {"type": "odd", "x": %b}]}' % (pad, deep))
        shown = msgspec.json.encode(content)
        assert (b'{"a":' * depth in shown) == (depth < 190)


def test_arguments_have_to_be_one_object() -> None:
    assert arguments_problem(b'{"a": [1]}') == ""
    for wrong in (b"", b"[]", b"{}, {}", b'{"a"', b"\xff"):
        assert arguments_problem(wrong)
