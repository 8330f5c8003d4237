from __future__ import annotations

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlock.bus.errors import InterlockError
from interlock.bus.events import CatalogChanged, Event, WorkerReady, WorkerStarting
from interlock.supervisor.events.sequencer import Sequencer


def make(kept: int = 10) -> tuple[Sequencer, list[list[bytes]]]:
    sent: list[list[bytes]] = []
    return Sequencer("e1", sent.append, clock=lambda: 5.0, kept=kept), sent


def test_events_are_stamped_in_order() -> None:
    sequencer, _ = make()
    first = sequencer.publish(WorkerStarting(name="mcp:a"))
    second = sequencer.publish(WorkerReady(name="mcp:a", tools=3, epoch="forged", seq=99))
    assert first == WorkerStarting(name="mcp:a", epoch="e1", seq=1, time=5.0)
    assert second == WorkerReady(name="mcp:a", tools=3, epoch="e1", seq=2, time=5.0)
    assert sequencer.seq == 2


def test_only_wanted_encodings_are_sent() -> None:
    sequencer, sent = make()
    sequencer.publish(WorkerStarting(name="a"))
    assert sent == []
    sequencer.on_frames([b"\x01json"])
    sequencer.publish(WorkerStarting(name="b"))
    ((encoding, frame),) = sent
    assert encoding == b"json"
    assert json.loads(frame) == {
        "topic": "worker.starting",
        "epoch": "e1",
        "seq": 2,
        "time": 5.0,
        "name": "b",
        "generation": 0,
    }
    sequencer.on_frames([b"\x01"])
    sequencer.publish(WorkerStarting(name="c"))
    assert [frames[0] for frames in sent] == [b"json", b"json", b"msgpack"]
    assert msgspec.msgpack.decode(sent[-1][1])["seq"] == 3
    sequencer.on_frames([b"\x00json"])
    sequencer.on_frames([b"\x00"])
    sequencer.publish(WorkerStarting(name="d"))
    assert len(sent) == 3


@given(st.lists(st.lists(st.binary(max_size=12), max_size=3), max_size=20))
def test_any_frames_from_subscribers_are_survived(messages: list[list[bytes]]) -> None:
    sequencer, _ = make()
    for frames in messages:
        sequencer.on_frames(frames)
    sequencer.publish(WorkerStarting(name="a"))


def test_replay_gives_what_came_after() -> None:
    sequencer, _ = make(kept=3)
    for name in "abcde":
        sequencer.publish(WorkerStarting(name=name))
    assert [event.seq for event in sequencer.replay("e1", 2)] == [3, 4, 5]
    assert sequencer.replay("e1", 5) == []


@pytest.mark.parametrize(("epoch", "seq"), [("e1", 1), ("e0", 4), ("e1", 6), ("e1", -1)])
def test_a_gap_is_said(epoch: str, seq: int) -> None:
    sequencer, _ = make(kept=3)
    for name in "abcde":
        sequencer.publish(WorkerStarting(name=name))
    with pytest.raises(InterlockError) as caught:
        sequencer.replay(epoch, seq)
    assert caught.value.code == "gap"


def test_replay_before_the_first_event() -> None:
    sequencer, _ = make()
    assert sequencer.replay("e1", 0) == []


def test_listeners_hear_until_they_stop() -> None:
    sequencer, _ = make()
    heard: list[Event] = []
    stop = sequencer.listen(heard.append)
    sequencer.publish(WorkerStarting(name="a"))
    stop()
    stop()
    sequencer.publish(WorkerStarting(name="b"))
    assert [event.seq for event in heard] == [1]


def test_what_is_kept_is_bounded_in_bytes_too() -> None:
    sequencer = Sequencer("e1", kept=1_000, kept_bytes=10_000)
    for _ in range(100):
        sequencer.publish(CatalogChanged(name="mcp:a", added=("x" * 500, "y" * 490)))
    kept = sequencer.replay("e1", 90)
    assert [event.seq for event in kept] == list(range(91, 101))
    with pytest.raises(InterlockError):
        sequencer.replay("e1", 89)
