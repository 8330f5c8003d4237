from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest

from interlock.bus.errors import JournalError
from interlock.supervisor.events import journalfile
from interlock.supervisor.events.journal import Journal, JournalBounds
from interlock.supervisor.events.journalrows import ApprovalRow, CallRow, TurnRow

QUICK = JournalBounds(retry=0.05, linger=0.0)


def row(turn: str, state: str = "accepted", **fields: object) -> TurnRow:
    ended = None if state in ("accepted", "running") else 2.0
    return TurnRow(turn=turn, agent="main", state=state, text="hi", started=1.0, ended=ended)


def call(number: int, outcome: str = "", turn: str = "t1", worker: str = "mcp:git") -> CallRow:
    return CallRow(
        worker=worker,
        generation=1,
        call=str(number),
        capability="mcp:git/log",
        turn=turn,
        outcome=outcome,
    )


def approval(id_: str) -> ApprovalRow:
    return ApprovalRow(
        id=id_, capability="mcp:git/log", arguments="{}", digest="d", asked=1.0, outcome="yes"
    )


class Notices:
    """The attention rows, and a way to wait for one."""

    def __init__(self) -> None:
        self.rows: list[tuple[str, bool, str]] = []
        self._changed = asyncio.Event()

    def __call__(self, code: str, message: str, fix: str, *, clear: bool = False) -> None:
        self.rows.append((code, clear, message))
        self._changed.set()

    async def until(self, code: str, *, clear: bool = False) -> str:
        async with asyncio.timeout(10):
            while True:
                for found, cleared, message in self.rows:
                    if (found, cleared) == (code, clear):
                        return message
                self._changed.clear()
                await self._changed.wait()


@asynccontextmanager
async def journal(
    path: Path, epoch: str = "e1", bounds: JournalBounds = QUICK
) -> AsyncIterator[tuple[Journal, Notices, tuple[TurnRow, ...]]]:
    notices = Notices()
    made = Journal(path, epoch, notices, bounds)
    left = await made.open()
    try:
        yield made, notices, left
    finally:
        await made.close()


def run(test: Callable[[], object]) -> None:
    asyncio.run(test())  # type: ignore[arg-type]


def test_what_is_accepted_and_ended_is_on_the_disk(tmp_path: Path) -> None:
    async def story() -> None:
        path = tmp_path / "journal.sqlite3"
        async with journal(path) as (made, notices, left):
            assert left == ()
            assert await made.accept_turn(row("t1")) is True
            # Another connection sees it: it was committed before the answer.
            other = sqlite3.connect(path)
            assert other.execute("SELECT state FROM turns").fetchall() == [("accepted",)]
            other.close()
            made.append_items("t1", 0, [b'{"a":1}', b'{"b":2}'])
            made.add_calls([call(1), call(2)])
            made.add_calls([call(1, "ok")])
            assert not made.holds("t1")
            assert await made.end_turn(row("t1", "completed")) is True
            assert made.holds("t1")
            assert await made.items("t1") == [b'{"a":1}', b'{"b":2}']
            assert [(c.call, c.outcome) for c in await made.calls("t1")] == [("1", "ok"), ("2", "")]
            made.lose_calls("mcp:git", 1)
            assert await made.accept_turn(row("t2"))
            lost = (await made.calls("t1"))[1]
            assert (lost.outcome, lost.may_have_run) == ("worker_died", True)
            assert [r.turn for r in await made.turns(10)] == ["t2", "t1"]
            assert await made.turn("t1") == row("t1", "completed")
            assert await made.turn("no") is None
            assert notices.rows == []
        assert path.stat().st_mode & 0o777 == 0o600

    run(story)


def test_an_end_is_never_replaced_by_a_late_start_of_a_call(tmp_path: Path) -> None:
    async def story() -> None:
        async with journal(tmp_path / "j.sqlite3") as (made, _, _):
            made.add_calls([call(1, "ok"), call(1)])
            await made.accept_turn(row("t1"))
            assert [c.outcome for c in await made.calls("t1")] == ["ok"]

    run(story)


