"""The SQLite file of the journal: schema, transactions, queries; no threads and no queue."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import time
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import Final

from interlock.bus.errors import JournalError
from interlock.bus.regular import regular
from interlock.bus.remedies import disk_remedy, place_of
from interlock.supervisor.events.journalrows import (
    UNFINISHED,
    AddItems,
    ApprovalRow,
    CallRow,
    LoseCalls,
    Operation,
    PutApproval,
    PutCalls,
    PutTurn,
    TurnRow,
)

SCHEMA: Final = 2
"""Number of the schema below, in the file's user_version."""
CHECKED_BYTES: Final = 64 << 20
"""Files up to this size are checked page by page when opened."""
MAX_TEXTS: Final = 16 << 20
"""Characters of turns' texts in one list of turns."""
BUSY_SECONDS: Final = 2.0
_LOCKED: Final = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
_DAMAGED: Final = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
_REMEDIES: Final = {
    sqlite3.SQLITE_FULL: "Free some space on the disk that has the journal",
    sqlite3.SQLITE_READONLY: "Make the journal's files and folder writable for this user",
    sqlite3.SQLITE_PERM: "Make the journal's files and folder writable for this user",
    sqlite3.SQLITE_CANTOPEN: "Make the journal's files and folder writable for this user",
    sqlite3.SQLITE_IOERR: (
        "Free some space on the journal's disk, allow larger files (`ulimit -f`), or look what "
        "ails that disk"
    ),
}
"""What SQLite does not say more of. A read-only file system shows when the file is opened anew."""
_CREATE: Final = """
CREATE TABLE turns (
  id INTEGER PRIMARY KEY AUTOINCREMENT, turn TEXT NOT NULL UNIQUE, epoch TEXT NOT NULL,
  agent TEXT NOT NULL, session TEXT NOT NULL, state TEXT NOT NULL, text TEXT NOT NULL,
  started REAL, ended REAL, code TEXT NOT NULL, message TEXT NOT NULL,
  unattended INTEGER NOT NULL, bytes INTEGER NOT NULL DEFAULT 0);
CREATE TABLE items (
  turn TEXT NOT NULL, offset INTEGER NOT NULL, body BLOB NOT NULL, PRIMARY KEY (turn, offset));
CREATE TABLE calls (
  id INTEGER PRIMARY KEY AUTOINCREMENT, epoch TEXT NOT NULL, worker TEXT NOT NULL,
  generation INTEGER NOT NULL, call TEXT NOT NULL, capability TEXT NOT NULL, caller TEXT NOT NULL,
  turn TEXT NOT NULL, outcome TEXT NOT NULL, duration_ms REAL, started REAL,
  may_have_run INTEGER NOT NULL, UNIQUE (epoch, worker, generation, call));
CREATE INDEX calls_of_turn ON calls (turn);
CREATE INDEX unfinished_calls ON calls (outcome) WHERE outcome = '';
"""
_CREATE_APPROVALS: Final = """
CREATE TABLE approvals (
  n INTEGER PRIMARY KEY AUTOINCREMENT, epoch TEXT NOT NULL, id TEXT NOT NULL, turn TEXT NOT NULL,
  agent TEXT NOT NULL, caller TEXT NOT NULL, capability TEXT NOT NULL, arguments TEXT NOT NULL,
  digest TEXT NOT NULL, reason TEXT NOT NULL, asked REAL, outcome TEXT NOT NULL,
  decider TEXT NOT NULL, decided REAL, UNIQUE (epoch, id));
CREATE INDEX approvals_of_turn ON approvals (turn);
"""
_PUT_APPROVAL: Final = """
INSERT INTO approvals (epoch, id, turn, agent, caller, capability, arguments, digest, reason, asked,
  outcome, decider, decided) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (epoch, id) DO UPDATE SET outcome = excluded.outcome, decider = excluded.decider,
  decided = excluded.decided WHERE approvals.outcome = ''
"""
_PUT_TURN: Final = """
INSERT INTO turns (turn, epoch, agent, session, state, text, started, ended, code, message,
  unattended) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (turn) DO UPDATE SET state = excluded.state, ended = excluded.ended,
  code = excluded.code, message = excluded.message
"""
_CALLS_AT_ONCE: Final = 50
"""Rows of one statement: a statement for each row would take more than half as long again."""


