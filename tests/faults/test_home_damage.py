"""What somebody removes or damages in the home of a running supervisor: made again, or said."""

from __future__ import annotations

import os
import shutil
import signal
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from breaking import GOOD, Busy, innocent, ready, reported, run, spawner_of
from fault_rig import assert_gone, until
from supervised import Supervised, rogue_toml, timing

from interlock.bus import procfs
from interlock.bus.client import Client
from interlock.bus.endpoints import Home, HomeLock, lock_holder, read_connection

BOTH = ("agent:main", "mcp:good")


@pytest.fixture(scope="module")
def interlock(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Supervised]:
    often = timing(ping=0.2, ping_misses=100)  # whoever looks at each ping is the first to look
    with Supervised(tmp_path_factory.mktemp("damage"), often + GOOD) as running:
        ready(running, *BOTH)
        yield running


def sentence(result: tuple[int, str, str], code: int) -> str:
    assert result[0] == code and len(result[2].strip().splitlines()) == 1, result
    return result[2].strip()


def stopped(pid: int) -> Callable[[], bool]:
    """Send SIGSTOP and tell whether the process has stopped."""
    os.kill(pid, signal.SIGSTOP)
    return lambda: (procfs.stat(pid) or (" ",))[0] == "T"


def whole_turn(interlock: Supervised, text: str) -> str:
    """Run a turn to its end; its id."""
    items = list(interlock.client.turn(text))
    assert items[-1]["type"] == "turn.completed"
    return str(items[0]["turn"])


def forged(home: Home, **fields: object) -> bytes:
    """A connection file that does not say when its process started."""
    document = msgspec.json.decode(home.connection_file.read_bytes()) | fields
    del document["start"], document["boot_id"]
    return msgspec.json.encode(document)


@pytest.mark.parametrize("damage", [None, b"", b"{]", b"[" * 20_000, "forged"])
def test_the_connection_file_comes_back(interlock: Supervised, damage: bytes | str | None) -> None:
    """connection.json deleted or damaged: commands say who runs, and soon it is as it was."""
    home = interlock.home
    before = home.connection_file.read_bytes()
    until(stopped(interlock.pid), what="its stop")
    try:
        if damage is None:
            home.connection_file.unlink()
        elif damage == "forged":
            home.connection_file.write_bytes(forged(home, pid=1))
        else:
            assert isinstance(damage, bytes)
            home.connection_file.write_bytes(damage)
        said = sentence(run(home.path, "status"), 1)
        assert f"pid {interlock.pid}" in said and "interlock down" in said
        assert f"pid {interlock.pid}" in sentence(run(home.path, "up"), 1)
        assert lock_holder(home) == interlock.pid
    finally:
        os.kill(interlock.pid, signal.SIGCONT)
    until(lambda: home.connection_file.exists() and home.connection_file.read_bytes() == before)
    assert home.connection_file.stat().st_mode & 0o777 == 0o600
    assert run(home.path, "status")[0] == 0


@pytest.mark.parametrize("damage", ["removed", "forged", "another key"])
def test_down_ends_a_supervisor_whose_connection_file_is_wrong(tmp_path: Path, damage: str) -> None:
    """connection.json gone or forged the moment before `down`: it ends the right process."""
    with Supervised(tmp_path, timing() + GOOD, clean=False) as interlock, innocent() as stranger:
        interlock.spare(stranger.pid)
        ready(interlock, *BOTH)
        home = interlock.home
        if damage == "removed":
            home.connection_file.unlink()
        elif damage == "forged":
            home.connection_file.write_bytes(forged(home, pid=stranger.pid))
        else:
            home.connection_file.write_bytes(forged(home, key="0" * 64))
        code, out, err = run(home.path, "down", "--json")
        assert code == 0, err
        assert msgspec.json.decode(out) == {
            "stopped": True,
            "pid": interlock.pid,
            "not_kept": "",
        }
        assert interlock.process.poll() == 0
        assert not home.connection_file.exists()


