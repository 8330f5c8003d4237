"""Streams of the synchronous client: the items of a turn, and events."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator

import zmq

from interlock.bus.errors import (
    ConnectionLostError,
    MalformedError,
    RequestTimeoutError,
)
from interlock.bus.line import Line
from interlock.bus.messages import (
    Items,
    Reply,
    TurnCredit,
    TurnGet,
    TurnUnwatch,
    TurnWatch,
)
from interlock.bus.results import error_of
from interlock.bus.subscriber import (
    BUFFER,
    EVENTS_HIGH_WATER,
    LOST,
    PROBES,
    Document,
    Follower,
    Need,
    read_event,
)
from interlock.bus.watching import ANSWER, ENDED, SILENCE, WINDOW, Watch


def watch_turn(line: Line, turn: str, offset: int) -> Iterator[Document]:
    """Go through a turn's items to its end; see `Client.watch`."""
    watch = Watch(turn, offset)
    while not watch.ended:
        watch.again()
        yield from _watch_once(line, watch)


def _watch_once(line: Line, watch: Watch) -> Iterator[Document]:
    """Stream a turn until it ends or has to be asked for anew."""
    fields = {"turn": watch.turn, "offset": watch.offset, "credit": WINDOW}
    request_id = line.open_request(TurnWatch, None, time.monotonic() + ANSWER, fields)

    def grant(count: int) -> bool:
        return line.notify(TurnCredit, {"watch": request_id, "credit": count})

    try:
        while not watch.ended:
            watch.credit(grant)
            answer = line.next_answer(request_id, time.monotonic() + SILENCE)
            if answer is None:
                # Nothing for long: is the supervisor all right, is the turn still running?
                if _turn_state(line, watch.turn) in ENDED:
                    watch.doubt()
                    return
                continue
            message, body = answer
            if isinstance(message, Reply) and message.code != "ok":
                raise error_of(message)
            if not isinstance(message, Items):
                continue
            fresh = watch.on_items(message, body)
            if fresh is None:
                return
            yield from fresh
    finally:
        line.close_request(request_id)
        if not watch.ended and not line.closed:
            line.notify(TurnUnwatch, {"watch": request_id})


def _turn_state(line: Line, turn: str) -> str:
    try:
        document = line.document(TurnGet, None, ANSWER, {"turn": turn})
    except RequestTimeoutError as error:
        raise ConnectionLostError(error.message) from None
    return str(document.get("state", "")) if isinstance(document, dict) else ""


def follow_events(
    line: Line, follower: Follower, on_other_supervisor: Callable[[], None]
) -> Iterator[Document]:
    """Follow events without end; see `Client.events`."""
    while True:
        try:
            yield from _follow(line, follower)
        except LOST:
            if not line.renew():
                raise
            on_other_supervisor()
            follower.on_gap()


def _follow(line: Line, follower: Follower) -> Iterator[Document]:
    """Follow one supervisor's events until it is lost."""
    ready: deque[Document] = deque()

    def on_frames(frames: list[bytes]) -> None:
        try:
            event = read_event(frames)
        except MalformedError:
            line.dropped += 1
            return
        if len(ready) >= BUFFER:  # nobody takes them
            follower.on_gap()
        ready.extend(follower.on_event(event))

    sock = line.connect(
        zmq.SUB, line.info.events, on_frames, rcvhwm=EVENTS_HIGH_WATER, subscribe=b"msgpack"
    )
    try:
        quiet = 0
        while True:
            if follower.need is not Need.NOTHING:
                ready.extend(_catch_up(line, follower))
            while ready:
                yield ready.popleft()
            before = follower.known
            until = time.monotonic() + PROBES[min(quiet, len(PROBES) - 1)]
            while not ready and follower.need is Need.NOTHING and time.monotonic() < until:
                line.pump(until)
            if follower.known == before:
                quiet += 1
                follower.doubt()
    finally:
        line.disconnect(sock)


def _catch_up(line: Line, follower: Follower) -> Iterable[Document]:
    """Ask the supervisor for what the follower needs."""
    kind, fields = follower.question()
    reply, body = line.exchange(kind, None, ANSWER, fields)
    return follower.on_answer(kind, reply, body)
