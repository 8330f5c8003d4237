"""All calls of a turn, also those that only its items know of."""

from __future__ import annotations

import msgspec
import pytest

from interlock.supervisor.events.journalrows import ApprovalRow, CallRow
from interlock.supervisor.events.unreported import REFUSED, Unreported, all_calls, told


def item(kind: str, id_: str, **fields: object) -> bytes:
    return msgspec.json.encode({"type": kind, "id": id_, **fields})


def call(capability: str, outcome: str = "ok") -> CallRow:
    return CallRow(
        worker="mcp:x",
        generation=1,
        call="7",
        capability=capability,
        caller="agent:main",
        turn="t",
        outcome=outcome,
        duration_ms=1.0,
        started=0.0,
    )


def approval(capability: str, outcome: str) -> ApprovalRow:
    return ApprovalRow(
        id="a", capability=capability, arguments="{}", digest="", asked=0.0, outcome=outcome
    )


ITEMS = [
    item("tool.call", "1", capability="mcp:x/echo"),
    item("tool.result", "1", outcome="ok", duration_ms=2.0),
    item("tool.call", "2", capability="mcp:x/echo"),
    item("tool.call", "3", capability="mcp:x/slow"),
    b"no item",
    b'"tool. and no JSON',
]


def found(
    calls: list[CallRow],
    approvals: list[ApprovalRow] | None = None,
    items: list[bytes] = ITEMS,
    state: str = "interrupted",
) -> list[CallRow | Unreported]:
    return all_calls(list(told(items)), calls, approvals or [], state)


def test_what_had_no_result_may_have_run() -> None:
    known = call("mcp:x/echo")
    first, *rest = found([known])
    assert first is known
    assert [(one.capability, one.outcome, one.may_have_run) for one in rest] == [
        ("mcp:x/echo", "worker_died", True),
        ("mcp:x/slow", "worker_died", True),
    ]


def test_what_had_its_result_has_its_outcome() -> None:
    first = found([])[0]
    assert isinstance(first, Unreported)
    assert (first.outcome, first.duration_ms, first.may_have_run) == ("ok", 2.0, False)


def test_what_waited_for_a_person_when_the_turn_ended_did_not_run() -> None:
    known = [call("mcp:x/echo"), call("mcp:x/echo")]
    *_, last = found(known, [approval("mcp:x/slow", "withdrawn")])
    assert last == Unreported("3", "mcp:x/slow", "cancelled", 0.0, False)


def test_what_waits_names_its_approval_and_what_runs_is_under_way() -> None:
    *_, echo, slow = found([call("mcp:x/echo")], [approval("mcp:x/slow", "")], state="running")
    assert echo == Unreported("2", "mcp:x/echo", "", 0.0, False)
    assert slow == Unreported("3", "mcp:x/slow", "", 0.0, False, "a")


@pytest.mark.parametrize("outcome", REFUSED)
@pytest.mark.parametrize("refused_first", [True, False])
def test_a_refused_call_is_never_taken_for_one_that_ran(outcome: str, refused_first: bool) -> None:
    items = [
        item("tool.call", "1", capability="mcp:x/echo"),
        item("tool.call", "2", capability="mcp:x/echo"),
        item("tool.result", "1" if refused_first else "2", outcome=outcome, duration_ms=0.0),
    ]
    known = call("mcp:x/echo", "timeout")
    both = found([known], items=items, state="completed")
    refused, ran = both if refused_first else reversed(both)
    assert ran is known
    assert isinstance(refused, Unreported)
    assert (refused.outcome, refused.may_have_run) == (outcome, False)


def test_reports_of_calls_that_the_agent_did_not_tell_of_come_last() -> None:
    extra = call("mcp:x/other")
    assert found([extra])[-1] is extra
    assert len(found([extra])) == 4
