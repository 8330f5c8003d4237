"""Policy and approvals in the turn service, with the runtime held in tables."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from turn_rig import KEY, Rig, T, finish, run

from interlock.bus.limits import MAX_ARGUMENTS
from interlock.bus.messages import (
    Capabilities,
    OfferUpdate,
    Resolve,
    Revoke,
    Revoked,
    TicketGrant,
    TicketParked,
    TicketRequest,
)
from interlock.bus.records import CapabilityReport
from interlock.bus.settings import AgentSettings, McpServerSettings, PolicySettings
from interlock.bus.tickets import arguments_digest, peek, verify
from interlock.supervisor.policy.approvals import Answerer

U = "cd" * 16


def test_a_new_policy_takes_back_what_turns_and_clients_hold(tmp_path: Path) -> None:
    async def story(made: Rig) -> None:
        made.agent()
        made.server()
        await made.start(T)
        (held,) = made.dispatches()[0].targets
        for name in ("git_log", "git_status"):
            message = Resolve(id=1, key="", capability=f"mcp:git/{name}")
            await made.api.resolve(b"c", message, b"{}")
        made.runtime.rules = PolicySettings(block=("git-log",))
        made.turns.policy_changed()
        (update,) = made.runtime.messages("agent:main", OfferUpdate)
        assert update.removed == ("mcp:git/git_log",)
        old, new = (
            verify(KEY, one.ticket, time.time(), "mcp:git", 1) for one in (held, update.targets[0])
        )
        assert new.names == ("git_status",)
        turn, client = made.runtime.messages("mcp:git", Revoke)
        assert turn.ids == (old.id,) and new.id != old.id
        assert len(client.ids) == 1 and not client.turn
        assert len(made.tickets.unheard(0)) == 2
        for each in (turn, client):
            made.turns.on_revoked("mcp:git", 1, Revoked(n=each.n))
        assert len(made.tickets.unheard(0)) == 0
        made.turns.policy_changed()
        assert len(made.runtime.messages("mcp:git", Revoke)) == 2
        await finish(made)

    run(tmp_path, story)


def test_what_asks_is_in_the_offer_and_in_no_ticket(tmp_path: Path) -> None:
    async def story(made: Rig) -> None:
        made.runtime.rules = PolicySettings(ask=("mcp:git/git_log",))
        made.agent()
        made.server()
        made.server("only", ("git_log",), settings=McpServerSettings(tier="ask"))
        await made.start(T)
        (dispatch,) = made.dispatches()
        tiers = {row.name: (row.tier, row.per_call) for row in dispatch.offer}
        assert tiers == {
            "mcp:git/git_log": ("ask", True),
            "mcp:git/git_status": ("monitor", False),
            "mcp:only/git_log": ("ask", True),
        }
        (target,) = dispatch.targets
        assert verify(KEY, target.ticket, time.time(), "mcp:git", 1).names == ("git_status",)
        await finish(made)

    run(tmp_path, story)


def test_an_approval_is_stored_before_it_is_announced(tmp_path: Path) -> None:
    async def story(made: Rig) -> None:
        await park(made, b'{"a": 1}')
        (stored,) = await made.journal.approvals(5, T)
        assert (stored.outcome, stored.arguments, stored.caller) == ("", '{"a": 1}', "agent:main")
        (parked,) = made.runtime.messages("agent:main", TicketParked)
        assert (parked.id, parked.approval) == (1, stored.id)
        assert ("approval_waiting", False) in made.notices
        who = Answerer(name="api:01", role="person")
        answered = made.turns.approvals.answer(stored.id, who, True)
        assert made.topics("approval.") == ["approval.requested"]
        assert made.runtime.messages("agent:main", TicketGrant) == []
        assert await answered
        await made.until(lambda: len(made.topics("approval.")) == 2)
        (stored,) = await made.journal.approvals(5, T)
        assert (stored.outcome, stored.by) == ("approved", "api:01")
        (grant,) = made.runtime.messages("agent:main", TicketGrant)
        claims = verify(KEY, grant.target.ticket, time.time(), "mcp:git", 1, "agent:main")
        assert (claims.names, claims.turn, claims.single_use) == (("git_log",), T, True)
        assert claims.digest == arguments_digest(b'{"a":1}')
        assert ("approval_waiting", True) in made.notices
        await finish(made)

    run(tmp_path, story)


def test_nobody_waits_for_an_agent_that_does_not(tmp_path: Path) -> None:
    async def story(made: Rig) -> None:
        made.runtime.rules = PolicySettings(ask=("mcp:git/git_log",))
        made.agent()
        made.server()
        await made.start(T)
        made.runtime.full.add("agent:main")
        request = TicketRequest(id=1, turn=T, capability="mcp:git/git_log")
        made.turns.on_ticket_request("agent:main", 1, request, b"{}")
        await made.until(lambda: len(made.topics("approval.")) == 2)
        (stored,) = await made.journal.approvals(5, T)
        assert stored.outcome == "withdrawn"
        made.runtime.full.clear()
        huge = b'{"a": "' + b"x" * MAX_ARGUMENTS + b'"}'
        made.turns.on_ticket_request("agent:main", 1, request, huge)
        (grant,) = made.runtime.messages("agent:main", TicketGrant)
        assert grant.code == "invalid_arguments"
        await finish(made)

    run(tmp_path, story)


async def approved(made: Rig) -> tuple[str, str]:
    """The tickets for one approved call of a running turn, and for one of a person; their ids."""
    made.agent()
    made.server()
    await made.start(T)
    request = TicketRequest(id=1, turn=T, capability="mcp:git/git_log")
    made.turns.on_ticket_request("agent:main", 1, request, b"{}")
    await made.until(lambda: made.topics("approval."))
    (stored,) = await made.journal.approvals(5, T)
    assert await made.turns.approvals.answer(stored.id, Answerer(name="p", role="person"), True)
    await made.until(lambda: made.runtime.messages("agent:main", TicketGrant))
    (grant,) = made.runtime.messages("agent:main", TicketGrant)
    own = Resolve(id=1, key="", capability="mcp:git/git_log", approval="yes")
    document = await made.api.resolve(b"c", own, b"{}")
    return peek(grant.target.ticket).id, peek(json.loads(document)["target"]["ticket"]).id


def revoked(made: Rig) -> set[str]:
    """Ids of the tickets that the server was told to take no more."""
    return {id_ for each in made.runtime.messages("mcp:git", Revoke) for id_ in each.ids}


LISTED = {
    "another tool came": ("git_status", "git_log", "git_show"),
    "another tool went": ("git_log",),
    "nothing changed": ("git_status", "git_log"),
}
ASKING = PolicySettings(ask=("mcp:git/git_log",))


@pytest.mark.parametrize("tools", LISTED.values(), ids=LISTED)
def test_an_approved_call_does_not_mind_what_else_its_server_lists(
    tmp_path: Path, tools: tuple[str, ...]
) -> None:
    async def story(made: Rig) -> None:
        made.runtime.rules = ASKING
        held = await approved(made)
        made.server(tools=tools)
        made.server_state("git", "DEGRADED", "busy")
        made.runtime.rules = PolicySettings(ask=("mcp:git/git_log",))  # read again, the same
        made.turns.policy_changed()
        assert revoked(made).isdisjoint(held)
        assert all(each.ids for each in made.runtime.messages("mcp:git", Revoke))
        await finish(made)

    run(tmp_path, story)


@pytest.mark.parametrize("change", ["gone", "disabled", "tier", "policy", "grown", "denied"])
def test_an_approval_is_void_once_what_it_was_about_is_another(tmp_path: Path, change: str) -> None:
    async def story(made: Rig) -> None:
        made.runtime.rules = ASKING
        of_turn, own = await approved(made)
        if change == "gone":
            made.server(tools=("git_status",))
        elif change == "disabled":
            settings = McpServerSettings(disabled_tools=("git_log",))
            made.turns.source_configured("mcp:git", settings)
        elif change == "tier":
            made.turns.source_configured("mcp:git", McpServerSettings(tier="block"))
        elif change == "grown":
            report = CapabilityReport(name="git_log", digest="e" * 64)
            body = b'{"%b":{"name":"git_log"}}' % (b"e" * 64)
            made.turns.on_capabilities("mcp:git", Capabilities(rows=(report,)), body)
        elif change == "policy":
            made.runtime.rules = PolicySettings(block=("mcp:git/git_log",))
            made.turns.policy_changed()
        else:
            made.runtime.settings["main"] = AgentSettings(model="direct", deny=("mcp:git/git_log",))
            made.turns.policy_changed()
        # What agents are denied a person may still call.
        assert revoked(made) & {of_turn, own} == {of_turn} | (
            {own} if change != "denied" else set()
        )
        await finish(made)

    run(tmp_path, story)


async def park(made: Rig, arguments: bytes = b"{}") -> None:
    """Start a turn whose one call waits for a person."""
    made.runtime.rules = PolicySettings(ask=("mcp:git/git_log",))
    made.agent()
    made.server()
    await made.start(T)
    request = TicketRequest(id=1, turn=T, capability="mcp:git/git_log")
    made.turns.on_ticket_request("agent:main", 1, request, arguments)
    assert made.topics("approval.") == []  # it is stored before
    await made.until(lambda: made.topics("approval."))


def grants(made: Rig) -> list[tuple[int, str]]:
    """What the agent's requests were answered: id and code."""
    found = made.runtime.messages("agent:main", TicketGrant)
    return [(grant.id, grant.code) for grant in found]