def _put_calls(rows: int) -> str:
    marks = ", ".join(["(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"] * rows)
    return f"""
INSERT INTO calls (epoch, worker, generation, call, capability, caller, turn, outcome, duration_ms,
  started, may_have_run) VALUES {marks}
ON CONFLICT (epoch, worker, generation, call) DO UPDATE SET outcome = excluded.outcome,
  duration_ms = excluded.duration_ms, may_have_run = excluded.may_have_run
  WHERE excluded.outcome != ''
"""


_PUT_CALL: Final = _put_calls(1)
_PUT_CALLS: Final = _put_calls(_CALLS_AT_ONCE)
_TURN_COLUMNS: Final = (
    "turn, agent, session, state, text, started, ended, code, message, unattended, epoch"
)
_CALL_COLUMNS: Final = (
    "worker, generation, call, capability, caller, turn, outcome, duration_ms, started, "
    "may_have_run, epoch"
)
_APPROVAL_COLUMNS: Final = (
    "id, turn, agent, caller, capability, arguments, digest, reason, asked, outcome, decider, "
    "decided"
)


class DamagedJournalError(JournalError):
    """The file is no journal that can be used: corrupt, or written by a newer version."""

    code = "journal_damaged"


class LockedJournalError(JournalError):
    """Another program holds the lock of the file."""

    code = "journal_locked"


def translate(error: Exception) -> JournalError:
    """The error of ours for one of SQLite's or of the file system's."""
    code = getattr(error, "sqlite_errorcode", 0) or 0
    if (code & 0xFF) in _DAMAGED:
        return DamagedJournalError(f"The journal file is damaged ({error}).")
    if (code & 0xFF) in _LOCKED:
        return LockedJournalError("The journal's file is locked by another program.")
    if isinstance(error, OSError):
        fix = disk_remedy(error.errno, place_of(error, "the journal"))
    else:
        fix = _REMEDIES.get(code & 0xFF, "")
    return JournalError(f"The journal cannot be written ({error}).", fix=fix)


def is_bad_row(error: Exception) -> bool:
    """Whether an error comes from the values of one row and not from the file or the disk."""
    rows = (sqlite3.IntegrityError, sqlite3.DataError, sqlite3.InterfaceError)
    return isinstance(error, (*rows, sqlite3.ProgrammingError, ValueError, OverflowError))


def connect(path: Path) -> sqlite3.Connection:
    """Open the file for writing, create or migrate it.

    Raises JournalError when the disk does not allow it, DamagedJournalError when the file itself is
    the problem and has to be moved aside.
    """
    connection: sqlite3.Connection | None = None
    try:
        os.close(regular(path, os.O_CREAT | os.O_RDWR))
        connection = sqlite3.connect(path, timeout=BUSY_SECONDS, isolation_level=None)
        _prepare(connection, path)
    except (sqlite3.Error, OSError) as error:
        close(connection)
        raise translate(error) from error
    except JournalError:
        close(connection)
        raise
    return connection


def place(path: Path) -> tuple[int, int]:
    """Which files now have the names of the journal and of its log; 0 for none."""
    found = []
    for name in (path, path.with_name(f"{path.name}-wal")):
        try:
            found.append(name.stat().st_ino)
        except OSError:
            found.append(0)
    return found[0], found[1]


def moved(path: Path, before: tuple[int, int]) -> bool:
    """Whether a file that was at its place, as `place` said, is not there any more."""
    return any(old and old != now for old, now in zip(before, place(path), strict=True))


def write_anew(connection: sqlite3.Connection, path: Path) -> Path:
    """Copy all that an open journal has to a new file; returns that, not yet at its place.

    What was removed is still there as long as it is open. Raises what SQLite raises, and OSError.
    """
    fresh = path.with_name(f".{path.name}.new")
    fresh.unlink(missing_ok=True)
    os.close(os.open(fresh, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o600))
    target = sqlite3.connect(fresh)
    try:
        connection.backup(target)
    finally:
        target.close()
    return fresh