def test_nobody_is_told_to_kill_a_process_that_is_no_supervisor(tmp_path: Path) -> None:
    """connection.json that names another process, without its start: no advice to kill that."""
    home = Home(tmp_path / "home")
    home.prepare()
    with Supervised(tmp_path, timing()) as interlock:
        document = forged(home, pid=1, api=f"ipc://{tmp_path}/mute")
        assert read_connection(home).pid == interlock.pid
    with socket.socket(socket.AF_UNIX) as mute:
        mute.bind(str(tmp_path / "mute"))
        mute.listen()
        for command in ("status", "down"):
            home.connection_file.write_bytes(document)
            said = sentence(run(home.path, command), 3)
            assert "`kill" not in said and "pid" not in said and "interlock up" in said


def tells_of_ready(event: dict[str, Any], name: str, generation: int) -> bool:
    """Whether an event, or a snapshot, says that this generation is READY."""
    if event["topic"] == "snapshot":
        rows = [row for row in event["status"]["workers"] if row["name"] == name]
        return [(row["state"], row["generation"]) for row in rows] == [("READY", generation)]
    told = (event["topic"], event.get("name"), event.get("generation"))
    return told == ("worker.ready", name, generation)


@pytest.mark.parametrize("what", ["api", "events", "control", "run"])
def test_sockets_of_the_supervisor_come_back(interlock: Supervised, what: str) -> None:
    """run/api, run/events, run/control or all of run deleted: bound again, nobody is cut off."""
    place, home = interlock.mark(), interlock.home
    with Client(home.path) as early, Busy(interlock) as busy:
        assert early.status()["supervisor"]["pid"] == interlock.pid
        if what == "run":
            shutil.rmtree(home.run)
        else:
            (home.run / what).unlink()
        for name in ("api", "events", "control"):
            until((home.run / name).is_socket, what=f"{name} again")
        until(lambda: list(home.run.glob("data/mcp-good.*")), what="the data socket again")
        assert early.status()["supervisor"]["pid"] == interlock.pid
        busy.wait(1)
    assert run(home.path, "status")[0] == 0
    with Client(home.path) as late:
        events = late.events()
        assert next(iter(events))["topic"] == "snapshot"
        row = late.control("restart", "mcp:good")
        assert row["state"] == "READY"
        # A subscription that takes effect after the first of these events sees a snapshot.
        assert any(tells_of_ready(one, "mcp:good", row["generation"]) for one in events)
    interlock.wait_event("worker.ready", "mcp:good", place)
    assert late.home != home or not list(home.run.glob(".*"))


def test_the_data_socket_of_a_worker_comes_back(interlock: Supervised) -> None:
    """run/data/NAME deleted: the worker binds it again and keeps its process."""
    home, pid = interlock.home, interlock.worker("mcp:good")["pid"]
    (socket_file,) = home.run.glob("data/mcp-good.*")
    socket_file.unlink()
    until(socket_file.is_socket, what="the socket again")
    with Client(home.path) as late:
        assert late.call("mcp:good/echo").outcome == "ok"
    assert interlock.worker("mcp:good")["pid"] == pid


def test_what_cannot_be_made_again_is_said(tmp_path: Path) -> None:
    """A file where the folder of the sockets was: a row with a fix, and all is well after that."""
    with Supervised(tmp_path, timing() + GOOD) as interlock:
        ready(interlock, *BOTH)
        place, home = interlock.mark(), interlock.home
        shutil.rmtree(home.run)
        home.run.write_text("")
        interlock.wait_event("attention.changed", "supervisor", place, code="home_damaged")
        (row,) = (one for one in interlock.attention() if one["code"] == "home_damaged")
        assert str(home.run) in row["message"] and row["fix"]
        home.run.unlink()
        cleared = {"code": "home_damaged", "clear": True}
        interlock.wait_event("attention.changed", "supervisor", place, **cleared)
        assert run(home.path, "status")[0] == 0


