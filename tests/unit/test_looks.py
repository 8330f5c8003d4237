"""Looking into results that somebody else wrote: no shape of them makes many objects."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from interlock.bus.messages import RESULT_INLINE
from interlock.workers import cuts
from interlock.workers.agent.cut import Whole, last_text, shown_result
from interlock.workers.agent.driver import result_text
from interlock.workers.looks import BEGINNING, LOOKED_INTO, glance, look

SIZE = 4 << 20
TEXT = b'{"type":"text","text":"hello"}'
DEEP = b"[" * 300 + b"]" * 300


def filled(start: bytes, part: bytes, end: bytes, size: int = SIZE) -> bytes:
    return start + b",".join([part] * (size // (len(part) + 1))) + end


BOMBS = {
    "structured": filled(b'{"content":[%b],"structuredContent":{"a":[' % TEXT, b"[]", b"]}}"),
    "only structured": filled(b'{"structuredContent":[', b"0", b"]}"),
    "items": filled(b'{"content":[%b,' % TEXT, b"[]", b"]}"),
    "objects": filled(b'{"content":[', b"{}", b"]}"),
    "numbers": filled(b'{"content":[', b"0", b"]}"),
    "item": filled(b'{"content":[%b,{"type":"odd","x":[' % TEXT, b"[]", b"]}]}"),
    "type": filled(b'{"content":[%b,{"type":[' % TEXT, b"[]", b"]}]}"),
    "resource": filled(b'{"content":[{"resource":{"text":[', b"[]", b"]}}]}"),
    "deep items": filled(b'{"content":[', b"[%b]" % b",".join([DEEP] * 20), b"]}"),
    "meta": filled(b'{"content":[%b],"_meta":[' % TEXT, b"[]", b"]}"),
    "fields": b'{"content":[],%b}' % b",".join(b'"%d":0' % n for n in range(SIZE // 10)),
    "twice": filled(b'{"content":[{}],"content":[', b"{}", b"]}"),
}


@pytest.mark.parametrize("body", BOMBS.values(), ids=BOMBS)
def test_no_shape_of_a_result_makes_many_objects(body: bytes, tmp_path: Path) -> None:
    looked: list[Callable[[], object]] = [
        lambda: cuts.cut(body, 1 << 20, tmp_path, "t"),
        lambda: cuts.whole_of(body),
        lambda: shown_result(body, Whole("/a")),
        lambda: last_text(body),
        lambda: result_text(body),
    ]
    for one in looked:
        tracemalloc.start()
        try:
            one()
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert peak < 3 * len(body), one


def test_what_is_shown_of_many_items_is_their_beginning(tmp_path: Path) -> None:
    body = filled(b'{"content":[', TEXT, b"]}")
    shown = json.loads(cuts.cut(body, 1 << 20, tmp_path, "t").body)["content"]
    assert shown[0] == json.loads(TEXT)
    assert "all but 1000 of more than 1000 items" in shown[-2]["text"]
    assert Path(shown[-1]["text"]).stat().st_size == len(body)
    content, _ = shown_result(body, Whole("/a"))
    assert len(msgspec.json.encode(content)) <= RESULT_INLINE
    assert "of more than 1000 items" in content[-2]["text"]
    assert result_text(body).startswith("hello\nhello\n") and result_text(body).endswith("more]")


def test_a_few_thousand_items_are_told_apart() -> None:
    found = look(filled(b'{"content":[', TEXT, b"]}", 5_000 * (len(TEXT) + 1)))
    assert found is not None and len(found.content) == 5_000 and not found.more
    assert found.left_out(5_000) == "" and found.left_out(4_999) == "1 of 5000 items"


def test_the_beginning_of_a_very_large_result_is_taken_for_a_text() -> None:
    path = "/home/results/mcp_a/1.txt"
    ending = json.dumps({"type": "text", "text": path}, separators=(",", ":")).encode()
    body = filled(b'{"content":[', TEXT, b",%b]}" % ending, LOOKED_INTO)
    found = glance(body)
    assert found is not None and found.more
    assert result_text(body).startswith(body[:1000].decode())
    assert len(result_text(body)) < BEGINNING + 100
    assert cuts.whole_of(body) == (body, "json")
    assert last_text(body) == path
    content, _ = shown_result(body, Whole(path=path, named=True))
    assert content[0]["text"].startswith(body[:1000].decode())
    assert content[-1] == {"type": "text", "text": path}
    assert len(msgspec.json.encode(content)) <= RESULT_INLINE
