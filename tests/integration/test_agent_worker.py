"""The agent kind against real data sockets; the supervisor's end of control is played here."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
import pytest
from agent_rig import KEY, TURN, Server, agent, echo, hold, ok, results

from interlock.bus import messages as m
from interlock.bus.channel import IncomingCall
from interlock.bus.records import Target
from interlock.bus.tickets import TicketClaims, arguments_digest, mint
from interlock.workers.kept import keep


def large(call: IncomingCall) -> None:
    call.result(ok("y" * 50_000))


def contents(items: list[dict[str, Any]]) -> list[list[str]]:
    """Texts of the items of each result, in the order of the calls."""
    found = sorted((i["id"], i["content"]) for i in items if i["type"] == "tool.result")
    return [[item["text"] for item in content] for _, content in found]


def test_wholes_that_cannot_be_kept_are_told_until_there_is_room(tmp_path: Path) -> None:
    """A folder that cannot be made stands for a full disk: the item says why, no path is named."""

    async def story() -> None:
        server = Server(tmp_path, "mcp:s", 1, {"large": large})
        folder = tmp_path / "results"
        folder.touch()
        async with agent(tmp_path) as peer:
            peer.dispatch("mcp:s/large", server)
            ((*_, lost),) = contents(await peer.ended())
            assert "could not be kept: " in lost and str(folder) not in lost
            assert [code for code, _ in peer.notices] == ["results_full"]
            folder.unlink()
            peer.dispatch("mcp:s/large\nmcp:s/large", server, turn="b" * 32)
            items = await peer.ended("b" * 32)
            assert peer.notices[1:] == [("results_full", {"clear": True})]
        server.data.close()
        named = {Path(texts[-1]) for texts in contents(items)}
        assert set((folder / "agent_main").iterdir()) == named and len(named) == 2
        assert all(path.read_text() == "y" * 50_000 for path in named)

    asyncio.run(story())


def test_a_whole_that_its_worker_kept_is_not_kept_twice(tmp_path: Path) -> None:
    """What is named has to be one of our files: a server's own word for it is not enough."""

    async def story() -> None:
        folder = tmp_path / "results" / "mcp_s"
        kept, _ = keep(b"whole", "txt", folder=folder, tool="t")
        stranger = folder / "notes.txt"
        stranger.touch()

        def naming(path: Path | None) -> bytes:
            items = [{"type": "text", "text": text} for text in ("y" * 50_000, "[Cut]", str(path))]
            return json.dumps({"content": items}).encode()

        tools = {
            "kept": lambda call: call.result(naming(kept)),
            "lie": lambda call: call.result(naming(stranger)),
        }
        server = Server(tmp_path, "mcp:s", 1, tools)
        async with agent(tmp_path) as peer:
            peer.dispatch("mcp:s/kept\nmcp:s/lie", server)
            first, second = contents(await peer.ended())
        server.data.close()
        assert first[-2:] == ["[Cut]", str(kept)]
        (own,) = (tmp_path / "results" / "agent_main").iterdir()
        assert second[-1] == str(own)
        assert own.read_bytes() == naming(stranger)

    asyncio.run(story())


def test_a_turn_that_ends_while_a_whole_is_written_tells_the_result(tmp_path: Path) -> None:
    """All threads are busy, as with a disk that does not answer; the end does not wait for it."""

    async def story() -> None:
        server = Server(tmp_path, "mcp:s", 1, {"large": large})
        release = threading.Event()
        loop = asyncio.get_running_loop()
        loop.set_default_executor(ThreadPoolExecutor(1))
        busy = loop.run_in_executor(None, release.wait, 30)
        async with agent(tmp_path) as peer:
            peer.dispatch("mcp:s/large", server, deadline=0.5)
            items = await peer.ended()
            release.set()
            await busy
        server.data.close()
        ((*_, lost),) = contents(items)
        assert [i["type"] for i in items[-2:]] == ["tool.result", "turn.failed"]
        assert (items[-2]["outcome"], items[-1]["code"]) == ("ok", "deadline")
        assert "could not be kept: the turn ended first" in lost

    asyncio.run(story())


