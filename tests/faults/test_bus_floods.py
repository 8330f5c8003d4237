"""Queues that run full: what does not fit is refused or dropped at once, and nobody else waits.

The sockets alone are tested in test_sockets and test_data_calls; here whole processes are stopped
or flooded, and a healthy part beside them has to go on.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import zmq
from supervised import Supervised, rogue_toml, server_toml, timing
from zmtp import patiently

from interlock.bus import procfs
from interlock.bus.aclient import AsyncClient
from interlock.bus.codec import encode
from interlock.bus.endpoints import read_connection
from interlock.bus.messages import ReplayGet, TurnsGet, WorkerControl
from interlock.bus.watching import new_turn_id

TIMELY = 5.0
"""Seconds in which the healthy part has to answer, on a machine that is busy with other things."""
TINY = server_toml(
    "tiny",
    sys.executable,
    "-m",
    "interlock.supervisor.bench.servers.tiny",
    concurrency=64,
    queue=2000,
)
CONFIG = (
    timing(ping=30.0, drain=0.1)  # so that a stopped process is not found out and replaced
    + '[agents.main]\nmodel = "direct"\n[agents.other]\nmodel = "direct"\ngrant = ["mcp:y/*"]\n'
    + rogue_toml("x", concurrency=2, queue=10)
    + rogue_toml("y")
    + rogue_toml("late", "mute_init", init_timeout=120)
    + TINY
)


@pytest.fixture(scope="module")
def interlock(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Supervised]:
    with Supervised(tmp_path_factory.mktemp("floods"), CONFIG) as running:
        for name in ("agent:main", "agent:other", "mcp:x", "mcp:y", "mcp:tiny"):
            running.wait_state(name, "READY")
        running.wait_state("mcp:late", "INITIALIZING")
        yield running


class Flooder:
    """A client that asks and asks and never reads an answer."""

    def __init__(self, interlock: Supervised) -> None:
        self._info = read_connection(interlock.home)
        self._ctx: zmq.Context[Any] = zmq.Context()
        self._sock = self._ctx.socket(zmq.DEALER)
        self._sock.connect(self._info.api)

    @property
    def key(self) -> str:
        return self._info.key

    def ask(self, header: bytes) -> None:
        self._sock.send_multipart([b"msgpack", header])

    def close(self) -> None:
        self._sock.close(0)
        self._ctx.destroy(0)


def timely(interlock: Supervised) -> None:
    """The healthy part: an answer, a call and a turn."""
    begun = time.monotonic()
    assert interlock.client.status("mcp:y")["workers"][0]["state"] == "READY"
    assert interlock.client.call("mcp:y/echo", {}, timeout=TIMELY).outcome == "ok"
    stream = list(interlock.client.turn("mcp:y/echo {}", agent="other", deadline=TIMELY))
    assert stream[-1]["type"] == "turn.completed", stream
    assert time.monotonic() - begun < TIMELY


def test_a_hundred_thousand_requests_of_one_client_keep_no_other_waiting(
    interlock: Supervised,
) -> None:
    """The api answers in turn; a client that reads no answers loses its own."""
    flooder, done = Flooder(interlock), threading.Event()

    def flood() -> None:
        for number in range(100_000):
            flooder.ask(encode(ReplayGet(id=number + 1, key=flooder.key, epoch="?", seq=0)))
        done.set()

    thread = threading.Thread(target=flood)
    thread.start()
    while not done.is_set():
        timely(interlock)
    thread.join()
    timely(interlock)
    flooder.close()


def test_large_answers_that_nobody_reads_neither_fill_the_memory_nor_slow_anybody(
    interlock: Supervised,
) -> None:
    """Two clients ask for 8 MB a hundred times each, and read nothing."""
    pid = interlock.client.status()["supervisor"]["pid"]
    for _ in range(20):
        ended = list(interlock.client.turn("x" * 400_000, agent="other"))[-1]
        assert ended["type"] == "turn.completed"
    before = procfs.resident_bytes([pid])
    flooders = [Flooder(interlock) for _ in range(2)]
    for number in range(100):
        for flooder in flooders:
            flooder.ask(encode(TurnsGet(id=number + 1, key=flooder.key, limit=1000)))
    for _ in range(10):
        timely(interlock)
        assert procfs.resident_bytes([pid]) - before < 150 << 20
    for flooder in flooders:
        flooder.close()


def test_requests_that_wait_take_no_place_of_others(interlock: Supervised) -> None:
    """One client has 3,000 requests that wait for a worker; others are still answered."""
    flooder, place = Flooder(interlock), interlock.mark()
    for number in range(3000):
        ask = WorkerControl(id=number + 1, key=flooder.key, action="start", name="mcp:late")
        flooder.ask(encode(ask))
    for _ in range(5):
        timely(interlock)
    assert interlock.client.control("stop", "mcp:late")["state"] == "STOPPED"
    interlock.wait_event("worker.stopped", "mcp:late", place)
    flooder.close()


def test_calls_to_a_stopped_worker_end_and_do_not_spread(interlock: Supervised) -> None:
    """The data plane's queues are full: every call has an outcome in time, no other is slower."""
    pid = interlock.worker("mcp:x")["pid"]

    async def calls() -> Counter[str]:
        async with AsyncClient.connect(interlock.home.path) as client:
            assert (await client.call("mcp:x/echo", {})).outcome == "ok"
            os.kill(pid, signal.SIGSTOP)
            sick = [
                asyncio.ensure_future(client.call("mcp:x/echo", {"text": "x" * 2000}, timeout=1.0))
                for _ in range(3000)
            ]
            well = [client.call("mcp:y/echo", {}, timeout=TIMELY) for _ in range(50)]
            assert {one.outcome for one in await asyncio.gather(*well)} == {"ok"}
            async with asyncio.timeout(TIMELY + 1.0):
                return Counter(one.outcome for one in await asyncio.gather(*sick))

    try:
        outcomes = asyncio.run(calls())
        assert set(outcomes) == {"timeout", "overloaded"}, outcomes
        timely(interlock)
    finally:
        os.kill(pid, signal.SIGCONT)
    # What had arrived at it fills its short queue at first, so it may refuse, but says so at once.
    for _ in patiently():
        ended = interlock.client.call("mcp:x/echo", {}).outcome
        if ended != "overloaded":
            break
    assert ended == "ok"
    row = interlock.worker("mcp:x")
    assert (row["pid"], row["state"]) == (pid, "READY")


