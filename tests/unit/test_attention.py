from __future__ import annotations

import time

from interlock.bus.events import AttentionChanged, Event
from interlock.supervisor.attention import MAX_ROWS, MAX_TEXT, STATE, Attention, Row


def row(name: str = "mcp:x", code: str = "c", message: str = "m", subject: str = "") -> Row:
    return Row(name=name, code=code, message=message, fix="f", subject=subject)


def test_a_row_is_announced_when_it_comes_changes_and_goes() -> None:
    heard: list[Event] = []
    attention = Attention(heard.append)
    attention.set(row())
    attention.set(row())
    attention.set(row(message="n"))
    attention.clear("mcp:x", "c")
    attention.clear("mcp:x", "c")
    assert heard == [
        AttentionChanged(name="mcp:x", code="c", message="m", fix="f"),
        AttentionChanged(name="mcp:x", code="c", message="n", fix="f"),
        AttentionChanged(name="mcp:x", code="c", clear=True),
    ]
    assert attention.rows() == ()


def test_replace_touches_only_what_is_not_kept() -> None:
    heard: list[Event] = []
    attention = Attention(heard.append)
    attention.set(row(subject="a"))
    attention.set(row(subject="b"))
    attention.set(row(name="mcp:y"))
    heard.clear()
    attention.replace([row(subject="b"), row(subject="c")], lambda one: one.name != "mcp:x")
    assert {(one.name, one.subject) for one in attention.rows()} == {
        ("mcp:x", "b"),
        ("mcp:x", "c"),
        ("mcp:y", ""),
    }
    assert len(heard) == 2


def test_a_worker_cannot_fill_the_memory() -> None:
    attention = Attention(lambda _: None)
    for number in range(MAX_ROWS + 5):
        attention.set(row(subject=str(number), message="x" * 9999))
    assert len(attention.rows()) == MAX_ROWS
    assert attention.dropped == 5
    assert {len(one.message) for one in attention.rows()} == {MAX_TEXT}
    attention.set(row(name="mcp:y"))
    assert len(attention.rows()) == MAX_ROWS + 1


def test_what_a_worker_says_hides_neither_its_state_nor_its_configuration() -> None:
    attention = Attention(lambda _: None)
    for number in range(MAX_ROWS + 5):
        attention.set(row(subject=str(number)))
    attention.set(row(subject=STATE))
    attention.set(Row(name="mcp:x", code="wrong_type", message="m", fix="", file="/f", line=3))
    assert {one.code for one in attention.rows()[-2:]} == {"c", "wrong_type"}
    assert len(attention.rows()) == MAX_ROWS + 2
    attention.clear("mcp:x", "c", "7")
    attention.set(row(subject="another"))
    assert len(attention.rows()) == MAX_ROWS + 2


def test_twenty_thousand_rows_are_no_work() -> None:
    attention = Attention(lambda _: None)
    started = time.process_time()
    attention.replace([row(name=f"mcp:{number}") for number in range(20_000)], lambda _: False)
    assert time.process_time() - started < 2.0