@pytest.mark.parametrize("what", ["file", "all", "log", "replaced"])
def test_the_journal_comes_back_whole(tmp_path: Path, what: str) -> None:
    """journal.sqlite3 deleted while running: said, written anew, and no turn is missing."""
    with Supervised(tmp_path, timing() + GOOD) as interlock:
        ready(interlock, *BOTH)
        journal = interlock.home.journal
        first = whole_turn(interlock, 'mcp:good/echo {"n": 1}')
        place = interlock.mark()
        running = interlock.client.start_turn('mcp:good/sleep {"seconds": 1.5}')["turn"]
        wal = journal.with_name(f"{journal.name}-wal")
        if what in ("file", "all"):
            journal.unlink()
        if what in ("log", "all"):
            wal.unlink()
        if what == "replaced":
            journal.rename(tmp_path / "away")
            journal.write_bytes(b"somebody else's")
        interlock.wait_event("attention.changed", "supervisor", place, code="journal_removed")
        interlock.wait_event("turn.completed", after=place, turn=running)
        last = whole_turn(interlock, 'mcp:good/echo {"n": 1}')
        (row,) = (one for one in interlock.attention() if one["code"] == "journal_removed")
        assert "interlock down" in row["fix"]
        until(lambda: reported(interlock, last), what="its call in the journal")
    if what == "replaced":
        (kept,) = interlock.home.path.glob("journal.replaced-*")
        assert kept.read_bytes() == b"somebody else's"
    with Supervised(tmp_path, timing()) as interlock:
        found = {row["turn"]: row["state"] for row in interlock.client.turns()["turns"]}
        assert [found.get(turn) for turn in (first, running, last)] == ["completed"] * 3
        assert reported(interlock, first)
        assert not interlock.attention(), interlock.attention()


@pytest.mark.parametrize("where", [0, 8192])
def test_a_journal_that_is_overwritten_in_place_keeps_what_it_had(
    tmp_path: Path, where: int
) -> None:
    """journal.sqlite3 overwritten while running: said at once, and no turn is missing."""
    with Supervised(tmp_path, timing() + GOOD) as interlock:
        ready(interlock, *BOTH)
        first = whole_turn(interlock, 'mcp:good/echo {"n": 1}')
    with Supervised(tmp_path, timing() + GOOD) as interlock:
        ready(interlock, *BOTH)
        place = interlock.mark()
        with interlock.home.journal.open("r+b") as file:
            size = os.fstat(file.fileno()).st_size
            assert size > where + 8192
            file.seek(where)
            file.write(b"\xa5" * (size - where))
        interlock.wait_event("attention.changed", "supervisor", place, code="journal_damaged")
        (row,) = (one for one in interlock.attention() if one["code"] == "journal_damaged")
        (kept,) = interlock.home.path.glob("journal.damaged-*.sqlite3")
        assert str(kept) in row["message"] and "interlock down" in row["fix"]
        last = whole_turn(interlock, 'mcp:good/echo {"n": 1}')
        until(lambda: reported(interlock, last), what="its call in the journal")
    with Supervised(tmp_path, timing()) as interlock:
        found = {row["turn"]: row["state"] for row in interlock.client.turns()["turns"]}
        assert [found.get(turn) for turn in (first, last)] == ["completed"] * 2
        assert reported(interlock, first)
        assert not interlock.attention(), interlock.attention()


@pytest.mark.parametrize("name", ["supervisor", "mcp-good"])
def test_a_pipe_in_the_place_of_a_log_holds_nobody_up(interlock: Supervised, name: str) -> None:
    """A named pipe that nobody reads where a log was: said, and all goes on without that log."""
    log = interlock.home.logs / f"{name}.log"
    log.unlink()
    os.mkfifo(log)
    place, blamed = interlock.mark(), "supervisor" if name == "supervisor" else "mcp:good"
    assert interlock.client.control("restart", "mcp:good")["state"] == "READY"
    whole_turn(interlock, "mcp:good/echo {}")
    found = interlock.wait_event("attention.changed", blamed, place, code="log_disk_full")
    assert str(log) in found["message"] and "no regular file" in found["message"]
    assert run(interlock.home.path, "logs", "--lines", "1", blamed)[0] in (0, 1)
    log.unlink()

    def told() -> bool:
        interlock.client.control("restart", "mcp:good")  # the next line after a while is written
        return not interlock.attention()

    until(told, what="an end of the trouble")


