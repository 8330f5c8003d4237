from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path
from typing import Any

import pytest
from turn_rig import KEY, Rig, T, finish, refusal, run

from interlock.bus.errors import MalformedError
from interlock.bus.events import (
    CatalogChanged,
    TextDelta,
    ToolFailed,
    ToolStarted,
    TurnCancelled,
    TurnCompleted,
    TurnFailed,
    TurnStarted,
)
from interlock.bus.messages import (
    CallReports,
    Gone,
    OfferUpdate,
    Revoke,
    Revoked,
    SchemaGet,
    Schemas,
    TicketGrant,
    TicketRequest,
    TurnCancel,
    TurnGet,
    TurnItems,
    TurnsGet,
    TurnStop,
)
from interlock.bus.records import CallReport
from interlock.bus.settings import AgentSettings
from interlock.bus.tickets import verify
from interlock.supervisor.events.turnlog import LogBounds
from interlock.supervisor.events.turns import TurnTimes

U = "cd" * 16


async def show(made: Rig, turn: str = T) -> dict[str, Any]:
    return dict(json.loads(await made.api.show(b"c", TurnGet(id=1, key="", turn=turn), None)))


def test_a_turn_from_its_start_to_its_end(tmp_path: Path) -> None:
    async def story(made: Rig) -> None:
        made.agent()
        made.server()
        assert await made.start(T, "mcp:git", session="s") == {
            "turn": T,
            "state": "running",
        }
        (dispatch,) = made.dispatches()
        assert (dispatch.turn, dispatch.session) == (T, "s")
        assert 590_000 < dispatch.deadline_ms <= 600_000
        assert [row.wire for row in dispatch.offer] == ["mcp__git__git_log", "mcp__git__git_status"]
        (target,) = dispatch.targets
        claims = verify(KEY, target.ticket, time.time(), "mcp:git", 1, "agent:main")
        assert (claims.turn, set(claims.names)) == (T, {"git_log", "git_status"})
        await made.watch(T)
        made.items(T, TurnStarted(agent="main", offered=2), TextDelta(text="a"))
        made.items(T, TextDelta(text="b"), TurnCompleted(text="ab"), TextDelta(text="late"))
        await made.until(made.ended)
        assert [item["type"] for item in made.stream()] == [
            "turn.started",
            "text.delta",
            "text.delta",
            "turn.completed",
        ]
        assert all(item["turn"] == T for item in made.stream())
        assert made.topics() == ["turn.accepted", "turn.started", "turn.completed"]
        found = await show(made)
        assert (found["state"], found["code"], found["text"]) == ("completed", "", "mcp:git")
        assert found["ended"] >= found["started"]
        assert made.turns.bad_items == 1
        (revoke,) = made.runtime.messages("mcp:git", Revoke)
        assert revoke.turn == T
        assert len(made.tickets.unheard(0)) == 1
        made.turns.on_revoked("mcp:git", 1, Revoked(n=revoke.n))
        assert len(made.tickets.unheard(0)) == 0

    run(tmp_path, story)


def test_the_end_is_stored_before_anybody_hears_of_it(tmp_path: Path) -> None:
    async def story(made: Rig) -> None:
        made.agent()
        await made.start(T)
        await made.watch(T)
        made.items(T, TurnCompleted(text="x"))
        assert made.stream() == []
        row = made.turns.row(T)
        assert row is not None and row.state == "running"
        await made.until(made.ended)
        stored = await made.journal.turn(T)
        assert stored is not None and stored.state == "completed"
        assert json.loads((await made.journal.items(T))[0]) == made.stream()[0]

    run(tmp_path, story)


