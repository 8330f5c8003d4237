"""Following events: what is applied, what is dropped, when a snapshot is taken again."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlock.bus.subscriber import Follower, Need, Position, Verdict, judge


def event(seq: int, epoch: str = "e", topic: str = "worker.ready") -> dict[str, Any]:
    return {"topic": topic, "epoch": epoch, "seq": seq}


def need(follower: Follower) -> Need:
    return follower.need


def seqs(documents: list[dict[str, Any]]) -> list[Any]:
    return ["S" if each["topic"] == "snapshot" else each["seq"] for each in documents]


@pytest.mark.parametrize(
    ("known", "epoch", "seq", "verdict"),
    [
        (None, "e", 1, Verdict.RESYNC),
        (Position("e", 4), "e", 3, Verdict.DROP),
        (Position("e", 4), "e", 4, Verdict.DROP),
        (Position("e", 4), "e", 5, Verdict.APPLY),
        (Position("e", 4), "e", 6, Verdict.RESYNC),
        (Position("e", 4), "f", 5, Verdict.RESYNC),
        (Position("e", 4), "f", 1, Verdict.RESYNC),
    ],
)
def test_judge(known: Position | None, epoch: str, seq: int, verdict: Verdict) -> None:
    assert judge(known, epoch, seq) is verdict


def test_events_before_the_snapshot_wait_for_it() -> None:
    follower = Follower()
    assert need(follower) is Need.SNAPSHOT
    assert follower.on_event(event(4)) == []
    assert follower.on_event(event(5)) == []
    assert seqs(follower.on_snapshot("e", 4, {})) == ["S", 5]
    assert seqs(follower.on_event(event(6))) == [6]
    assert need(follower) is Need.NOTHING


def test_a_gap_asks_for_a_snapshot_and_goes_on_after_it() -> None:
    follower = Follower()
    follower.on_snapshot("e", 1, {})
    assert follower.on_event(event(3)) == []
    assert need(follower) is Need.SNAPSHOT
    assert follower.on_event(event(4)) == []
    assert seqs(follower.on_snapshot("e", 3, {})) == ["S", 4]


def test_a_snapshot_older_than_what_waits_is_taken_again() -> None:
    follower = Follower()
    follower.on_event(event(9))
    assert seqs(follower.on_snapshot("e", 5, {})) == ["S"]
    assert need(follower) is Need.SNAPSHOT
    assert seqs(follower.on_snapshot("e", 8, {})) == ["S", 9]


def test_a_new_epoch_asks_for_a_snapshot_and_late_events_of_the_old_are_dropped() -> None:
    follower = Follower()
    follower.on_snapshot("e", 7, {})
    assert follower.on_event(event(1, "f")) == []
    assert need(follower) is Need.SNAPSHOT
    assert seqs(follower.on_snapshot("f", 1, {})) == ["S"]
    assert follower.on_event(event(8, "e")) == []
    assert need(follower) is Need.NOTHING
    assert seqs(follower.on_event(event(2, "f"))) == [2]


def test_resuming_by_replay_shows_no_snapshot() -> None:
    follower = Follower(since=Position("e", 4))
    assert need(follower) is Need.REPLAY
    follower.on_event(event(7))
    assert seqs(follower.on_replay("e", [event(5), event(6), event(7)])) == [5, 6, 7]


def test_resuming_too_late_begins_with_a_snapshot() -> None:
    follower = Follower(since=Position("e", 4))
    assert follower.on_gap() == []
    assert need(follower) is Need.SNAPSHOT
    assert seqs(follower.on_snapshot("e", 100, {})) == ["S"]


def test_a_replay_of_another_epoch_is_a_gap() -> None:
    follower = Follower(since=Position("e", 4))
    assert follower.on_replay("f", [event(5, "f")]) == []
    assert need(follower) is Need.SNAPSHOT


def test_topics_filter_what_is_shown_and_never_make_gaps() -> None:
    follower = Follower(topics=["worker."])
    assert seqs(follower.on_snapshot("e", 0, {})) == ["S"]
    assert seqs(follower.on_event(event(1, topic="tool.started"))) == []
    assert seqs(follower.on_event(event(2))) == [2]
    assert need(follower) is Need.NOTHING


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ("a:1", Position("a", 1)),
        ("a:b:1", Position("a:b", 1)),
        ("a", None),
        (":1", None),
        ("a:", None),
        ("a:-1", None),
        ("a:²", None),
    ],
)
def test_written_positions(text: str, position: Position | None) -> None:
    assert Position.parse(text) == position


@given(
    st.lists(st.sampled_from(["publish", "lose", "restart", "answer"]), max_size=60),
    st.integers(min_value=0, max_value=5),
)
def test_whatever_is_lost_the_follower_ends_with_the_truth(steps: list[str], lag: int) -> None:
    """A model supervisor counts; its state is the seq. Frames get lost, answers are late."""
    epoch, seq = 0, 0
    follower = Follower()
    shown: list[dict[str, Any]] = []
    held: list[tuple[str, int]] = []

    def answer() -> None:
        if follower.need is Need.SNAPSHOT:
            held.append((str(epoch), seq))
            if len(held) > lag:
                shown.extend(follower.on_snapshot(*held[0], {}))
                held.clear()

    for step in [*steps, "publish"]:
        if step == "restart":
            epoch, seq = epoch + 1, 0
        elif step == "answer":
            answer()
        else:
            seq += 1
            if step == "publish":
                shown.extend(follower.on_event(event(seq, str(epoch))))
    for _ in range(4 * (lag + 1)):
        answer()
    assert need(follower) is Need.NOTHING
    assert follower.known == Position(str(epoch), seq)
    # Between two snapshots there is no gap and no repetition.
    for before, after in pairwise(shown):
        if after["topic"] != "snapshot":
            assert (after["epoch"], after["seq"]) == (before["epoch"], before["seq"] + 1)
