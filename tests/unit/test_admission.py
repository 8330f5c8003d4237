"""What a serving worker remembers about tickets is bounded and forgotten in time."""

from __future__ import annotations

from typing import Any

import pytest

from interlock.bus import admission
from interlock.bus.admission import MEMORY, Admission, Holder
from interlock.bus.errors import OverloadedError, TicketError
from interlock.bus.messages import Call, Revoke
from interlock.bus.tickets import TicketClaims, mint

KEY = b"k" * 32
NOW, WALL = 50.0, 1_000_000.0


def token(**changes: Any) -> str:
    fields: dict[str, Any] = {
        "id": "t1",
        "caller": "agent:main",
        "target": "mcp:git",
        "generation": 1,
        "names": ("echo",),
        "turn": "turn-1",
        "expires": WALL + 60,
    }
    return mint(KEY, TicketClaims(**(fields | changes)))


def call(ticket: str = "t1") -> Call:
    return Call(id=1, ticket=ticket, name="echo", left_ms=1, generation=1)


def opened(gate: Admission, holder: Holder, now: float = NOW, **changes: Any) -> None:
    gate.hold(holder, gate.verify(token(**changes), holder.caller, now, WALL), now)


def refusal(gate: Admission, holder: Holder, now: float = NOW, ticket: str = "t1") -> str:
    with pytest.raises(TicketError) as caught:
        gate.admit(holder, call(ticket), b"{}", now)
    return caught.value.reason


def test_a_ticket_lives_by_the_monotonic_clock_once_it_is_open() -> None:
    gate, holder = Admission(KEY, "mcp:git", 1), Holder("agent:main")
    opened(gate, holder)
    assert gate.admit(holder, call(), b"{}", NOW + 59.9).claims.turn == "turn-1"
    assert refusal(gate, holder, NOW + 60) == "expired"


def test_a_connection_holds_a_bounded_number_of_valid_tickets() -> None:
    gate, holder = Admission(KEY, "mcp:git", 1), Holder("agent:main")
    for n in range(admission.MAX_TICKETS):
        opened(gate, holder, id=f"t{n}")
    opened(gate, holder, id="t5")
    with pytest.raises(OverloadedError):
        opened(gate, holder, id="one more")
    opened(gate, holder, now=NOW + 61, id="one more")
    assert list(holder.tickets) == ["one more"]


def test_tickets_of_ended_turns_make_room_for_new_ones() -> None:
    """However many turns an agent runs in a minute, the next one is admitted."""
    gate, holder = Admission(KEY, "mcp:git", 1), Holder("agent:main")
    for n in range(3 * admission.MAX_TICKETS):
        opened(gate, holder, id=f"t{n}", turn=f"turn-{n}")
        gate.admit(holder, call(f"t{n}"), b"{}", NOW)
        gate.revoke(Revoke(n=n, turn=f"turn-{n}"), [holder], NOW, WALL)
        assert refusal(gate, holder, ticket=f"t{n}") == "revoked"
    assert len(holder.tickets) <= admission.MAX_TICKETS


def test_used_tickets_are_remembered_within_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admission, "MAX_USED", 2)
    gate, holder = Admission(KEY, "mcp:git", 1), Holder("agent:main")
    for name in ("a", "b", "c"):
        opened(gate, holder, id=name, single_use=True)
    gate.admit(holder, call("a"), b"{}", NOW)
    gate.admit(holder, call("b"), b"{}", NOW)
    assert refusal(gate, holder, ticket="a") == "used"
    with pytest.raises(OverloadedError):
        gate.admit(holder, call("c"), b"{}", NOW)
    assert gate.remembers
    gate.forget(NOW + MEMORY + 1)
    assert not gate.remembers


@pytest.mark.parametrize(
    "revoke",
    [Revoke(n=1, ids=("t1",)), Revoke(n=1, turn="turn-1"), Revoke(n=1, caller="agent:main")],
)
def test_revoking_reaches_open_and_unopened_tickets_and_is_forgotten(revoke: Revoke) -> None:
    gate, holder = Admission(KEY, "mcp:git", 1), Holder("agent:main")
    opened(gate, holder)
    opened(gate, holder, id="t2", turn="turn-2", caller="agent:main", issued=WALL + 1)
    gate.revoke(revoke, [holder], NOW, WALL)
    assert refusal(gate, holder) == "revoked"
    gate.admit(holder, call("t2"), b"{}", NOW)
    with pytest.raises(TicketError, match="revoked"):
        gate.verify(token(), None, NOW, WALL)
    gate.forget(NOW + MEMORY - 1)
    assert gate.remembers
    gate.forget(NOW + MEMORY)
    assert not gate.remembers


def test_a_revoke_means_what_was_issued_until_it_came() -> None:
    gate, holder = Admission(KEY, "mcp:git", 1), Holder("agent:main")
    opened(gate, holder, id="old", issued=WALL - 5)
    opened(gate, holder, id="new", issued=WALL - 3)
    gate.revoke(Revoke(n=1, caller="agent:main"), [holder], NOW, WALL - 4)
    assert refusal(gate, holder, ticket="old") == "revoked"
    gate.admit(holder, call("new"), b"{}", NOW)