def test_a_turn_calls_its_tools_and_streams_what_they_return(tmp_path: Path) -> None:
    async def story() -> None:
        server = Server(tmp_path, "mcp:s", 1, {"one": echo, "two": echo})
        async with agent(tmp_path) as peer:
            peer.dispatch('mcp:s/one {"n": 1}\nmcp__s__two', server)
            items = await peer.ended()
        server.data.close()
        started, first, *_ = items
        assert started == {"type": "turn.started", "agent": "main", "model": "direct", "offered": 2}
        assert first == {
            "type": "tool.call",
            "id": "call_1",
            "capability": "mcp:s/one",
            "arguments": {"n": 1},
            "tier": "monitor",
        }
        assert results(items) == [("ok", 'one {"n": 1}'), ("ok", "two {}")]
        text = "".join(i["text"] for i in items if i["type"] == "text.delta")
        assert items[-1] == {"type": "turn.completed", "text": text}
        assert text == 'one {"n": 1}\ntwo {}'

    asyncio.run(story())


def test_calls_of_a_step_run_at_once_and_are_told_in_order(tmp_path: Path) -> None:
    async def story() -> None:
        waiting: list[IncomingCall] = []

        def rendezvous(call: IncomingCall) -> None:
            waiting.append(call)
            if len(waiting) == 3:
                for number, each in reversed(list(enumerate(waiting))):
                    each.result(ok(str(number)))

        server = Server(tmp_path, "mcp:s", 1, {"meet": rendezvous})
        async with agent(tmp_path) as peer:
            peer.dispatch("mcp:s/meet & mcp:s/meet &\nmcp:s/meet", server)
            items = await peer.ended()
        server.data.close()
        assert items[-1] == {"type": "turn.completed", "text": "0\n1\n2"}

    asyncio.run(story())


def test_every_failure_is_a_result_and_the_turn_goes_on(tmp_path: Path) -> None:
    async def story() -> None:
        server = Server(
            tmp_path,
            "mcp:s",
            1,
            {
                "mute": hold,
                "full": lambda call: call.fail("overloaded", "The queue is full."),
                "error": lambda call: call.result(ok("no such file"), outcome="tool_error"),
                "odd": lambda call: call.result(b'{"content": 5}'),
                "fine": echo,
            },
        )
        async with agent(tmp_path) as peer:
            peer.on_request = lambda request: m.TicketGrant(
                id=request.id,
                code="denied" if "secret" in request.capability else "not_found",
                message="",
            )
            peer.dispatch(
                'mcp:s/fine {"n":\nmcp:s/mute\nmcp:s/full\nmcp:s/error\nmcp:s/odd\n'
                "mcp:x/secret\nmcp:s/fime\nmcp:s/fine",
                server,
                timeout=1.0,
            )
            items = await peer.ended()
        server.data.close()
        told = results(items)
        assert [outcome for outcome, _ in told] == [
            "invalid_arguments",
            "timeout",
            "overloaded",
            "tool_error",
            "ok",
            "denied",
            "not_found",
            "ok",
        ]
        assert "no JSON" in told[0][1]
        assert "mcp:s/fine" in told[6][1]
        assert items[-1]["type"] == "turn.completed"
        assert server.calls[-1].name == "fine"

    asyncio.run(story())


def test_a_large_result_is_cut_in_the_item_only(tmp_path: Path) -> None:
    async def story() -> None:
        body = ok("x" * 300_000)
        server = Server(tmp_path, "mcp:s", 1, {"big": lambda call: call.result(body)})
        async with agent(tmp_path) as peer:
            peer.dispatch("mcp:s/big", server)
            items = await peer.ended()
        server.data.close()
        ((outcome, text),) = results(items)
        assert outcome == "ok"
        assert f"a result of {len(body)} bytes" in text
        shown = items[-1]["text"]
        assert shown.startswith("xxx") and len(shown) < 20_000
        assert "the first 16384 characters; the whole is in " in shown

    asyncio.run(story())


@pytest.mark.parametrize(
    ("code", "last"), [("cancelled", "turn.cancelled"), ("deadline", "turn.failed")]
)
def test_cancelling_ends_the_turn_and_tells_the_server(
    tmp_path: Path, code: Any, last: str
) -> None:
    async def story() -> None:
        cancelled = asyncio.Event()

        def mute(call: IncomingCall) -> None:
            call.on_cancel = cancelled.set

        server = Server(tmp_path, "mcp:s", 1, {"mute": mute})
        async with agent(tmp_path) as peer:
            peer.dispatch("mcp:s/mute\nmcp:s/mute", server)
            async with asyncio.timeout(5):
                await server.arrived.wait()
            peer.kind.on_control(m.TurnCancel(turn=TURN, code=code), None)
            items = await peer.ended(seconds=5.0)
            async with asyncio.timeout(5):
                await cancelled.wait()
        server.data.close()
        assert results(items) == [("cancelled", "The turn ended during the call. It may have run.")]
        assert items[-1]["type"] == last
        assert len(server.calls) == 1

    asyncio.run(story())