def test_the_same_id_is_the_same_turn_also_later(tmp_path: Path) -> None:
    async def story(made: Rig) -> None:
        made.agent()
        answers = await asyncio.gather(made.start(T, "one"), made.start(T, "two"))
        assert [answer["turn"] for answer in answers] == [T, T]
        assert len(made.dispatches()) == 1
        await finish(made)
        assert await made.start(T, "three") == {"turn": T, "state": "completed"}
        assert not made.logs.known(T)
        assert made.turns.ended_before(T)
        await made.watch(T)
        assert [item["type"] for item in made.stream()] == ["turn.started", "turn.completed"]

    run(tmp_path, story, bounds=LogBounds(ended=0))

    async def next_supervisor(made: Rig) -> None:
        made.agent()
        assert await made.start(T, "four") == {"turn": T, "state": "completed"}
        assert made.dispatches() == []

    run(tmp_path, next_supervisor, epoch="e2")


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"turn": "xyz"}, "wrong_usage"),
        ({"turn": "AB" * 16}, "wrong_usage"),
        ({"turn": T, "agent": "nobody"}, "not_found"),
        ({"turn": T, "deadline": -1.0}, "wrong_usage"),
        ({"turn": T, "deadline": float("nan")}, "wrong_usage"),
        ({"turn": T, "session": "s" * 300}, "wrong_usage"),
        ({"turn": T, "text": "  "}, "wrong_usage"),
        ({"turn": T, "text": "x" * (1 << 20)}, "too_large"),
    ],
)
def test_a_wrong_start_is_refused_and_leaves_nothing(
    tmp_path: Path, fields: dict[str, Any], code: str
) -> None:
    async def story(made: Rig) -> None:
        made.agent()
        error = await refusal(made.start(**fields))
        assert error.code == code
        if code == "not_found":
            assert "Agents: main." in error.message
        assert list(made.turns.rows()) == [] and made.events == []

    run(tmp_path, story)


def test_a_turn_waits_for_an_agent_that_is_starting(tmp_path: Path) -> None:
    async def story(made: Rig) -> None:
        made.agent("STARTING")
        assert (await made.start(T))["state"] == "accepted"
        made.agent("INITIALIZING")
        assert made.dispatches() == []
        made.agent("READY")
        assert len(made.dispatches()) == 1
        assert made.topics() == ["turn.accepted", "turn.started"]

    run(tmp_path, story, times=TurnTimes(agent_wait=30))


@pytest.mark.parametrize(
    ("state", "words"),
    [
        ("FAILED", "no such model"),
        ("STOPPED", "interlock start agent:main"),
        ("BACKOFF", "did not become ready"),
        ("", "no longer configured"),
    ],
)
def test_an_agent_that_cannot_take_it_fails_the_turn(
    tmp_path: Path, state: str, words: str
) -> None:
    async def story(made: Rig) -> None:
        if state:
            made.agent(state, reason="no such model")
        await made.start(T)
        await made.watch(T)
        await made.until(made.ended)
        (item,) = made.stream()
        assert (item["type"], item["code"]) == ("turn.failed", "unavailable")
        assert words in item["message"]
        assert made.topics() == ["turn.accepted", "turn.failed"]

    run(tmp_path, story)


def test_a_full_queue_to_the_agent_fails_the_turn(tmp_path: Path) -> None:
    async def story(made: Rig) -> None:
        made.agent()
        made.runtime.full.add("agent:main")
        await made.start(T)
        await made.until(lambda: made.topics() == ["turn.accepted", "turn.failed"])
        assert (await show(made))["code"] == "unavailable"

    run(tmp_path, story)


@pytest.mark.parametrize("answers", [True, False])
def test_cancel_is_answered_by_the_agent_or_forced(tmp_path: Path, answers: bool) -> None:
    async def story(made: Rig) -> None:
        made.agent()
        await made.start(T)
        await made.watch(T)
        stop = TurnStop(id=2, key="", turn=T)
        assert json.loads(await made.api.cancel(b"c", stop, None))["state"] == "running"
        (cancel,) = made.runtime.messages("agent:main", TurnCancel)
        assert cancel.code == "cancelled"
        if answers:
            made.items(T, TextDelta(text="bye"), TurnCancelled())
        await made.until(made.ended)
        assert [item["type"] for item in made.stream()][-1] == "turn.cancelled"
        assert made.topics()[-1] == "turn.cancelled"
        assert json.loads(await made.api.cancel(b"c", stop, None))["state"] == "cancelled"
        assert (
            await refusal(made.api.cancel(b"c", TurnStop(id=3, key="", turn=U), None))
        ).code == ("not_found")

    run(tmp_path, story)


