"""The rules of following events: subscribe first, take a snapshot, apply what is newer.

Pure: events, snapshots and replays go in; what to hand on, and what to ask for next, comes out.
The clients do the sending. Events are documents as `interlock attach --json` prints them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from enum import Enum
from typing import Any, Final, cast

import msgspec

from interlock.bus.codec import decode_as, decode_event
from interlock.bus.errors import (
    ConnectionLostError,
    NoSupervisorError,
    RequestTimeoutError,
    UnauthorizedError,
)
from interlock.bus.messages import ReplayGet, Reply, Request, SnapshotGet
from interlock.bus.results import error_of

BUFFER: Final = 20_000
"""Events kept while a snapshot is under way; more mean a gap, and so another snapshot."""
EVENTS_HIGH_WATER: Final = 10_000
"""Events that wait in the socket of a slow reader before it misses some."""
PROBES: Final = (0.2, 0.5, 1.0, 2.0, 5.0)
"""Seconds of silence after which a follower asks whether it missed the last event; the last one
over and over. A subscription takes effect a little after the snapshot may have been taken."""

LOST: Final = (ConnectionLostError, NoSupervisorError, RequestTimeoutError, UnauthorizedError)
"""Errors after which another supervisor may be there to follow."""

Document = dict[str, Any]


class Position(msgspec.Struct, frozen=True, order=True):
    """The last event that is part of what the follower knows, written `EPOCH:SEQ`."""

    epoch: str
    seq: int

    @classmethod
    def parse(cls, text: str) -> Position | None:
        """Read the written form; None for anything else.

        >>> Position.parse("a1b2:17")
        Position(epoch='a1b2', seq=17)
        """
        epoch, _, seq = text.rpartition(":")
        if not epoch or not (seq.isascii() and seq.isdigit() and len(seq) < 19):
            return None
        return cls(epoch, int(seq))


class Verdict(Enum):
    """What to do with an event."""

    APPLY = "apply"
    DROP = "drop"
    RESYNC = "resync"


class Need(Enum):
    """What a follower wants from the supervisor before it can go on."""

    NOTHING = "nothing"
    SNAPSHOT = "snapshot"
    REPLAY = "replay"


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """The document that answers `snapshot`."""

    epoch: str
    seq: int
    status: Any = None


class Replay(msgspec.Struct, frozen=True, kw_only=True):
    """The document that answers `replay`."""

    epoch: str
    events: list[Document]


def judge(known: Position | None, epoch: str, seq: int) -> Verdict:
    """Decide about one event, given the last one that is known.

    >>> judge(Position("e", 4), "e", 5), judge(Position("e", 4), "e", 6)
    (<Verdict.APPLY: 'apply'>, <Verdict.RESYNC: 'resync'>)
    """
    if known is None or epoch != known.epoch:
        return Verdict.RESYNC
    if seq <= known.seq:
        return Verdict.DROP
    return Verdict.APPLY if seq == known.seq + 1 else Verdict.RESYNC


class Follower:
    """Follows one stream of events without showing any twice and without missing a gap.

    `need` says what to ask the supervisor for; events that come meanwhile are kept. The methods
    return the documents that are to be handed on, in order. Topics are beginnings ("worker.");
    none means all. They filter last, because the sequence counts every topic.
    """

    def __init__(self, topics: Iterable[str] = (), since: Position | None = None) -> None:
        self.topics = tuple(topics)
        self.known = since
        self.need = Need.SNAPSHOT if since is None else Need.REPLAY
        self._waiting: deque[Document] = deque(maxlen=BUFFER)
        self._past: set[str] = set()
        self._seen_before_asking: set[str] = set()

    def __repr__(self) -> str:
        """Show the position and what is needed."""
        return f"Follower(known={self.known}, need={self.need.value})"

    def question(self) -> tuple[type[Request], dict[str, Any]]:
        """Return the request that asks for what is needed: its kind and its fields."""
        if self.need is Need.REPLAY and self.known is not None:
            return ReplayGet, {"epoch": self.known.epoch, "seq": self.known.seq}
        return SnapshotGet, {}

    def on_answer(self, asked: type[Request], reply: Reply, body: bytes | None) -> list[Document]:
        """Take the answer to `question`; raises the error of one that is neither ok nor a gap."""
        if asked is ReplayGet and reply.code == "gap":
            return self.on_gap()
        if reply.code != "ok":
            raise error_of(reply)
        if asked is ReplayGet:
            replay = decode_as(body or b"", Replay)
            return self.on_replay(replay.epoch, replay.events)
        snapshot = decode_as(body or b"", Snapshot)
        return self.on_snapshot(snapshot.epoch, snapshot.seq, snapshot.status)

    def on_event(self, event: Document) -> list[Document]:
        """Take an event from the subscription."""
        self._waiting.append(event)
        return self._release() if self.need is Need.NOTHING else []

    def on_snapshot(self, epoch: str, seq: int, status: Any) -> list[Document]:
        """Take the answer to a snapshot request; it is handed on as an event of that topic."""
        # An epoch that was seen before the question and is not in the answer is over.
        self._past |= self._seen_before_asking
        if self.known is not None:
            self._past.add(self.known.epoch)
        self._past.discard(epoch)
        self._seen_before_asking = set()
        self.known = Position(epoch, seq)
        self.need = Need.NOTHING
        snapshot = {"topic": "snapshot", "epoch": epoch, "seq": seq, "status": status}
        return [snapshot, *self._release()]

    def on_replay(self, epoch: str, events: Iterable[Document]) -> list[Document]:
        """Take the answer to a replay request; it comes before what waits."""
        if self.known is None or epoch != self.known.epoch:
            return self.on_gap()
        self.need = Need.NOTHING
        self._waiting.extendleft(reversed(list(events)))
        return self._release()

    def doubt(self) -> None:
        """Ask whether there is something newer: after silence the last events may be lost."""
        if self.need is Need.NOTHING:
            self.need = Need.REPLAY

    def on_gap(self) -> list[Document]:
        """Take the news that a replay is not possible."""
        self.need = Need.SNAPSHOT
        return []

    def _release(self) -> list[Document]:
        """Hand on what waits, up to the first event that shows a gap."""
        ready: list[Document] = []
        while self._waiting:
            event = self._waiting[0]
            epoch, seq = event["epoch"], event["seq"]
            verdict = judge(self.known, epoch, seq)
            if verdict is Verdict.RESYNC and epoch not in self._past:
                self.need = Need.SNAPSHOT
                self._seen_before_asking = {each["epoch"] for each in self._waiting}
                return ready
            self._waiting.popleft()
            if verdict is Verdict.APPLY:
                self.known = Position(epoch, seq)
                if wanted(event["topic"], self.topics):
                    ready.append(event)
        return ready


def read_event(frames: list[bytes]) -> Document:
    """Return the event of a message of the subscription; raises MalformedError."""
    event = decode_event(frames[0], frames[-1])
    return event if isinstance(event, dict) else cast("Document", msgspec.to_builtins(event))


def wanted(topic: str, topics: tuple[str, ...]) -> bool:
    """Tell whether a topic begins with one of `topics`; none means all."""
    return not topics or topic.startswith(topics)
