"""Calls that wait for a person, in a real supervisor: every outcome, every mode, every refusal."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest
from approving import ASK, Asking, after, results
from breaking import Held
from fault_rig import until
from peers import Peer, context
from supervised import PATIENCE

from interlock.bus import AsyncClient
from interlock.bus import messages as m
from interlock.bus.codec import decode_data_down, encode
from interlock.bus.errors import ApprovalClosedError, InterlockError, NotFoundError
from interlock.bus.routes import Route
from interlock.bus.tickets import peek
from interlock.supervisor.api.turns import PRESENT
from interlock.supervisor.policy.approvals import OF_CLIENT

ECHO = 'mcp:x/echo {"n": 1}'
SOON = 0.1
"""Seconds within which the event of a new approval is at a subscriber."""


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Asking]:
    with Asking(tmp_path_factory.mktemp("approvals")) as running:
        yield running


@pytest.fixture
def asking(shared: Asking) -> Asking:
    """The supervisor that all stories share which need no other times and do not end it."""
    shared.policy(ASK)
    shared.begin()
    return shared


def test_a_turn_asks_and_runs_once(asking: Asking) -> None:
    before = asking.calls()
    begun = time.time()
    turn = asking.turn(ECHO)
    event = asking.requested()
    assert (event["capability"], event["agent"]) == ("mcp:x/echo", "main")
    assert event["caller"] == "agent:main" and event["reason"] == "listed under ask"
    assert "arguments" not in event
    (row,) = asking.json("approvals")["approvals"]
    assert row["id"] == event["id"] and row["turn"] == event["turn"]
    assert row["arguments"] == {"n": 1}
    assert 290 < row["expires"] - begun <= 301
    (attention,) = asking.interlock.attention()
    assert attention["code"] == "approval_waiting" and attention["fix"] == "interlock approvals"
    asking.ran(before)
    code, out, _ = asking.command("approve", event["id"])
    assert code == 0 and event["id"] in out
    items = turn.result(PATIENCE)
    assert results(items) == ["ok"]
    kinds = [item["type"] for item in items]
    assert kinds[:4] == ["turn.started", "tool.call", "approval.waiting", "tool.result"]
    assert items[1]["tier"] == "ask" and items[2]["id"] == event["id"]
    done = asking.resolved(event["id"])
    assert done["outcome"] == "approved" and done["by"].startswith("api:")
    asking.ran(before + 1)
    assert asking.json("approvals")["approvals"] == [] and asking.interlock.attention() == []
    (kept,) = asking.client.turn_show(event["turn"])["approvals"]
    assert (kept["id"], kept["outcome"], kept["arguments"]) == (row["id"], "approved", {"n": 1})
    code, out, err = asking.command("approve", event["id"])
    assert code == 1 and out == "" and "approved before" in err
    assert asking.json("deny", event["id"], code=1)["code"] == "approval_closed"
    assert asking.json("deny", "nosuch", code=1)["code"] == "not_found"


def test_a_turn_that_waits_says_so_and_what_was_refused_is_among_its_calls(asking: Asking) -> None:
    turn = asking.turn(f"{ECHO}\nmcp:x/pid")
    event = asking.requested()
    id_, name = event["id"], event["turn"]
    _, listed, _ = asking.command("turns", "-n", "1")
    assert "running (waits for an approval)" in listed
    _, shown, _ = asking.command("turn-show", name)
    assert f"turn {name}: running (waits for an approval), agent main" in shown
    waits = f"  mcp:x/echo: waits for a person: `interlock approve {id_}` or `interlock deny {id_}`"
    assert waits in shown.splitlines()
    found = asking.client.turn_show(name)
    assert found["waits"] == [id_] and found["calls"][0]["approval"] == id_
    asking.client.deny(id_)
    assert results(turn.result(PATIENCE))[0] == "approval_denied"
    _, shown, _ = asking.command("turn-show", name)
    assert f"turn {name}: completed, agent main" in shown
    assert "  mcp:x/echo: approval_denied" in shown
    assert asking.client.turn_show(name)["waits"] == []


def test_the_event_is_at_a_subscriber_at_once(asking: Asking) -> None:
    spent = []
    for _ in range(5):  # the best of several: other tests run on the same processors
        place = asking.interlock.mark()
        text = json.dumps(ECHO).encode()
        turn = os.urandom(16).hex()
        begun = time.monotonic()
        asking.client.request(m.TurnStart, text, turn=turn)
        event = asking.requested(place)
        spent.append(time.monotonic() - begun)
        asking.client.deny(event["id"])
        assert results(list(asking.client.watch(turn))) == ["approval_denied"]
    assert min(spent) < SOON, spent


NEVER = '[policy]\napproval = "never"\nask = ["mcp:x/echo"]\n'
ALWAYS = '[policy]\napproval = "always"\n'
BLOCKED = '[policy]\nblock = ["mcp:x/e*"]\n'
ALLOWED = '[policy]\nallow = ["mcp:x/echo"]\n[mcp_servers.x.tools.echo]\ntier = "ask"\n'
SAFE = f'{ALWAYS}[mcp_servers.x.tools.echo]\ntier = "safe"\n'


@pytest.mark.parametrize(
    ("policy", "unattended", "outcome"),
    [
        (NEVER, False, "approval_unavailable"),
        (ASK, True, "approval_unavailable"),
        (ALWAYS, True, "approval_unavailable"),
        (BLOCKED, False, "denied"),
        (ALLOWED, True, "ok"),
        (SAFE, True, "ok"),
        ('[policy]\napproval = "never"\n', True, "ok"),
    ],
)
def test_what_asks_nobody(asking: Asking, policy: str, unattended: bool, outcome: str) -> None:
    asking.policy(policy)
    before = asking.calls()
    assert results(asking.turn(ECHO, unattended=unattended).result(PATIENCE)) == [outcome]
    asking.ran(before + (outcome == "ok"))
    events = asking.interlock.events[asking.begun :]
    assert not any(event["topic"] == "approval.requested" for event in events)
    if outcome == "approval_unavailable":
        (past,) = asking.past()
        assert past["outcome"] == "approval_unavailable"
        assert asking.resolved(past["id"])["by"] == ""


def test_always_asks_for_what_only_shows(asking: Asking) -> None:
    asking.policy('[policy]\napproval = "always"\n')
    rows = {row["name"]: row["tier"] for row in asking.client.tools()["capabilities"]}
    assert rows["mcp:x/echo"] == "ask"
    turn = asking.turn(ECHO)
    asking.client.approve(asking.requested()["id"])
    assert results(turn.result(PATIENCE)) == ["ok"]


def test_no_and_no_answer_differ(tmp_path: Path) -> None:
    with Asking(tmp_path, approval=1.5) as x:
        before = x.calls()
        turn = x.turn(ECHO)
        event = x.requested()
        x.client.deny(event["id"])
        assert results(turn.result(PATIENCE)) == ["approval_denied"]
        place = x.interlock.mark()
        turn = x.turn(ECHO)
        event = x.requested(place)
        assert x.resolved(event["id"])["outcome"] == "approval_timeout"
        assert results(turn.result(PATIENCE)) == ["approval_timeout"]
        for answer in (x.client.approve, x.client.deny):
            with pytest.raises(ApprovalClosedError, match="in time"):
                answer(event["id"])
        with pytest.raises(NotFoundError):
            x.client.approve("nosuch")
        x.ran(before)
        past = x.client.approvals(10)["past"]
        assert [row["outcome"] for row in past] == ["approval_timeout", "approval_denied"]


def test_a_deadline_does_not_run_while_a_person_thinks(asking: Asking) -> None:
    begun = time.monotonic()
    turn = asking.turn(
        'mcp:x/echo {"n": 1} & mcp:x/echo {"n": 2}\nmcp:x/sleep {"seconds": 0.2}', deadline=1.5
    )
    until(lambda: len(asking.client.approvals()["approvals"]) == 2)
    until(after(begun + 3.0))
    first, second = asking.client.approvals()["approvals"]
    asking.client.approve(first["id"])
    asking.client.deny(second["id"])
    assert sorted(results(turn.result(PATIENCE))) == ["approval_denied", "ok", "ok"]
    place = asking.interlock.mark()
    turn = asking.turn('mcp:x/echo {"n": 1}\nmcp:x/mute', deadline=1.0)
    asking.client.approve(asking.requested(place)["id"])
    assert turn.result(PATIENCE)[-1]["code"] == "deadline"


def test_what_ends_a_wait(asking: Asking) -> None:
    before = asking.calls()
    turn = asking.turn(ECHO)
    event = asking.requested()
    asking.client.turn_cancel(event["turn"])
    assert turn.result(PATIENCE)[-1]["type"] == "turn.cancelled"
    assert asking.resolved(event["id"])["outcome"] == "withdrawn"
    with pytest.raises(ApprovalClosedError, match="not wanted"):
        asking.client.approve(event["id"])

    place = asking.interlock.mark()
    turn = asking.turn(ECHO)
    event = asking.requested(place)
    os.kill(asking.interlock.worker("agent:main")["pid"], signal.SIGKILL)
    assert asking.resolved(event["id"])["outcome"] == "withdrawn"
    assert turn.result(PATIENCE)[-1]["code"] == "agent_died"
    asking.interlock.wait_event("worker.ready", "agent:main", place)

    place = asking.interlock.mark()
    turn = asking.turn(ECHO)
    event = asking.requested(place)
    asking.client.control("restart", "mcp:x")
    assert asking.resolved(event["id"])["outcome"] == "withdrawn"
    assert results(turn.result(PATIENCE)) == ["unavailable"]
    asking.ran(before)
    assert asking.client.approvals()["approvals"] == []


def test_the_end_of_the_supervisor_withdraws(tmp_path: Path) -> None:
    with Asking(tmp_path) as x:
        turn = x.turn(ECHO)
        x.requested()
        x.interlock.clean = False
        x.interlock.stop(signal.SIGKILL)
        assert isinstance(turn.exception(PATIENCE), InterlockError)
        x.interlock.clean = True
        x.client.close()
        x.interlock.start()
        x.client = x.interlock.client
        x.interlock.wait_state("mcp:x", "READY")
        assert x.client.approvals()["approvals"] == []
        (past,) = x.client.approvals(5)["past"]
        assert past["outcome"] == "withdrawn" and past["decided"]
        call = x.call({"n": 2})
        until(lambda: x.client.approvals()["approvals"])
        x.interlock.stop()
        lost = call.exception(PATIENCE)
        told = str(lost or call.result().content)
        assert "`interlock up`" in told and "`interlock start" not in told, told
        x.client.close()
        x.interlock.start()
        x.client = x.interlock.client
        assert [row["outcome"] for row in x.client.approvals(5)["past"]] == ["withdrawn"] * 2


def test_one_client_with_many_that_wait_takes_nothing_from_the_others(asking: Asking) -> None:
    """Those of one client filled the share of the agent, and so that of all who use the agent."""
    many = asking.turn(" & ".join([ECHO] * (OF_CLIENT + 1)))
    until(lambda: len(asking.client.approvals()["approvals"]) == OF_CLIENT, what="all that may")
    known = {row["id"] for row in asking.client.approvals()["approvals"]}
    turn = asking.turn('mcp:x/echo {"n": 2}')

    def new() -> set[str]:
        return {row["id"] for row in asking.client.approvals()["approvals"]} - known

    until(new, what="that of the other client")
    (other,) = new()
    asking.client.approve(other)
    assert results(turn.result(PATIENCE)) == ["ok"]
    for row in asking.client.approvals()["approvals"]:
        asking.client.deny(row["id"])
    items = many.result(PATIENCE)
    assert sorted(results(items)) == ["approval_denied"] * OF_CLIENT + ["overloaded"]
    (told,) = [item for item in items if item.get("outcome") == "overloaded"]
    assert "calls of the same client wait for a person's answer" in str(told["content"])


def test_who_asks_cannot_answer(asking: Asking) -> None:
    async def story(x: Asking) -> None:
        async with AsyncClient.connect(x.interlock.home.path) as one:
            call = asyncio.ensure_future(one.call("mcp:x/echo", {"n": 1}))
            event = await asyncio.to_thread(x.requested)
            for answer in (one.approve, one.deny):
                with pytest.raises(InterlockError) as caught:
                    await answer(event["id"])
                assert caught.value.code == "denied"
            x.client.approve(event["id"])
            assert (await call).ok

    asyncio.run(story(asking))


class Hand:
    """A caller that builds every message itself."""

    def __init__(self, ctx: Any, route: Route) -> None:
        self.route = route
        self.peer = Peer(ctx, route.target.endpoint)
        self.calls = 0

    async def open(self, ticket: str = "") -> Any:
        self.peer.send(encode(m.Open(ticket=ticket or self.route.target.ticket)))
        return decode_data_down((await self.peer.receive())[0])

    async def call(self, arguments: bytes, ticket: str = "", name: str = "") -> Any:
        self.calls += 1
        message = m.Call(
            id=self.calls,
            ticket=peek(ticket or self.route.target.ticket).id,
            name=name or self.route.local,
            left_ms=20_000,
            generation=self.route.target.generation,
        )
        self.peer.send(encode(message), arguments)
        return decode_data_down((await self.peer.receive())[0])


def granted(x: Asking, arguments: dict[str, Any]) -> Route:
    """The route of an approved call."""
    place = x.interlock.mark()
    route = x.start(lambda client: client.resolve("mcp:x/echo", arguments, timeout=PATIENCE))
    x.client.approve(x.requested(place)["id"])
    found = route.result(PATIENCE)
    assert found.single_use
    return found


def test_a_ticket_of_an_approval_is_good_for_nothing_else(tmp_path: Path) -> None:
    async def story(x: Asking) -> None:
        async with context() as ctx:
            before = x.calls()
            hand = Hand(ctx, granted(x, {"n": 1}))
            assert isinstance(await hand.open(), m.Opened)
            for arguments in (b'{"n": 2}', b"{}", b'{"n": 1, "m": 1}'):
                refused = await hand.call(arguments)
                assert refused.code == "denied" and "arguments" in refused.message
            doubled = await hand.call(b'{"n": 1, "n": 1}')
            assert doubled.code == "invalid_arguments"
            assert (await hand.call(b'{"n": 1}', name="pid")).code == "denied"
            assert isinstance(await hand.call(b' {"n" : 1} '), m.Result)
            again = await hand.call(b'{"n": 1}')
            assert again.code == "denied" and "used" in again.message
            copy = Hand(ctx, hand.route)  # the same ticket on another connection
            assert isinstance(await copy.open(), m.Opened)
            assert "used" in (await copy.call(b'{"n": 1}')).message

            other = Hand(ctx, granted(x, {"n": 3}))
            refused = await hand.open(other.route.target.ticket)  # of another caller
            assert refused.code == "denied" and "caller" in refused.message
            assert isinstance(await other.open(), m.Opened)
            until(after(time.monotonic() + other.route.target.expires_in))
            late = await other.call(b'{"n": 3}')
            assert late.code == "denied" and "expired" in late.message
            assert (await Hand(ctx, other.route).open()).code == "denied"
            x.ran(before + 1)

    with Asking(tmp_path, ticket=2.0) as x:
        asyncio.run(story(x))


def test_direct_calls(asking: Asking) -> None:
    before = asking.calls()
    call = ("call", "mcp:x/echo", '{"n": 1}')
    assert asking.json(*call, stdin="y\n")["outcome"] == "ok"
    assert asking.json(*call, stdin="n\n", code=4)["outcome"] == "approval_denied"
    assert asking.json(*call, "--yes")["outcome"] == "ok"
    assert asking.json(*call, "--timeout", "0.4", code=1)["outcome"] == "approval_timeout"
    outcomes = [row["outcome"] for row in reversed(asking.past())]
    assert outcomes == ["approved", "approval_denied", "approved", "approval_timeout"]
    asking.ran(before + 2)
    place = asking.interlock.mark()
    waits = asking.start(lambda client: asking.json(*call, "--timeout", "20"))
    event = asking.requested(place)
    assert event["turn"] == event["agent"] == ""
    assert asking.json("approve", event["id"]) == {"id": event["id"], "outcome": "approved"}
    assert waits.result(PATIENCE)["outcome"] == "ok"
    asking.ran(before + 3)


def test_a_call_asks_at_the_terminal(asking: Asking) -> None:
    for said, code in ((b"y\n", 0), (b"no\n", 4)):
        ours, theirs = pty.openpty()
        with subprocess.Popen(
            [
                *(sys.executable, "-m", "interlock.supervisor.cli", *asking.home_option),
                *("call", "mcp:x/echo", "{}"),
            ],
            stdin=theirs,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        ) as process:
            os.close(theirs)
            os.write(ours, said)
            _, errors = process.communicate(timeout=PATIENCE)
        os.close(ours)
        assert process.returncode == code, errors
        assert b"has to approve this call of mcp:x/echo" in errors


@pytest.mark.parametrize("approves", [False, True], ids=["alone", "approved"])
def test_a_call_whose_caller_is_killed_waits_no_longer(asking: Asking, approves: bool) -> None:
    """It is withdrawn soon, and at once if somebody approves it: nothing runs, nothing says so."""
    before = asking.calls()
    command = [sys.executable, "-m", "interlock.supervisor.cli", *asking.home_option]
    with subprocess.Popen(
        [*command, "call", "mcp:x/echo", "{}"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as process:
        event = asking.requested()
        process.kill()
    if approves:
        code, out, err = asking.command("approve", event["id"])
        assert code == 1 and out == "" and "not wanted any more" in err
    assert asking.resolved(event["id"])["outcome"] == "withdrawn"
    assert asking.past()[0]["outcome"] == "withdrawn"
    asking.ran(before)


def test_a_caller_that_waits_long_is_waited_for(asking: Asking) -> None:
    """To look whether it is still there does it no harm."""
    call = asking.call({})
    event = asking.requested()
    until(after(time.monotonic() + 2.5 * PRESENT), what="some looks")
    asking.client.approve(event["id"])
    assert call.result(PATIENCE).ok


def test_rules_about_arguments(asking: Asking) -> None:
    rules = """