def test_a_waiting_turn_is_cancelled_at_once(tmp_path: Path) -> None:
    async def story(made: Rig) -> None:
        made.agent("STARTING")
        await made.start(T)
        made.turns.cancel(T)
        await made.until(lambda: made.topics() == ["turn.accepted", "turn.cancelled"])

    run(tmp_path, story, times=TurnTimes())


@pytest.mark.parametrize("state", ["READY", "STARTING"])
def test_the_deadline_is_kept_also_when_the_agent_does_not(tmp_path: Path, state: str) -> None:
    async def story(made: Rig) -> None:
        made.agent(state)
        await made.start(T, deadline=0.05)
        await made.watch(T)
        await made.until(made.ended)
        assert made.stream()[-1]["code"] == "deadline"
        cancels = [message.code for message in made.runtime.messages("agent:main", TurnCancel)]
        assert cancels == (["deadline"] if state == "READY" else [])

    run(tmp_path, story, times=TurnTimes(agent_wait=30, margin=0.02, grace=0.02))


def test_a_turn_that_produces_too_much_is_ended(tmp_path: Path) -> None:
    async def story(made: Rig) -> None:
        made.agent()
        await made.start(T)
        for _ in range(20):
            made.items(T, TextDelta(text="x" * 1000))
        await made.until(lambda: made.topics()[-1] == "turn.failed")
        assert (await show(made))["code"] == "too_large"
        assert len(made.runtime.messages("agent:main", TurnCancel)) == 1

    run(tmp_path, story, bounds=LogBounds(turn=10_000))


def test_items_are_taken_only_from_the_turns_own_agent(tmp_path: Path) -> None:
    async def story(made: Rig) -> None:
        made.agent()
        await made.start(T)
        await made.watch(T)
        body = b'[{"type":"turn.completed","text":"forged"}]'
        made.turns.on_items("agent:other", 1, TurnItems(turn=T), body)
        made.turns.on_items("agent:main", 2, TurnItems(turn=T), body)
        made.turns.on_items("agent:main", 1, TurnItems(turn=U), body)
        with pytest.raises(MalformedError):
            made.turns.on_items("agent:main", 1, TurnItems(turn=T), b"not json")
        made.turns.on_items("agent:main", 1, TurnItems(turn=T), b'[{"type":"text.delta"}]')
        assert made.turns.bad_items == 4
        await finish(made)
        assert made.stream()[-1]["text"] == "done"

    run(tmp_path, story)


def test_an_agent_between_two_turns_learns_of_the_end_of_a_server_that_it_called(
    tmp_path: Path,
) -> None:
    async def story(made: Rig) -> None:
        made.agent()
        made.server()
        await made.start(T)
        await finish(made)
        made.turns.worker_gone("mcp:git", 1, "killed")
        (gone,) = made.runtime.messages("agent:main", Gone)
        assert (gone.worker, gone.generation) == ("mcp:git", 1)
        made.turns.worker_gone("mcp:git", 2, "never offered")
        assert len(made.runtime.messages("agent:main", Gone)) == 1

    run(tmp_path, story)


def test_a_server_that_restarts_in_a_turn_gives_new_tickets(tmp_path: Path) -> None:
    async def story(made: Rig) -> None:
        made.agent()
        made.server()
        made.server("time", ("now",))
        await made.start(T)
        await made.start(U)
        made.turns.worker_gone("mcp:git", 1, "killed")
        made.server_state("git", "BACKOFF", "killed")
        (gone,) = made.runtime.messages("agent:main", Gone)
        assert (gone.worker, gone.generation, gone.reason) == ("mcp:git", 1, "killed")
        assert made.runtime.messages("agent:main", OfferUpdate) == []
        made.server(tools=("git_status", "git_show"), generation=2)
        updates = made.runtime.messages("agent:main", OfferUpdate)
        ready = [update for update in updates if update.targets and update.turn == T]
        (target,) = ready[-1].targets
        assert (target.worker, target.generation) == ("mcp:git", 2)
        claims = verify(KEY, target.ticket, time.time(), "mcp:git", 2)
        assert set(claims.names) == {"git_status", "git_show"}
        mine = [update for update in updates if update.turn == T]
        assert [row.name for update in mine for row in update.rows] == ["mcp:git/git_show"]
        assert [name for update in mine for name in update.removed] == ["mcp:git/git_log"]

    run(tmp_path, story)