def test_many_calls_at_once_keep_their_order_and_their_ends(tmp_path: Path) -> None:
    async def story() -> None:
        async with journal(tmp_path / "j.sqlite3") as (made, _, _):
            # In one batch: starts with their ends, ends before a late start, starts alone.
            batch = [call(n) for n in range(60)]
            batch += [call(n, "ok") for n in range(0, 60, 2)]
            batch += [call(n, "timeout") for n in range(60, 100)]
            batch += [call(60), call(99)]
            made.add_calls(batch)
            await made.accept_turn(row("t1"))
            found = await made.calls("t1")
            assert [c.call for c in found] == [str(n) for n in range(100)]
            ends = ["" if n % 2 else "ok" for n in range(60)] + ["timeout"] * 40
            assert [c.outcome for c in found] == ends

    run(story)


def test_the_next_supervisor_finds_what_was_unfinished(tmp_path: Path) -> None:
    async def story() -> None:
        path = tmp_path / "j.sqlite3"
        async with journal(path) as (made, _, _):
            for turn in ("t1", "t2", "t3"):
                await made.accept_turn(row(turn))
            made.change_turn(row("t2", "running"))
            made.add_calls([call(1, turn="t2"), call(2, "ok", turn="t2")])
            await made.end_turn(row("t3", "failed"))
        async with journal(path, "e2") as (made, _, left):
            assert [(r.turn, r.state) for r in left] == [
                ("t1", "interrupted"),
                ("t2", "interrupted"),
            ]
            assert made.past == ("t1", "t2", "t3")
            states = {r.turn: (r.state, r.code) for r in await made.turns(10)}
            assert states["t1"] == states["t2"] == ("interrupted", "interrupted")
            assert states["t3"] == ("failed", "")
            calls = [(c.outcome, c.may_have_run) for c in await made.calls("t2")]
            assert calls == [("worker_died", True), ("ok", False)]
        async with journal(path, "e3") as (_, _, left):
            assert left == ()

    run(story)


KILLED = """
    import asyncio, os, signal, sys
    from pathlib import Path
    from interlock.supervisor.events.journal import Journal
    from interlock.supervisor.events.journalrows import TurnRow

    async def main():
        journal = Journal(Path(sys.argv[1]), "e1", lambda *a, **k: None)
        await journal.open()
        for n in range(20):
            assert await journal.accept_turn(TurnRow(turn=f"t{n}", agent="main"))
            journal.append_items(f"t{n}", 0, [b"{}"] * 50)
        for n in range(10):
            assert await journal.end_turn(TurnRow(turn=f"t{n}", agent="main", state="completed"))
        os.kill(os.getpid(), signal.SIGKILL)

    asyncio.run(main())
"""


def test_kill_in_the_middle_loses_no_acknowledged_row(tmp_path: Path) -> None:
    path = tmp_path / "j.sqlite3"
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(KILLED), str(path)], timeout=30, check=False
    )
    assert done.returncode == -signal.SIGKILL

    async def story() -> None:
        async with journal(path, "e2") as (made, notices, left):
            assert [r.turn for r in left] == [f"t{n}" for n in range(10, 20)]
            rows = {r.turn: r.state for r in await made.turns(100)}
            assert rows == {f"t{n}": "completed" if n < 10 else "interrupted" for n in range(20)}
            assert notices.rows == []

    run(story)