def test_an_agent_that_left_the_configuration_gets_nothing_more(tmp_path: Path) -> None:
    async def story(made: Rig) -> None:
        made.runtime.rules = PolicySettings(ask=("mcp:git/git_log",))
        made.runtime.settings["main"] = AgentSettings(model="direct", deny=("mcp:other/*",))
        made.agent()
        made.server()
        made.server("other", ("read", "spawn_worker"))
        await made.start(T)
        parked = TicketRequest(id=1, turn=T, capability="mcp:git/git_log")
        made.turns.on_ticket_request("agent:main", 1, parked, b"{}")
        await made.until(lambda: made.topics("approval."))
        del made.runtime.settings["main"]
        made.turns.policy_changed()
        await made.until(lambda: len(made.topics("approval.")) == 2)
        for n, name in enumerate(("mcp:other/read", "mcp:other/spawn_worker", "mcp:git/git_log")):
            request = TicketRequest(id=n + 2, turn=T, capability=name)
            made.turns.on_ticket_request("agent:main", 1, request, b"{}")
        renewal = TicketRequest(id=5, turn=T, worker="mcp:git")
        made.turns.on_ticket_request("agent:main", 1, renewal, None)
        assert grants(made) == [(n, "denied") for n in (1, 2, 3, 4, 5)]
        (void,) = made.runtime.messages("mcp:git", Revoke)
        (target,) = (one for one in made.dispatches()[0].targets if one.worker == "mcp:git")
        assert void.ids == (peek(target.ticket).id,)
        (update,) = made.runtime.messages("agent:main", OfferUpdate)
        assert set(update.removed) == {"mcp:git/git_log", "mcp:git/git_status"}
        await finish(made)

    run(tmp_path, story)