def test_a_server_that_becomes_ready_joins_a_running_turn(tmp_path: Path) -> None:
    async def story(made: Rig) -> None:
        made.agent()
        await made.start(T)
        assert made.dispatches()[0].offer == ()
        made.server()
        update = made.runtime.messages("agent:main", OfferUpdate)[-1]
        assert (len(update.rows), len(update.targets)) == (2, 1)
        made.server_state("git", "DEGRADED", "circuit open")
        made.server_state("git", "READY")
        assert made.runtime.messages("agent:main", OfferUpdate)[-1] is update
        made.turns.source_removed("mcp:git")
        last = made.runtime.messages("agent:main", OfferUpdate)[-1]
        assert last.removed == ("mcp:git/git_log", "mcp:git/git_status")
        changes = [event for event in made.events if isinstance(event, CatalogChanged)]
        numbers = [(len(one.added), len(one.removed), len(one.changed)) for one in changes]
        assert numbers == [(2, 0, 0), (0, 0, 2), (0, 0, 2), (0, 2, 0)]

    run(tmp_path, story)


def test_a_large_offer_travels_in_parts(tmp_path: Path) -> None:
    async def story(made: Rig) -> None:
        made.agent()
        for n in range(8):
            made.server(f"s{n}", tuple(f"tool_{'x' * 60}_{k}" for k in range(600)))
        await made.start(T, " ".join(f"mcp:s{n}" for n in range(8)))
        assert made.dispatches()[0].offered == 4_800
        parts = [made.dispatches()[0].offer]
        targets = list(made.dispatches()[0].targets)
        for update in made.runtime.messages("agent:main", OfferUpdate):
            parts.append(update.rows)
            targets += update.targets
        assert sum(map(len, parts)) == 4_800 and len(parts) > 2
        assert [target.worker for target in targets] == [f"mcp:s{n}" for n in range(8)]

    run(tmp_path, story)


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        ({"worker": "mcp:git"}, ""),
        ({"worker": "mcp:down"}, "denied"),
        ({"capability": "mcp:late/now"}, ""),
        ({"capability": "mcp__git__git_log"}, ""),
        ({"capability": "mcp:git/GitLog"}, ""),
        ({"capability": "Secret"}, "denied"),
        ({"capability": "mcp:git/GitLogs"}, "not_found"),
        ({"capability": "mcp:down/a"}, "unavailable"),
        ({"capability": "mcp:git/secret"}, "denied"),
        ({"worker": "mcp:git", "turn": U}, "denied"),
    ],
)
def test_ticket_requests_of_agents(tmp_path: Path, request_: dict[str, str], code: str) -> None:
    async def story(made: Rig) -> None:
        made.runtime.settings["main"] = AgentSettings(deny=("mcp:git/secret",))
        made.agent()
        made.server(tools=("git_log", "secret"))
        made.server("down", ("a",))
        made.turns.worker_gone("mcp:down", 1, "exit code 1")
        made.server_state("down", "BACKOFF", "exit code 1")
        await made.start(T)
        made.server("late", ("now",))
        message = TicketRequest(**{"id": 5, "turn": T, **request_})
        made.turns.on_ticket_request("agent:main", 1, message, b"{}")
        (grant,) = made.runtime.messages("agent:main", TicketGrant)
        assert (grant.id, grant.code) == (5, code)
        if not code:
            assert verify(KEY, grant.target.ticket, time.time(), grant.target.worker, 1).turn == T
        assert (grant.target is None) == bool(code)
        made.turns.on_ticket_request("agent:other", 1, message, b"{}")
        assert len(made.runtime.messages("agent:main", TicketGrant)) == 1

    run(tmp_path, story)