def put_in_place(fresh: Path, path: Path, before: tuple[int, int]) -> None:
    """Give a copy its name; a stranger that has it by now is kept beside it. Raises OSError."""
    if place(path)[0] not in (0, before[0]):
        path.rename(path.with_name(f"{path.stem}.replaced-{int(time.time())}{path.suffix}"))
    for suffix in ("-wal", "-shm"):  # of the removed one; SQLite would take them for the new one's
        path.with_name(path.name + suffix).unlink(missing_ok=True)
    fresh.rename(path)


def close(connection: sqlite3.Connection | None) -> None:
    """Close a connection, whatever state its file is in."""
    if connection is not None:
        try:
            connection.close()
        except sqlite3.Error:
            return


def _prepare(connection: sqlite3.Connection, path: Path) -> None:
    connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
    version = int(connection.execute("PRAGMA user_version").fetchone()[0])
    if version > SCHEMA:
        raise DamagedJournalError(
            f"The journal was written by a newer Interlock (schema {version}, this one has "
            f"{SCHEMA})."
        )
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = NORMAL")
    connection.execute("PRAGMA journal_size_limit = 16777216")
    if path.stat().st_size <= CHECKED_BYTES:
        found = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
        if found != "ok":
            raise DamagedJournalError(f"The journal file is damaged ({found}).")
    if version < SCHEMA:
        create(connection, version)


def create(connection: sqlite3.Connection, version: int = 0) -> None:
    """Make the tables that a file of that schema lacks. Raises what SQLite raises."""
    missing = _CREATE_APPROVALS if version else _CREATE + _CREATE_APPROVALS
    connection.executescript(f"BEGIN;{missing}PRAGMA user_version = {SCHEMA};COMMIT;")


def interrupt(connection: sqlite3.Connection, epoch: str, now: float) -> tuple[TurnRow, ...]:
    """End what an earlier supervisor left unfinished; returns those turns, oldest first."""
    marks = ", ".join("?" * len(UNFINISHED))
    with _transaction(connection, durable=True):
        found = connection.execute(
            f"SELECT {_TURN_COLUMNS} FROM turns WHERE state IN ({marks}) AND epoch != ? "
            "ORDER BY id",
            (*UNFINISHED, epoch),
        ).fetchall()
        connection.execute(
            "UPDATE turns SET state = 'interrupted', code = 'interrupted', ended = ? "
            f"WHERE state IN ({marks}) AND epoch != ?",
            (now, *UNFINISHED, epoch),
        )
        connection.execute(
            "UPDATE calls SET outcome = 'worker_died', may_have_run = 1 "
            "WHERE outcome = '' AND epoch != ?",
            (epoch,),
        )
        connection.execute(
            "UPDATE approvals SET outcome = 'withdrawn', decided = ? "
            "WHERE outcome = '' AND epoch != ?",
            (now, epoch),
        )
    return tuple(_turn(row, epoch) for row in found)


def ids(connection: sqlite3.Connection) -> tuple[str, ...]:
    """The ids of all turns, oldest first. Raises what SQLite raises."""
    rows = connection.execute("SELECT turn FROM turns ORDER BY id").fetchall()
    return tuple(str(row[0]) for row in rows)


def apply(
    connection: sqlite3.Connection, epoch: str, operations: Sequence[Operation], *, durable: bool
) -> None:
    """Apply operations in one transaction: all or none. Raises what SQLite raises.

    Without operations something is written all the same, to see whether that can be done.
    """
    with _transaction(connection, durable=durable):
        if not operations:
            connection.execute(f"PRAGMA user_version = {SCHEMA}")
        for operation in operations:
            _apply_one(connection, epoch, operation)


