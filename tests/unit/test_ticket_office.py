from __future__ import annotations

import pytest

from interlock.bus.errors import TicketError
from interlock.bus.messages import TICKET_LIFE
from interlock.bus.records import Target
from interlock.bus.settings import PolicySettings
from interlock.bus.tickets import TicketClaims, verify
from interlock.supervisor.catalog.rows import CatalogRow
from interlock.supervisor.policy import tickets
from interlock.supervisor.policy.lent import Basis
from interlock.supervisor.policy.tickets import TicketOffice

KEYS = {1: b"1" * 32, 2: b"2" * 32}


class Clock:
    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


def office(clock: Clock | None = None) -> TicketOffice:
    made = TicketOffice(clock=clock or Clock())
    made.open_target("mcp:git", 1, KEYS[1], "ipc:///x/git.1")
    return made


def claims(target: Target | None, now: float = 1_000.0) -> TicketClaims:
    assert target is not None
    key = KEYS[target.generation]
    return verify(key, target.ticket, now, target.worker, target.generation)


def test_a_turn_ticket_carries_all_names_and_its_turn() -> None:
    target = office().turn_target("mcp:git", "t1", "agent:main", ["a", "b"])
    found = claims(target)
    assert (found.names, found.turn, found.caller) == (("a", "b"), "t1", "agent:main")
    assert (found.issued, found.expires) == (1_000.0, 1_000.0 + TICKET_LIFE)
    assert target is not None
    assert (target.endpoint, target.expires_in) == ("ipc:///x/git.1", TICKET_LIFE)


def test_an_api_ticket_is_for_one_name_and_no_turn() -> None:
    found = claims(office().api_target("mcp:git", "a", "api:00ff"))
    assert (found.names, found.turn, found.caller) == (("a",), "", "api:00ff")


def test_the_life_of_a_ticket_has_a_bound() -> None:
    assert TicketOffice(life=3_600).life == TICKET_LIFE
    made = TicketOffice(life=5, clock=Clock())
    made.open_target("mcp:git", 1, KEYS[1], "ipc:///x/git.1")
    target = made.api_target("mcp:git", "a", "api:")
    with pytest.raises(TicketError):
        claims(target, now=1_005.0)


def test_nothing_is_issued_for_what_does_not_serve() -> None:
    made = office()
    made.close_target("mcp:git", 1)
    assert made.turn_target("mcp:git", "t1", "agent:main", ["a"]) is None
    assert made.api_target("mcp:none", "a", "api:") is None


def test_the_end_of_an_older_generation_does_not_close_the_new_one() -> None:
    made = office()
    made.open_target("mcp:git", 2, KEYS[2], "ipc:///x/git.2")
    made.close_target("mcp:git", 1)
    assert claims(made.api_target("mcp:git", "a", "api:")).generation == 2


def test_a_turns_tickets_are_revoked_once_where_they_may_still_be_used() -> None:
    made = office()
    made.open_target("mcp:time", 1, KEYS[1], "ipc:///x/time.1")
    made.open_target("mcp:idle", 1, KEYS[1], "ipc:///x/idle.1")
    made.turn_target("mcp:git", "t1", "agent:main", ["a"])
    made.turn_target("mcp:git", "t1", "agent:main", ["a"])
    made.turn_target("mcp:time", "t1", "agent:main", ["a"])
    made.turn_target("mcp:time", "t2", "agent:main", ["a"])
    void = made.revoke_turn("t1")
    assert [(each.worker, each.generation, each.message.turn) for each in void] == [
        ("mcp:git", 1, "t1"),
        ("mcp:time", 1, "t1"),
    ]
    assert made.revoke_turn("t1") == ()
    assert len(made.unheard(0)) == 2
    assert made.revoked("mcp:git", 1, void[0].message.n)
    assert not made.revoked("mcp:git", 1, void[0].message.n)
    assert not made.revoked("mcp:idle", 1, void[1].message.n)
    assert len(made.unheard(0)) == 1
    made.close_target("mcp:time", 1)
    assert len(made.unheard(0)) == 0
    assert made.revoke_turn("t2") == ()


def test_a_revocation_that_nobody_acknowledges_ends_with_its_tickets() -> None:
    clock = Clock()
    made = office(clock)
    made.turn_target("mcp:git", "t1", "agent:main", ["a"])
    made.revoke_turn("t1")
    clock.now += TICKET_LIFE
    assert len(made.unheard(0)) == 0


