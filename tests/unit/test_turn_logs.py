from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from interlock.bus.errors import OverloadedError
from interlock.bus.messages import ITEMS_BATCH, ApiAnswer, Items
from interlock.supervisor.events.journal import Journal
from interlock.supervisor.events.journalrows import TurnRow
from interlock.supervisor.events.turnlog import LogBounds, TurnLogs

T = "ab" * 16


def item(text: str) -> bytes:
    return json.dumps({"type": "text.delta", "text": text}).encode()


class Clients:
    """What every client received; a client may be full."""

    def __init__(self) -> None:
        self.got: list[tuple[bytes, Items, bytes]] = []
        self.full: set[bytes] = set()
        self.left: set[bytes] = set()
        self.tried = asyncio.Event()
        self.looks = 0
        """How often it was asked whether one is still there."""

    def present(self, identity: bytes) -> bool:
        self.looks += 1
        return identity not in self.left

    def __call__(self, identity: bytes, message: ApiAnswer, body: bytes | None) -> bool:
        self.tried.set()
        if identity in self.full:
            return False
        assert isinstance(message, Items) and body is not None
        self.got.append((identity, message, body))
        return True

    def texts(self, identity: bytes = b"c") -> list[str]:
        return [
            found["text"]
            for who, _, body in self.got
            if who == identity
            for found in json.loads(body)
        ]


@asynccontextmanager
async def logs(
    path: Path, bounds: LogBounds | None = None
) -> AsyncIterator[tuple[TurnLogs, Clients, Journal]]:
    clients = Clients()
    journal = Journal(path / "j.sqlite3", "e1", lambda *_, **__: None)
    await journal.open()
    made = TurnLogs(journal, clients, bounds, clients.present)
    try:
        yield made, clients, journal
    finally:
        made.close()
        await journal.close()


async def finish(made: TurnLogs, journal: Journal, turn: str, *texts: str) -> None:
    """A whole turn with these texts, its end stored."""
    made.begin(turn)
    made.append(turn, [item(text) for text in texts])
    last = made.prepare_end(turn, item("end"))
    await journal.end_turn(TurnRow(turn=turn, agent="main", state="completed", ended=1.0))
    made.end(turn, last)


def test_watchers_see_every_item_from_their_offset_on(tmp_path: Path) -> None:
    async def story() -> None:
        async with logs(tmp_path) as (made, clients, _):
            made.begin(T)
            await made.watch(b"early", 1, T, offset=0, credit=100)
            made.append(T, [item("a"), item("b")])
            await made.watch(b"late", 1, T, offset=1, credit=100)
            made.append(T, [item("c")])
            last = made.prepare_end(T, item("end"))
            assert clients.texts(b"early") == ["a", "b", "c"]
            made.end(T, last)
            await made.watch(b"after", 1, T, offset=0, credit=100)
            await made.watch(b"beyond", 1, T, offset=9, credit=0)
            assert clients.texts(b"early") == ["a", "b", "c", "end"]
            assert clients.texts(b"late") == ["b", "c", "end"]
            assert clients.texts(b"after") == ["a", "b", "c", "end"]
            ends = {who: (m.offset, m.count) for who, m, _ in clients.got if m.end}
            assert ends == {b"early": (3, 1), b"late": (3, 1), b"after": (0, 4), b"beyond": (9, 0)}

    asyncio.run(story())


def test_credit_bounds_what_is_sent(tmp_path: Path) -> None:
    async def story() -> None:
        async with logs(tmp_path) as (made, clients, journal):
            await finish(made, journal, T, "a", "b", "c")
            await made.watch(b"c", 1, T, offset=0, credit=2)
            assert clients.texts() == ["a", "b"]
            made.credit(b"c", 2, 5)
            made.credit(b"other", 1, 5)
            made.credit(b"c", 1, -5)
            assert clients.texts() == ["a", "b"]
            made.credit(b"c", 1, 1)
            assert clients.texts() == ["a", "b", "c"]
            made.credit(b"c", 1, 2**62)
            assert clients.texts() == ["a", "b", "c", "end"]

    asyncio.run(story())