def _apply_one(connection: sqlite3.Connection, epoch: str, operation: Operation) -> None:
    match operation:
        case PutTurn(row):
            connection.execute(
                _PUT_TURN,
                (
                    *(row.turn, epoch, row.agent, row.session, row.state, row.text, row.started),
                    *(row.ended, row.code, row.message, row.unattended),
                ),
            )
        case PutApproval(row):
            connection.execute(
                _PUT_APPROVAL,
                (
                    *(epoch, row.id, row.turn, row.agent, row.caller, row.capability),
                    *(row.arguments, row.digest, row.reason, row.asked, row.outcome, row.by),
                    row.decided,
                ),
            )
        case AddItems(turn, offset, items):
            connection.executemany(
                "INSERT OR IGNORE INTO items (turn, offset, body) VALUES (?, ?, ?)",
                [(turn, offset + n, item) for n, item in enumerate(items)],
            )
            connection.execute(
                "UPDATE turns SET bytes = bytes + ? WHERE turn = ?", (sum(map(len, items)), turn)
            )
        case PutCalls(calls):
            whole = len(calls) - len(calls) % _CALLS_AT_ONCE
            for n in range(0, whole, _CALLS_AT_ONCE):
                values: list[object] = []
                for call in calls[n : n + _CALLS_AT_ONCE]:
                    values += _values(epoch, call)
                connection.execute(_PUT_CALLS, values)
            connection.executemany(_PUT_CALL, [_values(epoch, call) for call in calls[whole:]])
        case LoseCalls(worker, generation):
            connection.execute(
                "UPDATE calls SET outcome = 'worker_died', may_have_run = 1 WHERE outcome = '' "
                "AND epoch = ? AND worker = ? AND generation = ?",
                (epoch, worker, generation),
            )


def _values(epoch: str, call: CallRow) -> tuple[object, ...]:
    return (
        epoch,
        call.worker,
        call.generation,
        call.call,
        call.capability,
        call.caller,
        call.turn,
        call.outcome,
        call.duration_ms,
        call.started,
        call.may_have_run,
    )


def prune(connection: sqlite3.Connection, *, turns: int, size: int, calls: int) -> None:
    """Forget the oldest ended turns beyond `turns` or `size` bytes, and what belongs to no turn.

    Of calls and of approvals without a turn the newest `calls` stay, and the newest ended turn
    always does. Raises what SQLite raises.
    """
    with _transaction(connection, durable=False):
        kept = total = 0
        gone = []
        rows = connection.execute(
            "SELECT turn, bytes + length(text) FROM turns WHERE state NOT IN (?, ?) "
            "ORDER BY id DESC",
            UNFINISHED,
        )
        for turn, held in rows.fetchall():
            kept += 1
            total += held
            if kept > 1 and (kept > turns or total > size):
                gone.append((turn,))
        for table in ("items", "calls", "approvals", "turns"):
            connection.executemany(f"DELETE FROM {table} WHERE turn = ?", gone)
        connection.execute(
            "DELETE FROM calls WHERE turn = '' AND id <= (SELECT max(id) FROM calls) - ?", (calls,)
        )
        connection.execute(
            "DELETE FROM approvals WHERE turn = '' AND outcome != '' "
            "AND n <= (SELECT max(n) FROM approvals) - ?",
            (calls,),
        )
    connection.execute("PRAGMA incremental_vacuum(4096)").fetchall()


class _transaction:  # noqa: N801 - reads as a statement
    """Begin and commit, or roll back; `durable`: on the disk when the block is left."""

    def __init__(self, connection: sqlite3.Connection, *, durable: bool) -> None:
        self._connection = connection
        self._durable = durable

    def __enter__(self) -> None:
        # In WAL mode FULL syncs the log at each commit, and with it everything before.
        level = "FULL" if self._durable else "NORMAL"
        self._connection.execute(f"PRAGMA synchronous = {level}")
        self._connection.execute("BEGIN IMMEDIATE")

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self._connection.execute("COMMIT")
        elif self._connection.in_transaction:
            try:
                self._connection.execute("ROLLBACK")
            except sqlite3.Error:
                return


def read_turns(path: Path, epoch: str, limit: int) -> list[TurnRow]:
    """The newest turns, newest first, as far as their texts have `MAX_TEXTS` characters.

    Raises what SQLite raises.
    """
    query = f"SELECT {_TURN_COLUMNS} FROM turns ORDER BY id DESC LIMIT ?"
    turns = []
    size = 0
    with contextlib.closing(_rows(path, query, (limit,))) as rows:
        for row in rows:
            turns.append(_turn(row, epoch))
            size += len(turns[-1].text)
            if size > MAX_TEXTS:
                break
    return turns