def test_more_calls_than_a_server_queues_are_refused_at_once(interlock: Supervised) -> None:
    async def calls() -> Counter[str]:
        async with AsyncClient.connect(interlock.home.path) as client:
            asked = (client.call("mcp:x/sleep", {"seconds": 0.2}) for _ in range(60))
            return Counter(one.outcome for one in await asyncio.gather(*asked))

    outcomes = asyncio.run(calls())
    assert outcomes["ok"] >= 12 and outcomes["ok"] + outcomes["overloaded"] == 60


def test_many_first_calls_at_once_are_one_connection_and_one_ticket(
    interlock: Supervised,
) -> None:
    """A client's 900 calls that all ask for their route at once are admitted."""

    async def calls() -> Counter[str]:
        async with AsyncClient.connect(interlock.home.path) as client:
            asked = (client.call("mcp:tiny/echo", {"text": str(n)}) for n in range(900))
            return Counter(one.outcome for one in await asyncio.gather(*asked))

    for _ in range(3):
        assert asyncio.run(calls()) == {"ok": 900}


def test_an_agent_that_takes_nothing_fails_its_turns_only(interlock: Supervised) -> None:
    """The control plane's queue of a stopped agent is full; other agents' turns go on."""
    pid = interlock.worker("agent:main")["pid"]
    place = interlock.mark()

    async def start(count: int) -> list[str]:
        turns = [new_turn_id() for _ in range(count)]
        async with AsyncClient.connect(interlock.home.path) as client:
            for n in range(0, count, 100):
                some = turns[n : n + 100]
                asked = (client.start_turn("mcp:y/echo {}", id=turn, deadline=600) for turn in some)
                await asyncio.gather(*asked)
        return turns

    os.kill(pid, signal.SIGSTOP)
    try:
        turns = asyncio.run(start(900))
        timely(interlock)
    finally:
        os.kill(pid, signal.SIGCONT)
    for turn in turns:
        ended = interlock.wait_for(
            lambda event, turn=turn: (  # type: ignore[misc]
                event.get("turn") == turn and event["topic"] in ("turn.completed", "turn.failed")
            ),
            place,
        )
        assert ended["topic"] == "turn.completed" or ended["code"] == "unavailable", ended
    assert interlock.worker("agent:main")["pid"] == pid


def test_a_crash_loop_and_floods_beside_a_follower(tmp_path: Path) -> None:
    """Every event arrives once and in order while servers crash, print and call as they can."""
    config = (
        timing(failures=50)
        + '[agents.main]\nmodel = "direct"\n'
        + rogue_toml("crashes", "exit_after_init")
        + rogue_toml("floods", "flood_stdout", "flood_stderr", "flood_notify=20000")
        + rogue_toml("y")
        + TINY
    )

    async def calls(interlock: Supervised) -> None:
        async with AsyncClient.connect(interlock.home.path) as client:
            for _ in range(4):
                asked = [client.call("mcp:tiny/echo", {"text": "x"}) for _ in range(500)]
                turn = [one async for one in client.turn("mcp:y/echo {} & mcp:floods/echo {}")]
                assert turn[-1]["type"] == "turn.completed"
                answers = await asyncio.gather(*asked)
                assert (
                    Counter(
                        (one.outcome, str(one.content)) for one in answers if one.outcome != "ok"
                    )
                    == {}
                )

    with Supervised(tmp_path, config) as interlock:
        for name in ("agent:main", "mcp:floods", "mcp:y", "mcp:tiny"):
            interlock.wait_state(name, "READY")
        asyncio.run(calls(interlock))
        for attempt in range(2, 5):
            interlock.wait_event("worker.backoff", "mcp:crashes", attempt=attempt)
        turn = list(interlock.client.turn("mcp:y/echo {}"))
        interlock.wait_event("turn.completed", turn=turn[0]["turn"])
        told = [event["seq"] for event in interlock.events if event["topic"] != "snapshot"]
        assert told == list(range(told[0], told[0] + len(told)))
        assert sum(event["topic"] == "snapshot" for event in interlock.events) == 1
