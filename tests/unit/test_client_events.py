"""Following events with the synchronous client, whatever is lost on the way."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from bus_peer import WORKER, Peer

from interlock.bus import Client, connect
from interlock.bus.events import ToolStarted, WorkerReady


@pytest.fixture
def peer(tmp_path: Path) -> Iterator[Peer]:
    with Peer(tmp_path / "home") as found:
        yield found


@pytest.fixture
def bus(peer: Peer) -> Iterator[Client]:
    with connect(peer.home.path) as client:
        yield client


READY = WorkerReady(name=WORKER, generation=1, pid=7, tools=4)


def take(events: Iterator[dict[str, Any]], count: int) -> list[Any]:
    return [
        "S" if event["topic"] == "snapshot" else event["seq"] for event in islice(events, count)
    ]


def test_a_snapshot_first_then_events(peer: Peer, bus: Client) -> None:
    peer.do(lambda: peer.publish(READY))
    events = bus.events()
    first = next(events)
    assert first.pop("status")["workers"][0]["name"] == WORKER
    assert first == {"topic": "snapshot", "epoch": "epoch-1", "seq": 1}
    peer.do(lambda: peer.publish(READY))
    event = next(events)
    assert event.pop("time") > 0
    assert event == {
        "topic": "worker.ready",
        "epoch": "epoch-1",
        "seq": 2,
        "name": WORKER,
        "generation": 1,
        "pid": 7,
        "tools": 4,
    }


def test_an_event_that_came_before_the_subscription_took_effect(peer: Peer, bus: Client) -> None:
    events = bus.events()
    assert take(events, 1) == ["S"]
    peer.do(lambda: peer.publish(READY, lose=True))
    # Nothing else comes, so only asking again finds it.
    assert take(events, 1) == [1]


def test_a_gap_brings_a_snapshot(peer: Peer, bus: Client) -> None:
    events = bus.events()
    assert take(events, 1) == ["S"]
    peer.do(lambda: peer.publish(READY))
    assert take(events, 1) == [1]

    def gap() -> None:
        peer.publish(READY, lose=True)
        peer.publish(READY)

    peer.do(gap)
    assert take(events, 1) == ["S"]
    peer.do(lambda: peer.publish(READY))
    assert take(events, 1) == [4]


def test_topics_filter(peer: Peer, bus: Client) -> None:
    events = bus.events(topics=["worker."])
    assert take(events, 1) == ["S"]

    def some() -> None:
        peer.publish(ToolStarted(name=WORKER, capability="echo"))
        peer.publish(READY)

    peer.do(some)
    assert take(events, 1) == [2]


def test_resuming(peer: Peer, bus: Client) -> None:
    for _ in range(3):
        peer.do(lambda: peer.publish(READY))
    assert take(bus.events(since="epoch-1:1"), 2) == [2, 3]
    assert take(bus.events(since="another:1"), 1) == ["S"]
    peer.replay_gap = True
    assert take(bus.events(since="epoch-1:1"), 1) == ["S"]


def test_another_supervisor_on_the_home_is_followed(peer: Peer, bus: Client) -> None:
    events = bus.events()
    assert next(events)["epoch"] == "epoch-1"
    peer.do(peer.restart)
    peer.do(lambda: peer.publish(READY))
    again = next(events)
    assert (again["topic"], again["epoch"]) == ("snapshot", "epoch-2")
    peer.do(lambda: peer.publish(READY))
    seen = next(events)
    assert (seen["epoch"], seen["seq"]) == ("epoch-2", again["seq"] + 1)
    assert bus.status()["workers"][0]["state"] == "READY"