[[policy.rules]]
capability = "mcp:x/echo"
argument = "path"
matches = "/etc/*"
tier = "block"

[[policy.rules]]
capability = "mcp:x/echo"
argument = "path"
matches = "/home/*"
tier = "ask"
"""
    asking.policy(rules)
    text = "\n".join(
        f'mcp:x/echo {{"path": "{path}"}}' for path in ("/tmp/a", "/etc/a", "/tmp/../etc/a")
    )
    items = asking.turn(text + '\nmcp:x/echo {"path": 1, "path": 2}').result(PATIENCE)
    assert results(items) == ["ok", "denied", "denied", "invalid_arguments"]
    turn = asking.turn('mcp:x/echo {"path": "/home/a"}')
    asking.client.approve(asking.requested()["id"])
    assert results(turn.result(PATIENCE)) == ["ok"]
    assert asking.client.call("mcp:x/echo", {"path": "/tmp/a"}).ok
    assert asking.client.call("mcp:x/echo", {"path": "/etc/a"}).outcome == "denied"


def test_a_new_policy_is_in_force_in_turns_that_run(asking: Asking, tmp_path: Path) -> None:
    def in_a_turn(text: str, policy: str) -> tuple[Future[list[dict[str, Any]]], int]:
        """A turn in which another policy comes into force while its call that is held runs."""
        asking.policy("")
        assert asking.client.call("mcp:x/echo", {"n": 1}).ok
        place = asking.interlock.mark()
        held = Held(tmp_path, "mcp:x")
        turn = asking.turn(text.format(held=held.text))
        asking.interlock.wait_event("tool.started", capability="mcp:x/hold", after=place)
        asking.policy(policy)
        held.let_go()
        return turn, place

    turn, _ = in_a_turn(
        "mcp:x/echo\n{held}\nmcp:x/echo\nmcp:x/pid", '[policy]\nblock = ["mcp:x/echo"]\n'
    )
    assert results(turn.result(PATIENCE)) == ["ok", "ok", "denied", "ok"]

    turn, place = in_a_turn("{held}\nmcp:x/echo", '[policy]\nask = ["mcp:x/echo"]\n')
    event = asking.requested(place)
    asking.client.approve(event["id"])
    assert results(turn.result(PATIENCE)) == ["ok", "ok"]
    place = asking.interlock.mark()
    kept = asking.call({"n": 2})  # the route that was kept is void as well
    asking.client.deny(asking.requested(place)["id"])
    assert kept.result(PATIENCE).outcome == "approval_denied"


def test_a_new_policy_ends_what_waits_for_nothing(asking: Asking) -> None:
    turn = asking.turn(ECHO)
    event = asking.requested()
    asking.policy('[policy]\nblock = ["mcp:x/echo"]\n')
    assert asking.resolved(event["id"])["outcome"] == "withdrawn"
    assert results(turn.result(PATIENCE)) == ["denied"]
    asking.policy('[policy]\nask = ["mcp:x/echo"]\n')
    place = asking.interlock.mark()
    turn = asking.turn(ECHO)
    event = asking.requested(place)
    asking.policy('[policy]\napproval = "never"\nask = ["mcp:x/echo"]\n')
    assert asking.resolved(event["id"])["outcome"] == "approval_unavailable"
    assert results(turn.result(PATIENCE)) == ["approval_unavailable"]
