"""Calls that only the items of an interrupted turn know of."""

from __future__ import annotations

import msgspec

from interlock.supervisor.events.journalrows import ApprovalRow, CallRow
from interlock.supervisor.events.unreported import unreported


def item(kind: str, id_: str, **fields: object) -> bytes:
    return msgspec.json.encode({"type": kind, "id": id_, **fields})


def call(capability: str) -> CallRow:
    return CallRow(
        worker="mcp:x",
        generation=1,
        call="7",
        capability=capability,
        caller="agent:main",
        turn="t",
        outcome="ok",
        duration_ms=1.0,
        started=0.0,
    )


ITEMS = [
    item("tool.call", "1", capability="mcp:x/echo"),
    item("tool.result", "1", outcome="ok", duration_ms=2.0),
    item("tool.call", "2", capability="mcp:x/echo"),
    item("tool.call", "3", capability="mcp:x/slow"),
    b"no item",
]


def test_what_had_no_result_may_have_run() -> None:
    found = unreported(ITEMS, [call("mcp:x/echo")], [])
    assert [(one.capability, one.outcome, one.may_have_run) for one in found] == [
        ("mcp:x/echo", "worker_died", True),
        ("mcp:x/slow", "worker_died", True),
    ]


def test_what_had_its_result_has_its_outcome() -> None:
    found = unreported(ITEMS, [], [])
    assert (found[0].outcome, found[0].duration_ms, found[0].may_have_run) == ("ok", 2.0, False)


def test_what_waited_for_a_person_did_not_run() -> None:
    approval = ApprovalRow(
        id="a", capability="mcp:x/slow", arguments="{}", digest="", asked=0.0, outcome="withdrawn"
    )
    found = unreported(ITEMS, [call("mcp:x/echo"), call("mcp:x/echo")], [approval])
    assert found == []