def test_a_pipe_in_the_place_of_the_lock_holds_nobody_up(interlock: Supervised) -> None:
    """supervisor.lock is a named pipe: every command answers, and `status` says what to remove."""
    home, place = interlock.home, interlock.mark()
    home.lock_file.unlink()
    os.mkfifo(home.lock_file)
    found = interlock.wait_event("attention.changed", "supervisor", place, code="home_damaged")
    assert str(home.lock_file) in found["message"] and "no regular file" in found["message"]
    assert run(home.path, "status")[0] == 0
    sentence(run(home.path, "up"), 1)
    whole_turn(interlock, "mcp:good/echo {}")
    home.lock_file.unlink()
    until(lambda: lock_holder(home) == interlock.pid, what="the lock again")
    until(lambda: not interlock.attention(), what="an end of the trouble")


def test_the_records_of_processes_come_back(interlock: Supervised) -> None:
    """processes.json deleted: what a crash would leave stays known."""
    interlock.home.processes.unlink()
    until(interlock.home.processes.exists, what="the file again")


def test_the_pid_in_the_lock_comes_back(interlock: Supervised) -> None:
    """supervisor.lock emptied or overwritten: it is still held, and soon says by whom."""
    for damage in (b"", b"1\n"):
        interlock.home.lock_file.write_bytes(damage)
        assert sentence(run(interlock.home.path, "up"), 1).startswith("A supervisor (pid ")
        until(lambda: lock_holder(interlock.home) == interlock.pid, what="its pid")


def mended_locks(home: Home) -> int:
    return sum(
        '"home.mended"' in line and '"lock file"' in line
        for line in (home.logs / "supervisor.log").read_text().splitlines()
    )


@pytest.mark.parametrize("how", ["removed", "exchanged"])
def test_a_lock_file_that_is_removed_alone_ends_nothing(interlock: Supervised, how: str) -> None:
    """supervisor.lock deleted, as a cleaner of old lock files does: the home is locked anew."""
    home, pids = interlock.home, {name: interlock.worker(name)["pid"] for name in BOTH}
    before, place, told = home.lock_file.stat().st_ino, interlock.mark(), mended_locks(home)
    if how == "removed":
        home.lock_file.rename(home.path / "kept.lock")  # so that its inode is not used again
    else:
        (home.path / "other.lock").touch()
        (home.path / "other.lock").replace(home.lock_file)
    until(lambda: lock_holder(home) == interlock.pid, what="the lock again")
    assert home.lock_file.stat().st_ino != before
    assert sentence(run(home.path, "up"), 1).startswith("A supervisor (pid ")
    interlock.client.reload()
    whole_turn(interlock, "mcp:good/echo {}")
    assert {name: interlock.worker(name)["pid"] for name in BOTH} == pids
    assert not [e for e in interlock.events[place:] if e["topic"].startswith("worker.")]
    (home.path / "kept.lock").unlink(missing_ok=True)
    # One alone makes it again, and says so each time.
    assert mended_locks(home) == told + 1


def test_down_ends_what_a_killed_supervisor_left(tmp_path: Path) -> None:
    """Supervisor and spawner killed at once: `down` ends what they left, and names it."""
    stubborn = rogue_toml("stubborn", "ignore_end", "grandchild_session")
    with Supervised(tmp_path, timing() + GOOD + stubborn, clean=False) as interlock:
        ready(interlock, *BOTH, "mcp:stubborn")
        interlock.wait_for_children("mcp:stubborn", 2)
        tree = procfs.descendants(interlock.pid)
        left = procfs.descendants(interlock.worker("mcp:stubborn")["pid"])
        spawner, home = spawner_of(interlock), interlock.home
        killed = [interlock.pid, spawner, interlock.worker("mcp:stubborn")["pid"]]
        until(lambda: all(str(one.pid) in home.processes.read_text() for one in left))
        # The worker too, which would end its own; and so that none can act, all stop first.
        for number in (signal.SIGSTOP, signal.SIGKILL):
            for pid in killed:
                os.kill(pid, number)
        interlock.process.wait()
        said = sentence(run(home.path, "down"), 3)
        assert "No supervisor" in said and "interlock up" in said
        assert_gone(tree)
        assert "mcp:stubborn" in said, said
        assert not home.processes.exists() and not home.connection_file.exists()
        assert not [one for one in home.run.rglob("*") if one.is_socket()]
        HomeLock(home).close()
        assert "ended" not in sentence(run(home.path, "down"), 3)