@pytest.mark.parametrize("damage", ["text", "header", "middle"])
def test_a_damaged_file_is_kept_and_a_new_one_begun(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "j.sqlite3"

    async def fill() -> None:
        async with journal(path) as (made, _, _):
            for n in range(50):
                await made.accept_turn(row(f"t{n}"))
                made.append_items(f"t{n}", 0, [b"x" * 2000])

    async def story() -> None:
        async with journal(path, "e2") as (made, notices, left):
            message = await notices.until("journal_damaged")
            assert left == ()
            assert await made.accept_turn(row("new"))
            assert [r.turn for r in await made.turns(9)] == ["new"]
            kept = [each for each in os.listdir(tmp_path) if ".damaged-" in each]
            assert any(each in message for each in kept)

    if damage == "text":
        path.write_bytes(b"this is no database, but long enough to look at" * 100)
    else:
        run(fill)
        data = bytearray(path.read_bytes())
        at = slice(0, 100) if damage == "header" else slice(4096, len(data))
        data[at] = os.urandom(len(data[at]))
        path.write_bytes(data)
    run(story)


def test_a_file_of_a_newer_version_is_kept(tmp_path: Path) -> None:
    async def story() -> None:
        path = tmp_path / "j.sqlite3"
        newer = sqlite3.connect(path)
        newer.execute("PRAGMA user_version = 99")
        newer.close()
        async with journal(path) as (made, notices, _):
            assert "newer Interlock" in await notices.until("journal_damaged")
            assert await made.accept_turn(row("t1"))

    run(story)


def test_a_folder_that_cannot_be_written_does_not_stop_turns(tmp_path: Path) -> None:
    async def story() -> None:
        folder = tmp_path / "later"
        async with journal(folder / "j.sqlite3") as (made, notices, left):
            assert left == ()
            message = await notices.until("journal_full")
            assert "in memory" in message
            assert made.degraded
            assert await made.accept_turn(row("t1")) is False
            made.append_items("t1", 0, [b"{}"])
            assert await made.end_turn(row("t1", "completed")) is False
            assert not made.holds("t1")
            assert await made.turns(5) == []
            folder.mkdir()
            await notices.until("journal_full", clear=True)
            assert made.holds("t1")
            assert await made.turn("t1") == row("t1", "completed")
            assert await made.items("t1") == [b"{}"]
            assert await made.accept_turn(row("t2")) is True

    run(story)


def test_a_file_that_another_program_has_locked_is_no_full_disk(tmp_path: Path) -> None:
    async def story() -> None:
        path = tmp_path / "j.sqlite3"
        async with journal(path) as (made, notices, _):
            await made.accept_turn(row("t1"))
            other = sqlite3.connect(path, isolation_level=None)
            try:
                other.execute("BEGIN IMMEDIATE")
                waiting = made.accept_turn(row("t2"))
                message = await notices.until("journal_full")
                assert "locked by another program" in message
                assert await waiting is False
            finally:
                other.close()
            await notices.until("journal_full", clear=True)
            assert await made.turn("t2") == row("t2")

    run(story)


def test_damage_while_running_is_survived(tmp_path: Path) -> None:
    async def story() -> None:
        path = tmp_path / "j.sqlite3"
        async with journal(path) as (made, notices, _):
            await made.accept_turn(row("t1"))
            await made.end_turn(row("t1", "completed"))
            assert made.holds("t1")
            for name in os.listdir(tmp_path):
                part = tmp_path / name
                part.write_bytes(b"\xa5" * max(part.stat().st_size, 8192))
            assert await made.accept_turn(row("t2")) is False
            await notices.until("journal_damaged")
            await notices.until("journal_full", clear=True)
            assert not made.holds("t1")
            assert [r.turn for r in await made.turns(5)] == ["t2"]

    run(story)


def test_what_is_overwritten_right_after_the_open_is_seen_by_the_first_looks(
    tmp_path: Path,
) -> None:
    path = tmp_path / "j.sqlite3"

    async def fill() -> None:
        async with journal(path) as (made, _, _):
            for n in range(50):
                await made.accept_turn(row(f"t{n}", text="x" * 2000))

    async def story() -> None:
        async with journal(path) as (made, notices, _):
            with path.open("r+b") as file:
                file.seek(16_384)
                file.write(b"\xa5" * (os.fstat(file.fileno()).st_size - 16_384))
            made.look()
            made.look()
            await notices.until("journal_damaged")

    run(fill)
    run(story)


def test_old_turns_go_and_the_newest_stay(tmp_path: Path) -> None:
    async def story() -> None:
        bounds = JournalBounds(turns=5, calls=3, prune_every=1, linger=0.0)
        async with journal(tmp_path / "j.sqlite3", bounds=bounds) as (made, _, _):
            await made.accept_turn(row("live"))
            made.add_calls([call(n, "ok", turn="") for n in range(20)])
            for n in range(20):
                made.append_items(f"t{n}", 0, [b"{}"])
                made.add_calls([call(100 + n, "ok", turn=f"t{n}")])
                await made.accept_turn(row(f"t{n}"))
                await made.end_turn(row(f"t{n}", "completed"))
            await made.accept_turn(row("last"))
            names = [r.turn for r in await made.turns(100)]
            assert names == ["last", "t19", "t18", "t17", "t16", "t15", "live"]
            assert await made.items("t3") == [] and await made.items("t19") == [b"{}"]
            assert await made.calls("t3") == [] and len(await made.calls("t19")) == 1
            assert len(await made.calls("")) <= 3

    run(story)


def test_size_is_bounded_too(tmp_path: Path) -> None:
    async def story() -> None:
        bounds = JournalBounds(size=50_000, prune_every=1, linger=0.0)
        async with journal(tmp_path / "j.sqlite3", bounds=bounds) as (made, _, _):
            for n in range(10):
                await made.accept_turn(row(f"t{n}"))
                made.append_items(f"t{n}", 0, [b"x" * 20_000])
                await made.end_turn(row(f"t{n}", "completed"))
            await made.accept_turn(row("last"))
            assert [r.turn for r in await made.turns(100)] == ["last", "t9", "t8"]

    run(story)


def test_one_value_that_cannot_be_stored_keeps_nothing_else_out(tmp_path: Path) -> None:
    async def story() -> None:
        async with journal(tmp_path / "j.sqlite3") as (made, notices, _):
            made.append_items("bad", 2**70, [b"{}"])
            made.append_items("t1", 0, [b"{}"])
            assert await made.accept_turn(row("t1"))
            assert await made.items("t1") == [b"{}"]
            assert notices.rows == []

    run(story)


def test_a_backlog_beyond_its_bound_gives_up_the_oldest_items_and_says_so(tmp_path: Path) -> None:
    async def story() -> None:
        folder = tmp_path / "later"
        bounds = JournalBounds(retry=0.05, backlog=100_000)
        async with journal(folder / "j.sqlite3", bounds=bounds) as (made, notices, _):
            for n in range(10):
                made.accept_turn(row(f"t{n}"))
                made.append_items(f"t{n}", 0, [b"x" * 20_000])
                made.end_turn(row(f"t{n}", "completed"))
            await notices.until("journal_items_lost")
            folder.mkdir()
            await notices.until("journal_full", clear=True)
            assert len(await made.turns(100)) == 10
            assert await made.items("t0") == []
            assert await made.items("t9") == [b"x" * 20_000]
            assert made.holds("t0")

    run(story)


def test_nothing_is_written_or_read_after_the_close(tmp_path: Path) -> None:
    async def story() -> None:
        async with journal(tmp_path / "j.sqlite3") as (made, _, _):
            made.append_items("t1", 0, [b"{}"])
        assert await made.accept_turn(row("t1")) is False
        with pytest.raises(JournalError):
            await made.turns(1)
        async with journal(tmp_path / "j.sqlite3", "e2") as (again, _, _):
            assert await again.items("t1") == [b"{}"]

    run(story)


def test_the_loop_goes_on_while_the_disk_is_slow(tmp_path: Path) -> None:
    """Somebody holds the database: commits wait in their thread, the answer comes in time."""

    async def story() -> None:
        path = tmp_path / "j.sqlite3"
        bounds = JournalBounds(commit=0.05, retry=0.05)
        async with journal(path, bounds=bounds) as (made, notices, _):
            holder = sqlite3.connect(path, isolation_level=None)
            holder.execute("BEGIN IMMEDIATE")
            assert await made.accept_turn(row("t1")) is False
            assert notices.rows[0][0] == "journal_slow"
            holder.execute("COMMIT")
            holder.close()
            await notices.until("journal_slow", clear=True)
            assert await made.turn("t1") is not None

    run(story)


def test_a_disk_that_is_known_to_be_slow_is_waited_for_once_and_again_when_it_is_quick(
    tmp_path: Path,
) -> None:
    """Each turn waited twice for its two seconds, for as long as the disk was slow."""

    async def story() -> None:
        path = tmp_path / "j.sqlite3"
        bounds = JournalBounds(commit=0.5, quick=0.2, retry=0.05)
        async with journal(path, bounds=bounds) as (made, notices, _):
            holder = sqlite3.connect(path, isolation_level=None)
            holder.execute("BEGIN IMMEDIATE")
            assert await made.accept_turn(row("t0")) is False
            begun = time.monotonic()
            for n in range(10):
                assert await made.accept_turn(row(f"t{n}")) is False
                assert await made.end_turn(row(f"t{n}", "completed")) is False
            assert await made.put_approval(approval("a1")) is False
            assert time.monotonic() - begun < bounds.commit
            assert [(code, clear) for code, clear, _ in notices.rows] == [("journal_slow", False)]
            assert "do not wait for it" in notices.rows[0][2]
            holder.execute("COMMIT")
            holder.close()
            # Those commits were late, so nobody knows yet; and no turn comes to show it.
            await notices.until("journal_slow", clear=True)
            assert await made.accept_turn(row("t10")) is True
            assert {found.state for found in await made.turns(20)} == {"completed", "accepted"}
            assert len(await made.turns(20)) == 11

    run(story)


def test_what_a_disk_that_hangs_did_not_take_is_said_at_the_end(tmp_path: Path) -> None:
    async def story() -> None:
        path = tmp_path / "j.sqlite3"
        bounds = JournalBounds(commit=0.05, close=0.05)
        async with journal(path, bounds=bounds) as (made, _, _):
            assert await made.accept_turn(row("t1")) is True
            assert await made.end_turn(row("t1", "completed")) is True
            holder = sqlite3.connect(path, isolation_level=None)
            holder.execute("BEGIN IMMEDIATE")
            assert await made.accept_turn(row("t2")) is False
            made.add_calls([call(1, turn="t2"), call(1, "ok", turn="t2")])
            await made.put_approval(approval("a1"))
            assert await made.end_turn(row("t3", "failed")) is False
            await made.close()
            assert made.not_kept() == (
                "Not kept of this run: all or part of 2 turns, 1 approval, 1 call. The disk of the "
                "journal did not answer in time."
            )
            holder.close()

    run(story)


def test_a_journal_that_opens_again_while_nothing_happens_says_no_more_that_it_cannot(
    tmp_path: Path,
) -> None:
    async def story() -> None:
        folder = tmp_path / "later"
        async with journal(folder / "j.sqlite3") as (made, notices, _):
            await notices.until("journal_full")
            folder.mkdir()
            await notices.until("journal_full", clear=True)
            assert not made.degraded

    run(story)


def test_a_flood_of_call_reports_is_dropped_and_not_the_items_of_turns(tmp_path: Path) -> None:
    async def story() -> None:
        folder = tmp_path / "later"
        bounds = JournalBounds(retry=0.05, call_backlog=3_000)
        async with journal(folder / "j.sqlite3", bounds=bounds) as (made, notices, _):
            made.append_items("t1", 0, [b"{}"])
            for n in range(100):
                made.add_calls([call(n)])
            assert made.dropped_calls == 89
            folder.mkdir()
            await notices.until("journal_full", clear=True)
            assert await made.items("t1") == [b"{}"]
            assert len(await made.calls("t1")) == 11

    run(story)


def test_a_disk_that_stays_full_does_not_fill_the_memory(tmp_path: Path) -> None:
    """The journal is not open, which is what a disk that refuses everything is like."""

    async def run() -> None:
        bounds = JournalBounds(backlog=4000, retry=0.05)
        made = Journal(tmp_path / "j.sqlite3", "e1", Notices(), bounds)
        made.accept_turn(row("t1"))
        made.append_items("t1", 0, [b"x" * 3000])
        made.end_turn(row("t1", "completed"))
        assert not made.holds("t1") and not made.overfull
        made.append_items("t2", 0, [b"x" * 3000])
        assert made.holds("t1"), "its items were given up, so memory may forget it"
        for number in range(20):
            made.accept_turn(row(f"n{number}"))
        assert made.overfull

    asyncio.run(run())


def test_calls_and_approvals_are_bounded_without_any_turn(tmp_path: Path) -> None:
    async def story() -> None:
        bounds = JournalBounds(calls=3, prune_calls=10, linger=0.0)
        async with journal(tmp_path / "j.sqlite3", bounds=bounds) as (made, _, _):
            made.add_calls([call(n, "ok", turn="") for n in range(20)])
            for _ in range(2):  # the second is written when what follows the first is done
                await made.put_approval(approval("a"))
            assert len(await made.calls("")) == 3
            for n in range(20):
                await made.put_approval(approval(str(n)))
            assert len(await made.approvals(100)) < 15

    run(story)


def test_the_close_waits_for_no_read_that_the_disk_holds_up(tmp_path: Path) -> None:
    async def story() -> None:
        held = threading.Event()
        made = Journal(tmp_path / "j.sqlite3", "e1", Notices(), JournalBounds(close=0.05))
        await made.open()
        assert made._reader is not None
        made._reader.submit(held.wait)
        try:
            async with asyncio.timeout(10):
                await made.close()
        finally:
            held.set()

    run(story)


def test_a_list_of_turns_with_long_texts_is_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journalfile, "MAX_TEXTS", 2500)

    async def story() -> None:
        async with journal(tmp_path / "j.sqlite3") as (made, _, _):
            for number in range(10):
                long = msgspec.structs.replace(row(f"t{number}"), text="x" * 1000)
                assert await made.accept_turn(long)
            assert [one.turn for one in await made.turns(100)] == ["t9", "t8", "t7"]
            assert [one.turn for one in await made.turns(2)] == ["t9", "t8"]

    run(story)
