"""Deny, at listing and at call: whatever the spelling, also by hand with a ticket of before."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import zmq
from supervised import PATIENCE, Supervised, rogue_toml, server_toml, timing

from interlock.bus import messages as m
from interlock.bus.codec import decode_data_down, encode
from interlock.bus.records import Target
from interlock.bus.socket import open_socket
from interlock.bus.tickets import TicketClaims, peek

TESTS = Path(__file__).parents[1]
SERVER = str(TESTS / "listing_server.py")
DENYING = '[agents.main]\nmodel = "direct"\ndeny = ["spawn-worker", "erase-all"]\n'
FREE = '[agents.free]\nmodel = "direct"\n'


@pytest.fixture(scope="module")
def interlock(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Supervised]:
    server = server_toml("x", sys.executable, SERVER, "risky")
    with Supervised(tmp_path_factory.mktemp("denied"), timing() + DENYING + FREE + server) as one:
        for name in ("agent:main", "agent:free", "mcp:x"):
            one.wait_state(name, "READY")
        yield one


SPELLINGS = [
    "spawn_worker",
    "SpawnWorker",
    "mcp:x/spawn-worker",
    "mcp:x/spawn_worker",
    "mcp:x/x%2Fspawn-worker",
    "default:spawn_worker",
    "mcp__x__spawn_worker",
    "erase_all",
    "mcp:x/EraseAll",
    "x.erase-all",
    "mcp:x/a%2Ferase-all",
    "functions.erase_all",
]


def test_what_is_denied_is_not_listed(interlock: Supervised) -> None:
    for text in ("", "everything of mcp:x"):
        found = interlock.client.tools(text, "main")
        listed = [row["name"] for row in found["capabilities"] if row["source"] == "mcp:x"]
        assert listed == ["mcp:x/echo"]
        held = [row for row in found["withheld"] if row["by"] == "deny"]
        assert sum(row["count"] for row in held) == 8
    why = interlock.client.why("everything of mcp:x", "main")
    (row,) = (row for row in why["sources"] if row["source"] == "mcp:x")
    assert row["offered"] and row["capabilities"] == {"offered": 1, "all": 9}
    assert {one["by"] for one in row["withheld"]} == {"deny"}


def test_what_is_denied_is_not_called_however_it_is_written(interlock: Supervised) -> None:
    program = "\n".join(f"{name} {{}}" for name in [*SPELLINGS, "mcp:x/echo"])
    items = list(interlock.client.turn(program, agent="main"))
    results = [item["outcome"] for item in items if item["type"] == "tool.result"]
    assert results == ["denied"] * len(SPELLINGS) + ["ok"]


def test_a_refused_call_of_a_turn_is_an_event_and_among_its_calls(interlock: Supervised) -> None:
    place = interlock.mark()
    program = "mcp:x/erase_all {}\nmcp:x/nothing {}\nmcp:x/echo"
    turn = next(iter(interlock.client.turn(program, agent="main")))["turn"]
    interlock.wait_event("turn.completed", after=place, turn=turn)
    shown = interlock.client.turn_show(turn)["calls"]
    assert [(one["capability"], one["outcome"], one["may_have_run"]) for one in shown] == [
        ("mcp:x/erase_all", "denied", False),
        ("mcp:x/nothing", "not_found", False),
        ("mcp:x/echo", "ok", False),
    ]
    assert {one["caller"] for one in shown} == {"agent:main"}
    for one in shown[:2]:
        event = interlock.wait_event(
            "tool.failed", "mcp:x", place, capability=one["capability"], turn=turn
        )
        assert (event["code"], event["caller"]) == (one["outcome"], "agent:main")


def test_a_refused_call_of_a_client_is_an_event(interlock: Supervised) -> None:
    for name, code in (
        ("mcp:x/nothing", "not_found"),
        ("mcp:gone/nothing", "not_found"),
        ("nothing", "not_found"),
    ):
        place = interlock.mark()
        assert interlock.client.call(name).outcome == code
        event = interlock.wait_event("tool.failed", after=place, capability=name, code=code)
        assert event["caller"].startswith("api:") and not event["turn"]
        assert event["name"] == name.rpartition("/")[0]


def test_an_agent_without_a_deny_list_may_call_all_but_what_no_agent_may(
    interlock: Supervised,
) -> None:
    found = interlock.client.tools("", "free")
    listed = [row["name"] for row in found["capabilities"] if row["source"] == "mcp:x"]
    assert [name for name in listed if "spawn" in name.casefold()] == []
    assert len(listed) == 5
    items = list(interlock.client.turn("mcp:x/erase_all {}\nerase-all {}", agent="free"))
    results = [item for item in items if item["type"] == "tool.result"]
    assert [item["outcome"] for item in results] == ["ok", "not_found"]
    said = results[1]["content"][0]["text"]
    assert "may mean" in said and "mcp:x/EraseAll" in said


class Hand:
    """A connection to a worker's data socket, by hand."""

    def __init__(self, endpoint: str) -> None:
        self._ctx: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._sock = open_socket(self._ctx, zmq.DEALER, immediate=1, sndtimeo=20_000)
        self._sock.connect(endpoint)
        self._ids = 0

    def _ask(self, *frames: bytes) -> Any:
        self._sock.send_multipart(frames)
        while True:
            assert self._sock.poll(20_000)
            answer = decode_data_down(self._sock.recv_multipart()[0])
            if not isinstance(answer, m.Log):
                return answer

    def open(self, ticket: str) -> Any:
        return self._ask(encode(m.Open(ticket=ticket)))

    def call(self, claims: TicketClaims, name: str) -> Any:
        self._ids += 1
        call = m.Call(
            id=self._ids, ticket=claims.id, name=name, left_ms=9000, generation=claims.generation
        )
        return self._ask(encode(call), b"{}")

    def close(self) -> None:
        self._sock.close(0)
        self._ctx.destroy(0)