def test_the_deadline_of_a_turn_ends_it(tmp_path: Path) -> None:
    async def story() -> None:
        server = Server(tmp_path, "mcp:s", 1, {"mute": hold})
        async with agent(tmp_path) as peer:
            peer.dispatch("mcp:s/mute", server, deadline=0.2)
            items = await peer.ended(seconds=2.0)
        server.data.close()
        assert items[-1]["type"] == "turn.failed"
        assert items[-1]["code"] == "deadline"

    asyncio.run(story())


def test_a_turn_has_a_bound_of_steps(tmp_path: Path) -> None:
    async def story() -> None:
        server = Server(tmp_path, "mcp:s", 1, {"fine": echo})
        async with agent(tmp_path, max_steps=2) as peer:
            peer.dispatch("mcp:s/fine\nmcp:s/fine & mcp:s/fine\nmcp:s/fine", server)
            items = await peer.ended()
        server.data.close()
        assert len(results(items)) == 3
        assert items[-1]["code"] == "max_steps"
        assert "[agents.main]" in items[-1]["message"]

    asyncio.run(story())


@pytest.mark.parametrize("model", ["", "anthropic:some"])
def test_without_a_model_a_turn_fails_at_once_and_says_what_to_do(
    tmp_path: Path, model: str
) -> None:
    async def story() -> None:
        async with agent(tmp_path, model=model) as peer:
            peer.dispatch("mcp:s/fine {}")
            items = await peer.ended(seconds=5.0)
        assert [i["type"] for i in items] == ["turn.started", "turn.failed"]
        assert items[-1]["code"] == "no_model"
        assert "[agents.main]" in items[-1]["message"]

    asyncio.run(story())


def test_plain_words_for_the_direct_agent_are_a_bad_turn(tmp_path: Path) -> None:
    async def story() -> None:
        async with agent(tmp_path) as peer:
            peer.dispatch("What changed in this repository?")
            items = await peer.ended(seconds=5.0)
        assert items[-1]["code"] == "bad_turn"

    asyncio.run(story())


def test_the_end_of_a_generation_fails_its_calls_and_the_next_one_serves(tmp_path: Path) -> None:
    async def story() -> None:
        old = Server(tmp_path, "mcp:s", 1, {"do": hold})
        new = Server(tmp_path, "mcp:s", 2, {"do": echo})
        async with agent(tmp_path) as peer:
            peer.on_request = lambda request: m.TicketGrant(
                id=request.id, code="unavailable", message="mcp:s is starting again."
            )
            peer.dispatch("mcp:s/do\nmcp:s/do\nmcp:t/wait\nmcp:s/do", old)
            async with asyncio.timeout(5):
                await old.arrived.wait()
            peer.on_request = lambda request: None
            peer.kind.on_control(m.Gone(worker="mcp:s", generation=1, reason="killed"), None)
            await peer.until(lambda: len(peer.requests) == 1)
            request = peer.requests[0][0]
            assert request.capability == "mcp:s/do"
            answer = m.TicketGrant(id=request.id, code="unavailable", message="starting again")
            peer.kind.on_control(answer, None)
            await peer.until(lambda: len(peer.requests) == 2)
            peer.kind.on_control(m.OfferUpdate(turn=TURN, targets=(new.target(),)), None)
            answer = m.TicketGrant(id=peer.requests[1][0].id, code="not_found")
            peer.kind.on_control(answer, None)
            items = await peer.ended()
        old.data.close()
        new.data.close()
        assert [outcome for outcome, _ in results(items)] == [
            "worker_died",
            "unavailable",
            "not_found",
            "ok",
        ]

    asyncio.run(story())


def test_a_capability_outside_the_offer_is_asked_for_with_its_arguments(tmp_path: Path) -> None:
    async def story() -> None:
        server = Server(tmp_path, "mcp:s", 1, {"rare": echo})
        async with agent(tmp_path) as peer:
            peer.on_request = lambda request: m.TicketGrant(
                id=request.id, row=server.row("rare"), target=server.target()
            )
            peer.dispatch('mcp:s/rare {"n": 1}')
            items = await peer.ended()
        server.data.close()
        assert peer.requests[0][1] == b'{"n": 1}'
        assert results(items) == [("ok", 'rare {"n": 1}')]

    asyncio.run(story())