def test_schemas_are_fetched_by_digest(tmp_path: Path) -> None:
    async def story(made: Rig) -> None:
        made.agent()
        made.server(tools=("git_log",))
        digest = made.catalog.rows()[0].digest
        made.turns.on_schema_get("agent:main", 1, SchemaGet(id=3, digests=(digest, "no")))
        ((_, _, message, body),) = [s for s in made.runtime.sent if isinstance(s[2], Schemas)]
        assert isinstance(message, Schemas) and message.id == 3
        assert json.loads(body or b"") == {digest: {"name": "git_log"}}

    run(tmp_path, story)


def test_calls_are_journaled_announced_and_lost_with_their_worker(tmp_path: Path) -> None:
    async def story(made: Rig) -> None:
        made.agent()
        made.server()
        await made.start(T)
        calls = [CallReport(id=str(n), capability="git_log", turn=T) for n in range(2)]
        made.turns.on_call_reports("mcp:git", 1, CallReports(reports=tuple(calls)))
        ended = CallReport(
            id="0", capability="git_log", turn=T, outcome="tool_error", duration_ms=2.5
        )
        fast = CallReport(id="2", capability="git_log", turn=T, outcome="ok", whole=True)
        made.turns.on_call_reports("mcp:git", 1, CallReports(reports=(ended, fast)))
        (ending,) = made.turns.worker_gone("mcp:git", 1, "killed")
        started, done, lost = (f"tool.{what}" for what in ("started", "completed", "failed"))
        assert made.topics("tool.") == [started, started, done, started, done, lost]
        begun = next(event for event in made.events if isinstance(event, ToolStarted))
        assert (begun.name, begun.capability) == ("mcp:git", "mcp:git/git_log")
        failed = next(event for event in made.events if isinstance(event, ToolFailed))
        assert (failed.call, failed.code) == ("1", "worker_died")
        assert failed.duration_ms == ending.duration_ms > 0
        await finish(made)
        found = [(c["outcome"], c["may_have_run"]) for c in (await show(made))["calls"]]
        assert found == [("tool_error", False), ("worker_died", True), ("ok", False)]
        assert (await show(made))["calls"][1]["duration_ms"] == ending.duration_ms

    run(tmp_path, story)


def test_what_the_supervisor_before_left_is_interrupted(tmp_path: Path) -> None:
    async def first(made: Rig) -> None:
        made.agent()
        await made.start(T)
        made.items(T, TextDelta(text="half"))

    async def second(made: Rig) -> None:
        assert made.topics() == ["turn.interrupted"]
        assert (await show(made))["state"] == "interrupted"
        await made.watch(T)
        assert [item["text"] for item in made.stream()] == ["half"]
        assert made.ended()
        assert (await refusal(made.watch(U))).code == "not_found"

    run(tmp_path, first)
    run(tmp_path, second, epoch="e2")


def test_turns_are_listed_newest_first_from_memory_and_disk(tmp_path: Path) -> None:
    async def story(made: Rig) -> None:
        made.agent()
        ids = [f"{n:032x}" for n in range(4)]
        clock = iter((4e9, 3e9, 2e9, 1e9))  # set back again and again: the order is the journal's
        made.turns._clock = lambda: next(clock, 5.0)
        for turn in ids:
            await made.start(turn)
        for turn in ids[:3]:
            await finish(made, turn)
        document = json.loads(await made.api.turns(b"c", TurnsGet(id=1, key="", limit=3), None))
        assert [row["turn"] for row in document["turns"]] == ids[:0:-1]
        assert [row["state"] for row in document["turns"]] == ["running", "completed", "completed"]
        assert set(document["turns"][0]) >= {
            *("turn", "agent", "session", "state", "text", "started", "ended", "code")
        }

    run(tmp_path, story, bounds=LogBounds(ended=1))


def test_a_failed_turn_of_the_agent_keeps_its_code(tmp_path: Path) -> None:
    async def story(made: Rig) -> None:
        made.agent()
        await made.start(T)
        made.items(T, TurnFailed(code="no_model", message="Configure one."))
        await made.until(lambda: made.topics()[-1] == "turn.failed")
        found = await show(made)
        assert (found["state"], found["code"], found["message"]) == (
            "failed",
            "no_model",
            "Configure one.",
        )

    run(tmp_path, story)