def test_a_denial_that_came_while_a_person_thought_counts(tmp_path: Path) -> None:
    async def story(made: Rig) -> None:
        await park(made)
        (stored,) = await made.journal.approvals(5, T)
        # In force, and not yet told of: the answer arrives in between.
        made.runtime.settings["main"] = AgentSettings(model="direct", deny=("mcp:git/git_log",))
        answered = made.turns.approvals.answer(stored.id, Answerer(name="p", role="person"), True)
        assert await answered
        assert grants(made) == [(1, "denied")]
        await finish(made)

    run(tmp_path, story)


def test_a_denial_ends_what_waits_as_denied(tmp_path: Path) -> None:
    async def story(made: Rig) -> None:
        await park(made)
        made.runtime.settings["main"] = AgentSettings(model="direct", deny=("mcp:git/git_log",))
        made.turns.policy_changed()
        await made.until(lambda: len(made.topics("approval.")) == 2)
        assert grants(made) == [(1, "denied")]
        await finish(made)

    run(tmp_path, story)


@pytest.mark.parametrize("state", ["DEGRADED", "BACKOFF"])
def test_a_stricter_policy_counts_for_a_source_that_is_not_usable(
    tmp_path: Path, state: str
) -> None:
    async def story(made: Rig) -> None:
        made.agent()
        made.server()
        await made.start(T)
        made.server_state("git", state)
        made.runtime.rules = PolicySettings(ask=("mcp:git/git_log",))
        made.turns.policy_changed()
        (update,) = made.runtime.messages("agent:main", OfferUpdate)
        assert [(row.name, row.per_call) for row in update.rows] == [("mcp:git/git_log", True)]
        assert len(made.runtime.messages("mcp:git", Revoke)) == 1
        request = TicketRequest(id=1, turn=T, worker="mcp:git")
        made.turns.on_ticket_request("agent:main", 1, request, None)
        (grant,) = made.runtime.messages("agent:main", TicketGrant)
        assert verify(KEY, grant.target.ticket, time.time(), "mcp:git", 1).names == ("git_status",)
        await finish(made)

    run(tmp_path, story)


def test_a_change_of_a_large_source_costs_little_for_each_running_turn(tmp_path: Path) -> None:
    """Whoever dies and comes back with 1,000 tools holds the loop no longer for thirty turns."""

    async def story(made: Rig) -> None:
        made.agent()
        made.server("big", tuple(f"tool_{n}" for n in range(1000)))
        costs = []
        for turns in (1, 30):
            for number in range(len(made.dispatches()), turns):
                await made.start(f"{number:032x}", "mcp:big")
            await made.until(lambda turns=turns: len(made.dispatches()) == turns)
            spent = []
            for state in ("DEGRADED", "READY") * 4:
                begun = time.process_time()
                made.server_state("big", state)
                spent.append(time.process_time() - begun)
            costs.append(min(spent))
        assert costs[1] < 10 * costs[0], costs

    run(tmp_path, story)