@pytest.mark.parametrize("refused", [False, True])
def test_a_call_outside_the_offer_is_shown_with_the_tier_of_its_row(
    tmp_path: Path, refused: bool
) -> None:
    async def story() -> None:
        server = Server(tmp_path, "mcp:s", 1, {"rare": echo})
        row = msgspec.structs.replace(server.row("rare"), tier="safe")
        async with agent(tmp_path) as peer:
            peer.on_request = lambda request: (
                m.TicketGrant(id=request.id, row=row, code="denied", message="no")
                if refused
                else m.TicketGrant(id=request.id, row=row, target=server.target())
            )
            peer.dispatch('mcp:s/rare {"n": 1}')
            items = await peer.ended()
        server.data.close()
        shown = [item for item in items if item["type"] in ("tool.call", "tool.result")]
        assert [item["type"] for item in shown] == ["tool.call", "tool.result"]
        assert (shown[0]["tier"], shown[0]["capability"]) == ("safe", "mcp:s/rare")
        assert shown[1]["outcome"] == ("denied" if refused else "ok")

    asyncio.run(story())


def test_a_ticket_is_renewed_at_half_its_life(tmp_path: Path) -> None:
    async def story() -> None:
        server = Server(tmp_path, "mcp:s", 1, {"mute": hold, "fine": echo})
        async with agent(tmp_path) as peer:
            peer.on_request = lambda request: m.TicketGrant(
                id=request.id, target=server.target(life=0.6)
            )
            peer.dispatch("mcp:s/mute\nmcp:s/fine", server, life=0.6)
            # The third renewal comes at one and a half lives of the first ticket.
            await peer.until(lambda: len(peer.requests) == 3)
            assert peer.requests[0][0] == m.TicketRequest(id=1, turn=TURN, worker="mcp:s")
            server.calls[0].result(ok("late"))
            items = await peer.ended()
        server.data.close()
        assert results(items) == [("ok", "late"), ("ok", "fine {}")]

    asyncio.run(story())


def test_a_silent_supervisor_stops_nothing_and_gets_every_item_later(tmp_path: Path) -> None:
    async def story() -> None:
        server = Server(tmp_path, "mcp:s", 1, {"fine": echo, "last": hold})
        async with agent(tmp_path) as peer:
            peer.dispatch("mcp:s/fine\n" * 10 + "mcp:s/last", server)
            await peer.item("turn.started")
            peer.accepts = False
            before = len(peer.items[TURN])
            async with asyncio.timeout(5):
                while not server.calls or server.calls[-1].name != "last":
                    server.arrived.clear()
                    await server.arrived.wait()
            server.calls[-1].result(ok("end"))
            assert len(peer.items[TURN]) == before
            peer.accepts = True
            items = await peer.ended()
        server.data.close()
        assert len(results(items)) == 11
        assert items[-1]["text"].endswith("\nend")

    asyncio.run(story())


def test_turns_run_beside_each_other(tmp_path: Path) -> None:
    async def story() -> None:
        server = Server(tmp_path, "mcp:s", 1, {"mute": hold, "fine": echo})
        async with agent(tmp_path) as peer:
            peer.dispatch("mcp:s/mute", server, turn="b" * 32)
            async with asyncio.timeout(5):
                await server.arrived.wait()
            peer.dispatch("mcp:s/fine", server, turn="c" * 32)
            assert (await peer.ended("c" * 32))[-1]["type"] == "turn.completed"
            assert peer.kind.gauges().in_flight == 1
            assert [call.turn for call in server.calls] == ["b" * 32, "c" * 32]
        server.data.close()

    asyncio.run(story())


def test_a_turn_that_is_cancelled_before_it_begins_calls_nothing(tmp_path: Path) -> None:
    async def story() -> None:
        server = Server(tmp_path, "mcp:s", 1, {"one": echo})
        async with agent(tmp_path) as peer:
            peer.dispatch("mcp:s/one", server, turn="b" * 32)
            await peer.ended("b" * 32)
            # The connection stands now, so a call would leave at once.
            peer.dispatch("mcp:s/one", server, turn="c" * 32)
            peer.kind.on_control(m.TurnCancel(turn="c" * 32, code="cancelled"), None)
            items = await peer.ended("c" * 32)
            peer.dispatch("mcp:s/one", server, turn="d" * 32)
            await peer.ended("d" * 32)
        server.data.close()
        assert [item["type"] for item in items] == ["turn.started", "turn.cancelled"]
        assert [call.turn for call in server.calls] == ["b" * 32, "d" * 32]

    asyncio.run(story())