def read_turn(path: Path, epoch: str, turn: str) -> TurnRow | None:
    """One turn. Raises what SQLite raises."""
    rows = _read(path, f"SELECT {_TURN_COLUMNS} FROM turns WHERE turn = ?", (turn,))
    return _turn(rows[0], epoch) if rows else None


def read_items(path: Path, turn: str) -> list[bytes]:
    """The items of a turn up to the first gap. Raises what SQLite raises."""
    rows = _read(path, "SELECT offset, body FROM items WHERE turn = ? ORDER BY offset", (turn,))
    items = []
    for n, (offset, body) in enumerate(rows):
        if n != offset:
            break
        items.append(body if isinstance(body, bytes) else b"{}")
    return items


def read_calls(path: Path, epoch: str, turn: str) -> list[CallRow]:
    """The calls of a turn, oldest first. Raises what SQLite raises."""
    rows = _read(path, f"SELECT {_CALL_COLUMNS} FROM calls WHERE turn = ? ORDER BY id", (turn,))
    return [_call(row, epoch) for row in rows]


def read_approvals(path: Path, turn: str, limit: int) -> list[ApprovalRow]:
    """The newest approvals of a turn, or with an empty `turn` of all; the newest first.

    Raises what SQLite raises.
    """
    where, values = ("WHERE turn = ? ", (turn,)) if turn else ("", ())
    query = f"SELECT {_APPROVAL_COLUMNS} FROM approvals {where}ORDER BY n DESC LIMIT ?"
    return [_approval(row) for row in _read(path, query, (*values, limit))]


def _read(path: Path, query: str, values: tuple[object, ...]) -> list[tuple[object, ...]]:
    return list(_rows(path, query, values))


def _rows(
    path: Path, query: str, values: tuple[object, ...]
) -> Generator[tuple[object, ...], None, None]:
    # A connection for each read: reads are rare, and the writer may have begun a new file.
    if not path.exists():
        return
    connection = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, timeout=2.0)
    try:
        yield from connection.execute(query, values)
    finally:
        connection.close()


def _turn(row: Sequence[object], epoch: str) -> TurnRow:
    turn, agent, session, state, text, started, ended, code, message, unattended, owner = row
    left = owner != epoch and state in UNFINISHED
    return TurnRow(
        turn=str(turn),
        agent=str(agent),
        session=str(session),
        state="interrupted" if left else str(state),
        text=str(text),
        started=_number(started) or 0.0,
        ended=_number(ended),
        code="interrupted" if left else str(code),
        message=str(message),
        unattended=bool(unattended),
    )


def _call(row: Sequence[object], epoch: str) -> CallRow:
    worker, generation, call, capability, caller, turn, outcome, ms, started, may, owner = row
    left = owner != epoch and not outcome
    return CallRow(
        worker=str(worker),
        generation=int(_number(generation) or 0),
        call=str(call),
        capability=str(capability),
        caller=str(caller),
        turn=str(turn),
        outcome="worker_died" if left else str(outcome),
        duration_ms=_number(ms) or 0.0,
        started=_number(started) or 0.0,
        may_have_run=left or bool(may),
    )


def _approval(row: Sequence[object]) -> ApprovalRow:
    id_, turn, agent, caller, capability, arguments, digest, reason, asked, outcome, by, end = row
    return ApprovalRow(
        id=str(id_),
        turn=str(turn),
        agent=str(agent),
        caller=str(caller),
        capability=str(capability),
        arguments=str(arguments),
        digest=str(digest),
        reason=str(reason),
        asked=_number(asked) or 0.0,
        outcome=str(outcome),
        by=str(by),
        decided=_number(end),
    )


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, (int, float)) else None


def move_aside(path: Path, stamp: int) -> Path:
    """Rename a damaged journal and its log so that it is kept; returns the new name.

    Raises OSError if the folder cannot be written.
    """
    kept = path.with_name(f"{path.stem}.damaged-{stamp}{path.suffix}")
    for suffix in ("-wal", "-shm", ""):
        part = path.with_name(path.name + suffix)
        if part.exists():
            part.rename(kept.with_name(kept.name + suffix))
    return kept
