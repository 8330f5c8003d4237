"""Streams of the asynchronous client: the items of a turn, and events."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import aclosing

from interlock.bus.aline import AsyncLine
from interlock.bus.errors import (
    ConnectionLostError,
    MalformedError,
    RequestTimeoutError,
)
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


async def watch_turn(line: AsyncLine, turn: str, offset: int) -> AsyncGenerator[Document]:
    """Go through a turn's items to its end; see `AsyncClient.watch`."""
    watch = Watch(turn, offset)
    while not watch.ended:
        watch.again()
        async with aclosing(_watch_once(line, watch)) as items:
            async for item in items:
                yield item


async def _watch_once(line: AsyncLine, watch: Watch) -> AsyncGenerator[Document]:
    """Stream a turn until it ends or has to be asked for anew."""
    fields = {"turn": watch.turn, "offset": watch.offset, "credit": WINDOW}
    request_id = await line.open_request(TurnWatch, None, ANSWER, fields)

    def grant(count: int) -> bool:
        return line.notify(TurnCredit, {"watch": request_id, "credit": count})

    try:
        while not watch.ended:
            watch.credit(grant)
            try:
                message, body = await line.next_answer(request_id, SILENCE)
            except RequestTimeoutError:
                # Nothing for long: is the supervisor all right, is the turn still running?
                if await _turn_state(line, watch.turn) in ENDED:
                    watch.doubt()
                    return
                continue
            if isinstance(message, Reply) and message.code != "ok":
                raise error_of(message)
            if not isinstance(message, Items):
                continue
            fresh = watch.on_items(message, body)
            if fresh is None:
                return
            for item in fresh:
                yield item
    finally:
        line.close_request(request_id)
        if not watch.ended and not line.closed:
            line.notify(TurnUnwatch, {"watch": request_id})


async def _turn_state(line: AsyncLine, turn: str) -> str:
    try:
        document = await line.document(TurnGet, None, ANSWER, {"turn": turn})
    except RequestTimeoutError as error:
        raise ConnectionLostError(error.message) from None
    return str(document.get("state", "")) if isinstance(document, dict) else ""


async def follow_events(
    line: AsyncLine, follower: Follower, on_other_supervisor: Callable[[], None]
) -> AsyncGenerator[Document]:
    """Follow events without end; see `AsyncClient.events`."""
    while True:
        try:
            async with aclosing(_follow(line, follower)) as events:
                async for event in events:
                    yield event
        except LOST:
            if not line.renew():
                raise
            on_other_supervisor()
            follower.on_gap()


async def _follow(line: AsyncLine, follower: Follower) -> AsyncGenerator[Document]:
    """Follow one supervisor's events until it is lost."""
    ready: deque[Document] = deque()
    news = asyncio.Event()

    def on_frames(frames: list[bytes]) -> None:
        try:
            event = read_event(frames)
        except MalformedError:
            line.dropped += 1
            return
        if len(ready) >= BUFFER:  # nobody takes them
            follower.on_gap()
        ready.extend(follower.on_event(event))
        news.set()

    sock = line.subscribe(on_frames, EVENTS_HIGH_WATER)
    try:
        quiet = 0
        while True:
            if follower.need is not Need.NOTHING:
                ready.extend(await _catch_up(line, follower))
            while ready:
                yield ready.popleft()
            if follower.need is not Need.NOTHING:
                continue
            news.clear()
            try:
                async with asyncio.timeout(PROBES[min(quiet, len(PROBES) - 1)]):
                    await news.wait()
            except TimeoutError:
                quiet += 1
                line.check()
                follower.doubt()
    finally:
        line.unsubscribe(sock)


async def _catch_up(line: AsyncLine, follower: Follower) -> Iterable[Document]:
    """Ask the supervisor for what the follower needs."""
    kind, fields = follower.question()
    reply, body = await line.exchange(kind, None, ANSWER, fields)
    return follower.on_answer(kind, reply, body)