def test_batches_are_bounded_but_an_item_is_never_cut(tmp_path: Path) -> None:
    async def story() -> None:
        async with logs(tmp_path) as (made, clients, journal):
            big = "x" * (ITEMS_BATCH * 2)
            await finish(made, journal, T, *["y" * 1000] * 100, big, "z")
            await made.watch(b"c", 1, T, offset=0, credit=1000)
            assert len(clients.texts()) == 103
            for _, message, body in clients.got:
                assert len(body) <= ITEMS_BATCH + 2 or message.count == 1

    asyncio.run(story())


def test_a_full_watcher_is_tried_again_and_hinders_nobody(tmp_path: Path) -> None:
    async def story() -> None:
        bounds = LogBounds(retry=0.005, patience=30)
        async with logs(tmp_path, bounds) as (made, clients, _):
            made.begin(T)
            clients.full.add(b"slow")
            await made.watch(b"slow", 1, T, offset=0, credit=100)
            await made.watch(b"c", 1, T, offset=0, credit=100)
            for n in range(50):
                made.append(T, [item(str(n))])
            assert len(clients.texts()) == 50
            clients.full.clear()
            async with asyncio.timeout(5):
                while len(clients.texts(b"slow")) < 50:
                    clients.tried.clear()
                    await clients.tried.wait()
            assert clients.texts(b"slow") == clients.texts()

    asyncio.run(story())


def test_a_watcher_that_takes_nothing_is_dropped(tmp_path: Path) -> None:
    async def story() -> None:
        bounds = LogBounds(retry=0.005, patience=0.02, watchers=1, always=0)
        async with logs(tmp_path, bounds) as (made, clients, _):
            made.begin(T)
            made.append(T, [item("a")])
            clients.full.add(b"gone")
            await made.watch(b"gone", 1, T, offset=0, credit=100)
            async with asyncio.timeout(5):
                while True:
                    try:
                        await made.watch(b"c", 1, T, offset=0, credit=100)
                        break
                    except OverloadedError:
                        clients.tried.clear()
                        await clients.tried.wait()
            assert clients.texts() == ["a"]
            clients.full.clear()
            made.append(T, [item("b")])
            assert clients.texts(b"gone") == []

    asyncio.run(story())


def test_no_client_takes_the_places_of_all_watchers(tmp_path: Path) -> None:
    async def story() -> None:
        bounds = LogBounds(watchers=6, of_client=4, always=1, again=0)
        async with logs(tmp_path, bounds) as (made, clients, _):
            made.begin(T)
            made.append(T, [item("a")])
            for greedy in (b"x", b"y"):
                with pytest.raises(OverloadedError):
                    for watch in range(5):  # without credit nothing is sent, and nothing fails
                        await made.watch(greedy, watch, T, offset=0, credit=0)
            await made.watch(b"c", 1, T, offset=0, credit=9)
            assert clients.texts() == ["a"]
            with pytest.raises(OverloadedError):
                await made.watch(b"c", 2, T, offset=0, credit=9)
            clients.left.add(b"x")
            await made.watch(b"c", 2, T, offset=0, credit=9)
            assert clients.texts() == ["a", "a"]

    asyncio.run(story())


def test_refused_watches_make_nobody_write_to_all_who_watch(tmp_path: Path) -> None:
    """Whether somebody is there is found out by writing to it; that is paced."""

    async def story() -> None:
        bounds = LogBounds(watchers=6, of_client=9, always=0, again=60)
        async with logs(tmp_path, bounds) as (made, clients, _):
            made.begin(T)
            for watch in range(6):
                await made.watch(b"c%d" % watch, 1, T, offset=0, credit=0)
            for watch in range(500):
                with pytest.raises(OverloadedError):
                    await made.watch(b"x", watch, T, offset=0, credit=0)
            assert clients.looks == 6

    asyncio.run(story())