def test_a_revocation_outlasts_tickets_from_before_their_life_was_made_shorter() -> None:
    clock = Clock()
    made = office(clock)
    made.turn_target("mcp:git", "t1", "agent:main", ["a"])
    made.life = 1.0
    void = made.revoke_turn("t1")
    clock.now += TICKET_LIFE - 1
    assert made.unheard(5.0) == void != ()
    clock.now += 1
    assert made.unheard(5.0) == ()


def test_only_what_waits_for_long_enough_is_sent_again() -> None:
    clock = Clock()
    made = office(clock)
    made.turn_target("mcp:git", "t1", "agent:main", ["a"])
    void = made.revoke_turn("t1")
    clock.now += 4
    assert made.unheard(5.0) == ()
    clock.now += 1
    assert made.unheard(5.0) == void
    assert made.unheard(5.0) == void
    assert made.revoked("mcp:git", 1, void[0].message.n)
    assert made.unheard(5.0) == ()


def basis(local: str = "a") -> Basis:
    row = CatalogRow(
        name=f"mcp:git/{local}",
        wire=f"mcp__git__{local}",
        kind="mcp",
        source="mcp:git",
        tier="ask",
        connected=True,
        reason="",
        summary="",
        local=local,
    )
    return Basis(row=row, policy=PolicySettings())


def test_a_ticket_for_one_call_is_bound_to_everything() -> None:
    target = office().call_target(basis(), 1, "agent:main", "t1", "d" * 64)
    found = claims(target)
    assert (found.names, found.caller, found.turn) == (("a",), "agent:main", "t1")
    assert (found.digest, found.single_use) == ("d" * 64, True)
    assert office().call_target(basis(), 2, "agent:main", "t1", "d" * 64) is None
    assert not claims(office().api_target("mcp:git", "a", "api:")).single_use


def test_what_a_turn_holds_is_voided_but_not_what_it_gets_then() -> None:
    clock = Clock()
    made = office(clock)
    assert made.revoke_earlier("t1", "mcp:git") is None
    for _ in range(tickets.OF_TURN):
        made.turn_target("mcp:git", "t1", "agent:main", ["a"])
    clock.now += TICKET_LIFE
    held = [claims(made.turn_target("mcp:git", "t1", "agent:main", ["a"]), clock.now).id]
    void = made.revoke_earlier("t1", "mcp:git")
    assert void is not None and list(void.message.ids) == held
    assert made.revoke_earlier("t1", "mcp:git") is None
    later = claims(made.turn_target("mcp:git", "t1", "agent:main", ["b"]), clock.now)
    assert later.id not in void.message.ids  # even by the same clock
    assert made.revoked("mcp:git", 1, void.message.n)
    assert [each.message.turn for each in made.revoke_turn("t1")] == ["t1"]


def test_what_a_turn_holds_for_one_call_is_left_alone() -> None:
    made = office()
    call = claims(made.call_target(basis(), 1, "agent:main", "t1", "d" * 64))
    held = claims(made.turn_target("mcp:git", "t1", "agent:main", ["b"]))
    void = made.revoke_earlier("t1", "mcp:git")
    assert void is not None and void.message.ids == (held.id,)
    assert not (void.message.turn or void.message.caller)
    assert [one.id for one in made.lent("mcp:git")] == [call.id]
    assert [each.message.turn for each in made.revoke_turn("t1")] == ["t1"]


def test_what_is_lent_is_known_until_it_expires() -> None:
    clock = Clock()
    made = office(clock)
    held = [claims(made.api_target("mcp:git", name, "api:")) for name in ("a", "a", "b")]
    held.append(claims(made.call_target(basis("c"), 1, "api:", "", "d" * 64)))
    assert [one.id for one in made.lent("mcp:git")] == [one.id for one in held]
    assert [one.basis is not None for one in made.lent("mcp:git")] == [False] * 3 + [True]
    void = made.revoke_lent("mcp:git", [held[0].id, held[3].id, "none"])
    assert void is not None and void.message.ids == (held[0].id, held[3].id)
    assert len(made.unheard(0)) == 1
    assert made.revoke_lent("mcp:git", [held[0].id]) is None
    assert [one.local for one in made.lent("mcp:git")] == ["a", "b"]
    clock.now += TICKET_LIFE
    assert made.lent("mcp:git") == ()
    assert made.lent("mcp:none") == ()


def test_expired_tickets_are_not_kept() -> None:
    clock = Clock()
    made = office(clock)
    for n in range(20):
        made.api_target("mcp:git", f"t{n}", "api:")
        clock.now += TICKET_LIFE / 2
    assert len(made._lent["mcp:git", 1]) <= 2