def test_draining_waits_for_turns_and_then_cancels_them(tmp_path: Path) -> None:
    async def story() -> None:
        server = Server(tmp_path, "mcp:s", 1, {"mute": hold})
        async with agent(tmp_path) as peer:
            peer.dispatch("mcp:s/mute", server, turn="b" * 32)
            peer.dispatch("mcp:s/mute", server, turn="c" * 32)
            async with asyncio.timeout(5):
                while len(server.calls) < 2:
                    server.arrived.clear()
                    await server.arrived.wait()
            async with asyncio.TaskGroup() as group:
                drain = group.create_task(peer.kind.drain(1.0))
                server.calls[0].result(ok("in time"))
                await peer.ended("b" * 32)
                assert not drain.done()
            peer.dispatch("mcp:s/mute", server, turn="d" * 32)
            assert (await peer.ended("d" * 32))[-1]["code"] == "agent_stopped"
        server.data.close()
        assert peer.items["b" * 32][-1] == {"type": "turn.completed", "text": "in time"}
        assert peer.items["c" * 32][-1]["type"] == "turn.cancelled"

    asyncio.run(story())


def one_call(server: Server, arguments: bytes = b"{}") -> Target:
    claims = TicketClaims(
        id="approved",
        caller="agent:main",
        target=server.name,
        generation=server.generation,
        names=tuple(server.tools),
        turn=TURN,
        expires=time.time() + 30,
        digest=arguments_digest(arguments),
        single_use=True,
    )
    return msgspec.structs.replace(server.target(), ticket=mint(KEY, claims))


def test_a_call_that_a_person_decides_waits_without_the_turns_clock(tmp_path: Path) -> None:
    async def story() -> None:
        server = Server(tmp_path, "mcp:s", 1, {"one": echo})
        row = msgspec.structs.replace(server.row("one"), tier="ask", per_call=True)
        async with agent(tmp_path) as peer:
            dispatch = m.TurnDispatch(turn=TURN, deadline_ms=1000, offer=(row,))
            peer.kind.on_control(dispatch, b'"mcp:s/one"')
            await peer.until(lambda: bool(peer.requests))
            ((request, body),) = peer.requests
            assert (request.capability, body) == ("mcp:s/one", b"{}")
            parked = m.TicketParked(id=request.id, approval="a1", seconds=30)
            peer.kind.on_control(parked, None)
            assert await peer.item("approval.waiting") == {"type": "approval.waiting", "id": "a1"}
            assert (await peer.item("tool.call"))["tier"] == "ask"
            await asyncio.wait({asyncio.ensure_future(peer.ended())}, timeout=1.5)
            assert peer.items[TURN][-1]["type"] == "approval.waiting"
            assert not server.calls
            grant = m.TicketGrant(id=request.id, row=row, target=one_call(server))
            peer.kind.on_control(grant, None)
            assert results(await peer.ended()) == [("ok", "one {}")]
            assert len(server.calls) == 1
        server.data.close()

    asyncio.run(story())


def test_a_turn_that_waits_for_a_person_can_be_cancelled(tmp_path: Path) -> None:
    async def story() -> None:
        server = Server(tmp_path, "mcp:s", 1, {"one": echo})
        row = msgspec.structs.replace(server.row("one"), tier="ask", per_call=True)
        async with agent(tmp_path) as peer:
            dispatch = m.TurnDispatch(turn=TURN, deadline_ms=30_000, offer=(row,))
            peer.kind.on_control(dispatch, b'"mcp:s/one"')
            await peer.until(lambda: bool(peer.requests))
            number = peer.requests[0][0].id
            peer.kind.on_control(m.TicketParked(id=number, approval="a1", seconds=30), None)
            peer.kind.on_control(m.TurnCancel(turn=TURN), None)
            assert (await peer.ended())[-1]["type"] == "turn.cancelled"
            peer.kind.on_control(m.TicketGrant(id=number, row=row, target=one_call(server)), None)
        assert not server.calls
        server.data.close()

    asyncio.run(story())


def test_what_a_held_ticket_does_not_permit_is_asked_for(tmp_path: Path) -> None:
    async def story() -> None:
        server = Server(tmp_path, "mcp:s", 1, {"one": echo})
        async with agent(tmp_path) as peer:
            peer.on_request = lambda request: m.TicketGrant(
                id=request.id, row=server.row("one"), target=one_call(server)
            )
            held = server.target(tools=("other",))
            offer = server.rows()
            dispatch = m.TurnDispatch(turn=TURN, deadline_ms=9_000, offer=offer, targets=(held,))
            peer.kind.on_control(dispatch, b'"mcp:s/one"')
            assert results(await peer.ended()) == [("ok", "one {}")]
            assert [request.capability for request, _ in peer.requests] == ["mcp:s/one"]
        server.data.close()

    asyncio.run(story())