def test_who_left_a_quiet_turn_watches_no_more(tmp_path: Path) -> None:
    async def story() -> None:
        async with logs(tmp_path, LogBounds(ended=0, look=0.01)) as (made, clients, journal):
            evicted = asyncio.Event()
            await finish(made, journal, T)
            await made.watch(b"c", 1, T, offset=0, credit=0)
            await made.watch(b"d", 1, T, offset=0, credit=0)
            made.on_evicted = lambda turn: evicted.set()
            clients.left.update((b"c", b"d"))
            async with asyncio.timeout(5):
                await evicted.wait()
            assert not made.known(T)

    asyncio.run(story())


def test_ended_turns_leave_memory_when_the_disk_has_them(tmp_path: Path) -> None:
    async def story() -> None:
        evicted: list[str] = []
        async with logs(tmp_path, LogBounds(ended=2)) as (made, clients, journal):
            made.on_evicted = evicted.append
            for n in range(5):
                await finish(made, journal, f"{n:032x}", f"text {n}")
            assert evicted == [f"{n:032x}" for n in range(3)]
            assert not made.known(f"{0:032x}")
            await made.watch(b"c", 1, f"{0:032x}", offset=0, credit=100)
            assert clients.texts() == ["text 0", "end"]
            (message,) = [found for _, found, _ in clients.got]
            assert (message.offset, message.count, message.end) == (0, 2, True)
            assert json.loads(clients.got[0][2])[1]["offset"] == 1

    asyncio.run(story())


def test_a_turn_that_is_watched_or_not_stored_stays(tmp_path: Path) -> None:
    async def story() -> None:
        async with logs(tmp_path, LogBounds(ended=0)) as (made, clients, journal):
            made.begin("1")
            made.append("1", [item("a")])
            made.end("1", None)
            assert made.known("1")
            made.begin("2")
            made.append("2", [item("a"), item("b")])
            await made.watch(b"c", 1, "2", offset=0, credit=1)
            await journal.end_turn(TurnRow(turn="2", agent="main", state="completed"))
            made.end("2", None)
            assert made.known("2")
            made.unwatch(b"c", 1)
            assert not made.known("2")
            assert clients.texts() == ["a"]

    asyncio.run(story())


def test_credit_and_unwatch_count_while_a_turn_is_loaded(tmp_path: Path) -> None:
    async def story() -> None:
        async with logs(tmp_path, LogBounds(ended=0)) as (made, clients, journal):
            await finish(made, journal, T, "a", "b")
            assert not made.known(T)
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(made.watch(b"c", 1, T, offset=0, credit=1))
                tasks.create_task(made.watch(b"quit", 1, T, offset=0, credit=9))
                await asyncio.sleep(0)
                made.credit(b"c", 1, 1)
                made.drop_client(b"quit")
            assert clients.texts() == ["a", "b"]
            assert clients.texts(b"quit") == []

    asyncio.run(story())


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.lists(st.integers(0, 40_000), max_size=4), max_size=8),
    st.integers(0, 40),
    st.lists(st.integers(0, 6), max_size=30),
)
def test_no_credit_pattern_loses_or_repeats_an_item(
    tmp_path_factory: object, batches: list[list[int]], offset: int, credits_: list[int]
) -> None:
    async def story(path: Path) -> None:
        async with logs(path) as (made, clients, _):
            made.begin(T)
            await made.watch(b"c", 1, T, offset=offset, credit=0)
            grants = iter(credits_)
            sizes = [size for batch in batches for size in batch]
            for batch in batches:
                made.append(T, [item("x" * size) for size in batch])
                made.credit(b"c", 1, next(grants, 0))
            made.end(T, made.prepare_end(T, item("")))
            made.credit(b"c", 1, 10_000)
            assert [len(text) for text in clients.texts()] == [*sizes, 0][offset:]
            assert [message.end for _, message, _ in clients.got].count(True) == 1

    path: Path = tmp_path_factory.mktemp("logs")  # type: ignore[attr-defined]
    asyncio.run(story(path))
