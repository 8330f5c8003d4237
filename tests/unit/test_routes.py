"""Where calls go and how one is followed: the pure parts of both clients."""

from __future__ import annotations

import pytest

from interlock.bus.edge import OPEN_TICKETS, remember
from interlock.bus.errors import OUTCOMES, MalformedError
from interlock.bus.messages import MAX_MESSAGE, Chunk, Failure, Items, Progress, Reply, Result
from interlock.bus.records import Target
from interlock.bus.results import call_result, error_of, failed_call
from interlock.bus.routes import PendingCall, Route, Routes, worth_another
from interlock.bus.watching import WINDOW, Watch


def route(expires_in: float = 60.0, generation: int = 1, single_use: bool = False) -> Route:
    target = Target(
        worker="mcp:x",
        generation=generation,
        endpoint="ipc:///x",
        ticket="secret",
        expires_in=expires_in,
    )
    return Route(capability="mcp:x/y", local="y", target=target, single_use=single_use)


def test_a_route_is_kept_until_shortly_before_its_ticket_expires() -> None:
    routes = Routes()
    routes.keep("a", route(), now=100.0)
    assert routes.find("a", 157.9) is not None
    assert routes.find("a", 158.0) is None
    assert len(routes) == 0


def test_what_is_not_kept() -> None:
    routes = Routes()
    routes.keep("short", route(expires_in=2.0), now=0.0)
    routes.keep("once", route(single_use=True), now=0.0)
    assert len(routes) == 0


def test_routes_to_an_ended_generation_are_forgotten() -> None:
    routes = Routes()
    routes.keep("old", route(generation=1), now=0.0)
    routes.keep("new", route(generation=2), now=0.0)
    routes.gone("mcp:x", 1)
    assert routes.find("old", 0.0) is None
    assert routes.find("new", 0.0) is not None
    routes.drop("new")
    assert len(routes) == 0


@pytest.mark.parametrize("outcome", OUTCOMES)
@pytest.mark.parametrize("may_have_run", [True, False])
@pytest.mark.parametrize("fresh", [True, False])
def test_what_is_sent_again(outcome: str, may_have_run: bool, fresh: bool) -> None:
    again = worth_another(outcome, may_have_run, fresh)
    safe = not may_have_run and outcome in ("denied", "unavailable", "worker_died")
    assert again == (safe and (not fresh or outcome == "worker_died"))


def test_progress_renews_the_deadline_up_to_a_limit() -> None:
    call = PendingCall(now=0.0, timeout=10.0, timeout_max=25.0)
    assert call.deadline == 10.0
    call.on_message(Progress(id=1, progress=1.0), None, now=9.0)
    assert call.deadline == 19.0
    call.on_message(Progress(id=1, progress=2.0), None, now=18.0)
    assert call.deadline == 25.0


def test_chunks_are_put_together_and_credited() -> None:
    call = PendingCall(now=0.0, timeout=10.0, timeout_max=10.0)
    granted = [call.on_message(Chunk(id=1, n=n), b"ab", now=1.0) for n in range(10)]
    assert granted == [0, 0, 0, 4, 0, 0, 0, 4, 0, 0]
    call.on_message(Result(id=1, duration_ms=7.0), b"c", now=1.0)
    assert call.ending is not None
    assert call.ending.body == b"ab" * 10 + b"c"
    assert call.ending.duration_ms == 7.0


def test_a_missing_chunk_ends_the_call() -> None:
    call = PendingCall(now=0.0, timeout=10.0, timeout_max=10.0)
    call.on_message(Chunk(id=1, n=1), b"ab", now=1.0)
    assert call.ending is not None
    assert (call.ending.outcome, call.ending.may_have_run) == ("unavailable", True)


def test_a_large_result_may_take_its_time_and_has_a_limit() -> None:
    call = PendingCall(now=0.0, timeout=10.0, timeout_max=25.0)
    call.on_message(Chunk(id=1, n=0), b"x" * MAX_MESSAGE, now=9.0)
    assert (call.deadline, call.ending) == (19.0, None)
    call.on_message(Result(id=1), b"y", now=10.0)
    assert call.ending is not None and call.ending.outcome == "unavailable"
    for part in (b"", None):
        endless = PendingCall(now=0.0, timeout=10.0, timeout_max=25.0)
        endless.on_message(Chunk(id=1, n=0), part, now=1.0)
        assert endless.ending is not None and endless.ending.may_have_run