def denied(answer: Any, why: str) -> bool:
    return isinstance(answer, m.Failure) and answer.code == "denied" and why in answer.message


def agents_tickets(tap: Path) -> list[str]:
    """What the agent was given for the server, the newest last."""
    found = [(peek(token), token) for token in tap.read_text().split()]
    return [
        token
        for claims, token in found
        if (claims.caller, claims.target) == ("agent:main", "mcp:x")
    ]


def config(rule: str) -> str:
    return timing() + f'[agents.main]\nmodel = "direct"\n{rule}\n' + rogue_toml("x")


def test_a_ticket_of_before_a_denial_is_worth_nothing(tmp_path: Path) -> None:
    tap = tmp_path / "tickets"
    environ = {"PYTHONPATH": str(TESTS / "wiretap"), "WIRETAP": str(tap)}
    with Supervised(tmp_path, config(""), environ=environ) as interlock:
        for name in ("agent:main", "mcp:x"):
            interlock.wait_state(name, "READY")
        turn = interlock.client.start_turn("mcp:x/mute {}")["turn"]
        interlock.wait_event("tool.started", "mcp:x", turn=turn)
        (old,) = agents_tickets(tap)
        claims = peek(old)
        assert claims.turn == turn and "echo" in claims.names
        target: Target = interlock.client.resolve("mcp:x/echo").target
        hand, other = Hand(target.endpoint), Hand(target.endpoint)
        try:
            assert isinstance(hand.open(old), m.Opened)
            assert isinstance(hand.call(claims, "echo"), m.Result)
            interlock.config.write_text(config('deny = ["Ec-Ho"]'))
            interlock.client.reload()
            end = time.monotonic() + PATIENCE
            while not denied(answer := hand.call(claims, "echo"), "revoked"):
                assert isinstance(answer, m.Result) and time.monotonic() < end, answer
            assert denied(other.open(old), "revoked")
            # What the turn may still call goes on, under a ticket that names no echo.
            new = peek(agents_tickets(tap)[-1])
            assert new.turn == turn and new.id != claims.id
            assert "echo" not in new.names and "mute" in new.names
            assert isinstance(other.open(agents_tickets(tap)[-1]), m.Opened)
            assert denied(other.call(new, "echo"), "")
            assert isinstance(other.call(new, "pid"), m.Result)
            assert interlock.client.turn_show(turn)["state"] == "running"
            interlock.client.turn_cancel(turn)
            interlock.wait_event("turn.cancelled", turn=turn)
        finally:
            hand.close()
            other.close()
