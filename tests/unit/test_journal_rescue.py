"""What can still be read of a journal whose file somebody wrote into."""

from __future__ import annotations

import contextlib
import os
import sqlite3
from pathlib import Path

from interlock.supervisor.events import journalfile
from interlock.supervisor.events.journalrescue import Look, is_whole, rescue
from interlock.supervisor.events.journalrows import PutTurn, TurnRow

TURNS = 400


def filled(path: Path) -> None:
    """A journal of many turns, all of it in the file."""
    connection = journalfile.connect(path)
    rows = [
        PutTurn(TurnRow(turn=f"{n:032x}", agent="main", state="completed", text="x" * 2_000))
        for n in range(TURNS)
    ]
    journalfile.apply(connection, "e", rows, durable=True)
    connection.close()


def overwrite(path: Path, begin: float, size: int) -> None:
    with path.open("r+b") as file:
        file.seek(int(os.fstat(file.fileno()).st_size * begin))
        file.write(b"\xa5" * size)


def test_rows_on_both_sides_of_the_damage_are_saved(tmp_path: Path) -> None:
    path = tmp_path / "journal.sqlite3"
    filled(path)
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("SELECT count(*) FROM sqlite_master").fetchall()
        assert is_whole(path)
        overwrite(path, 0.5, 40_960)
        assert not is_whole(path)
        fresh, whole = rescue(connection, path)
    assert not whole and is_whole(fresh)
    saved = {row.turn for row in journalfile.read_turns(fresh, "e", TURNS)}
    assert len(saved) > TURNS // 2
    assert {f"{0:032x}", f"{TURNS - 1:032x}"} <= saved


def test_a_file_is_read_through_only_after_somebody_wrote(tmp_path: Path) -> None:
    path = tmp_path / "journal.sqlite3"
    filled(path)
    look, inode = Look(path), path.stat().st_ino
    assert not look.doubtful(1, inode) and not look.doubtful(1, inode)
    overwrite(path, 0.5, 10)
    os.utime(path, ns=(1, 1))
    assert not look.doubtful(2, inode)  # the owner wrote, too
    assert look.doubtful(2, inode) and not look.doubtful(2, inode)
    overwrite(path, 0.0, 10)
    assert not look.doubtful(3, inode + 1) and look.doubtful(3, inode)
    path.unlink()
    assert not look.doubtful(3, inode) and is_whole(path)
    look.close()


def test_a_file_that_is_the_journal_no_more_is_not_kept_open(tmp_path: Path) -> None:
    path, before = tmp_path / "journal.sqlite3", len(os.listdir("/proc/self/fd"))
    look = Look(path)
    for n in range(5):
        filled(path)
        path.rename(tmp_path / f"old{n}")
        path.write_bytes((tmp_path / f"old{n}").read_bytes())
        look.doubtful(1, path.stat().st_ino)
    assert len(os.listdir("/proc/self/fd")) == before + 1
    look.close()
    assert len(os.listdir("/proc/self/fd")) == before