def test_few_tickets_are_remembered() -> None:
    tickets: dict[str, str] = {}
    for n in range(OPEN_TICKETS + 3):
        remember(tickets, f"token {n}", str(n))
    assert len(tickets) == OPEN_TICKETS
    assert "token 2" not in tickets and tickets["token 3"] == "3"


def test_the_first_ending_counts() -> None:
    call = PendingCall(now=0.0, timeout=10.0, timeout_max=10.0)
    call.on_message(Failure(id=1, code="overloaded", message="full"), None, now=1.0)
    call.on_message(Result(id=1), b"{}", now=1.0)
    assert call.ending is not None
    assert (call.ending.outcome, call.ending.message) == ("overloaded", "full")


@pytest.mark.parametrize("body", [b"{", b"[]", b"null", b"\xff", b"[" * 100_000])
def test_a_result_that_is_none(body: bytes) -> None:
    result = call_result("mcp:x/y", "ok", body)
    assert (result.outcome, result.may_have_run) == ("tool_error", True)
    assert result.text


def test_odd_content_is_handed_on_or_left_out() -> None:
    odd = b'{"content": [1, {"text": 2}, {"type": "text", "text": "a"}], "structuredContent": [3]}'
    result = call_result("mcp:x/y", "ok", odd)
    assert (result.text, result.structured, len(result.content)) == ("a", [3], 3)
    assert call_result("mcp:x/y", "ok", b'{"content": "a"}').content == []


def test_an_unknown_outcome_is_unavailable() -> None:
    assert failed_call("mcp:x/y", "from the future", "?").outcome == "unavailable"


def test_errors_keep_their_code() -> None:
    error = error_of(Reply(id=1, code="gap", message="Too old.", fix="take a snapshot"))
    assert (error.code, error.message) == ("gap", "Too old. Try: take a snapshot")
    assert error_of(Reply(id=1, code="odd")).message == "The supervisor answered odd."


def items(offset: int, count: int, end: bool = False) -> tuple[Items, bytes]:
    body = b"[" + b",".join(b'{"offset": %d}' % (offset + n) for n in range(count)) + b"]"
    return Items(id=1, turn="t", offset=offset, count=count, end=end), body


def test_a_watch_shows_each_item_once() -> None:
    watch = Watch("t", offset=2)
    assert [item["offset"] for item in watch.on_items(*items(0, 4)) or ()] == [2, 3]
    assert watch.on_items(*items(5, 1)) is None
    assert [item["offset"] for item in watch.on_items(*items(4, 2, end=True)) or ()] == [4, 5]
    assert watch.ended


def test_a_watch_grants_half_a_window() -> None:
    watch = Watch("t")
    watch.on_items(*items(0, WINDOW // 2 - 1))
    granted: list[int] = []
    watch.credit(lambda count: granted.append(count) is None)
    assert granted == []
    watch.on_items(*items(watch.offset, 1))
    for _ in range(2):
        watch.credit(lambda count: granted.append(count) is None)
    assert granted == [WINDOW // 2]


def test_credit_that_a_full_queue_did_not_take_is_granted_later() -> None:
    """A watcher that loses its credit would wait for ever for the rest of its turn."""
    watch = Watch("t")
    watch.on_items(*items(0, WINDOW // 2))
    watch.credit(lambda count: False)
    watch.on_items(*items(watch.offset, 3))
    granted: list[int] = []
    watch.credit(lambda count: granted.append(count) is None)
    assert granted == [WINDOW // 2 + 3]


def test_a_turn_that_ended_without_saying_so_is_asked_for_once_more() -> None:
    watch = Watch("t")
    watch.doubt()
    assert not watch.ended
    watch.on_items(*items(0, 1))
    watch.doubt()
    assert not watch.ended
    watch.doubt()
    assert watch.ended


def test_items_that_are_none() -> None:
    with pytest.raises(MalformedError):
        Watch("t").on_items(Items(id=1, turn="t", offset=0, count=1), b'{"a": 1}')
