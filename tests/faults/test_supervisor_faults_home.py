"""What is wrong with the home: removed, read-only, too deep, stale, with damaged files."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from breaking import (
    GOOD,
    STUBBORN,
    Held,
    Watching,
    innocent,
    popen,
    ready,
    run,
    spawner_of,
)
from fault_rig import until
from supervised import PATIENCE, Supervised, rogue_toml, timing

from interlock.bus import procfs
from interlock.bus.endpoints import Home, read_connection
from interlock.bus.errors import InterlockError

BOTH = ("agent:main", "mcp:good")
ORDINARY = ["setpriv", "--bounding-set=-dac_override,-dac_read_search"] if os.geteuid() == 0 else []
"""What makes the permissions of files count, also for root."""


def one_sentence(result: tuple[int, str, str], code: int = 1) -> str:
    """Check the exit code and that one line says why; return it."""
    assert result[0] == code, result
    said = result[2].strip()
    assert len(said.splitlines()) == 1 and said.endswith("."), said
    return said


@pytest.fixture
def short() -> Iterator[Path]:
    """A temporary folder with a short path."""
    with tempfile.TemporaryDirectory(prefix="il-") as folder:
        yield Path(folder)


def test_without_its_home_it_ends_in_order(tmp_path: Path) -> None:
    """Home removed under a running supervisor: it ends by itself, says why, leaves nothing."""
    with Supervised(tmp_path, timing() + GOOD, clean=False) as interlock:
        ready(interlock, *BOTH)
        turn = interlock.client.start_turn('mcp:good/sleep {"seconds": 0.5}')["turn"]
        watching = Watching(interlock, turn)
        watching.until("tool.call")
        shutil.rmtree(interlock.home.path)
        assert watching.join()[-1]["type"] == "turn.completed"  # what runs may end
        assert interlock.process.wait(PATIENCE) == 1
        said = interlock.errors.read_text().strip()
        assert str(interlock.home.path) in said and len(said.splitlines()) == 1, said
        interlock.home.path.mkdir()  # for the check of the lock


def test_a_home_that_is_away_for_a_moment_ends_nothing(tmp_path: Path) -> None:
    """Home moved away and back, as of a disk that hiccups: the turn goes on, nothing is ended."""
    with Supervised(tmp_path, timing() + GOOD) as interlock:
        ready(interlock, *BOTH)
        home, held = interlock.home, Held(tmp_path, "mcp:good")
        watching = Watching(interlock, interlock.client.start_turn(held.text)["turn"])
        watching.until("tool.call")
        place = interlock.mark()
        home.path.rename(tmp_path / "away")
        back = time.monotonic() + 2.5
        until(lambda: time.monotonic() > back, what="the moment that it is back")
        (tmp_path / "away").rename(home.path)
        held.let_go()
        assert watching.join()[-1]["type"] == "turn.completed"
        assert list(interlock.client.turn("mcp:good/echo {}"))[-1]["type"] == "turn.completed"
        ended = ("worker.stopping", "worker.backoff", "worker.failed")
        assert not [one for one in interlock.events[place:] if one["topic"] in ended]
        assert run(home.path, "down")[0] == 0


@pytest.mark.parametrize("name", ["processes.json", "connection.json"])
def test_down_says_what_it_cannot_remove_and_stops_all_the_same(tmp_path: Path, name: str) -> None:
    """A folder in the place of a file of the home: everything is stopped, and `down` says so."""
    with Supervised(tmp_path, timing() + GOOD, clean=False) as interlock:
        ready(interlock, *BOTH)
        file = interlock.home.path / name
        file.unlink(missing_ok=True)
        (file / "full").mkdir(parents=True)
        code, out, err = run(interlock.home.path, "down")
        assert (code, out) == (0, "Stopped; nothing is left running.\n"), err
        code, _, err = run(interlock.home.path, "down")
        assert code == 3 and "No supervisor is running" in err and "Traceback" not in err
        assert interlock.process.wait(PATIENCE) == 0
        shutil.rmtree(file)


def test_a_home_that_another_one_took_over_is_left_alone(tmp_path: Path) -> None:
    """Home removed, and made anew by a second supervisor: the first one ends without harming it."""
    with Supervised(tmp_path, timing() + GOOD, clean=False) as first:
        ready(first, *BOTH)
        shutil.rmtree(first.home.path)
        with Supervised(tmp_path, timing() + GOOD) as second:
            second.spare(first.pid)
            assert first.process.wait(PATIENCE) == 1
            ready(second, *BOTH)
            assert read_connection(second.home).pid == second.pid
            assert list(second.client.turn("mcp:good/echo {}"))[-1]["type"] == "turn.completed"


def test_a_read_only_home_is_one_plain_sentence(tmp_path: Path) -> None:
    """Read-only home at start: refused in one sentence, new or used before; nothing is left."""
    home = Home(tmp_path / "home")
    home.path.mkdir()
    home.path.chmod(0o500)
    said = one_sentence(run(home.path, "up", prefix=ORDINARY))
    assert str(home.path) in said
    home.path.chmod(0o700)
    home.prepare()
    home.path.chmod(0o500)
    for arguments in (["up"], ["up", "--detach"]):
        assert str(home.path) in one_sentence(run(home.path, *arguments, prefix=ORDINARY))
    home.path.chmod(0o700)
    assert not [path for path in home.run.rglob("*") if path.is_socket()]


def test_a_home_that_is_no_folder_is_one_plain_sentence(tmp_path: Path) -> None:
    """A home that is a file, or lies below one."""
    file = tmp_path / "file"
    file.write_text("")
    assert str(file) in one_sentence(run(file, "up"))
    home = tmp_path / "home"
    home.mkdir()
    (home / "logs").write_text("")
    assert str(home / "logs") in one_sentence(run(home, "up", "--detach"))


def test_a_home_too_deep_for_socket_paths_works_all_the_same(tmp_path: Path) -> None:
    """Run directory path too long: the sockets move to a short folder, and go at the end."""
    deep = tmp_path / "-".join(["deep"] * 20)
    deep.mkdir()
    with Supervised(deep, timing() + GOOD) as interlock:
        assert interlock.home.run.parent != interlock.home.path
        ready(interlock, *BOTH)
        assert list(interlock.client.turn("mcp:good/echo {}"))[-1]["type"] == "turn.completed"
        assert run(interlock.home.path, "status")[0] == 0


def test_what_a_dead_supervisor_left_is_no_supervisor(short: Path) -> None:
    """Stale home, its pid now a stranger's: commands say nobody runs; the next start cleans up."""
    home = Home(short / "home")
    with Supervised(short, timing(), clean=False) as interlock:
        interlock.process.kill()
        interlock.stop()
    with innocent() as stranger:  # later, so that it cannot have started in the same tick
        document = msgspec.json.decode(home.connection_file.read_bytes())
        for pid in (document["pid"], stranger.pid):
            home.connection_file.write_bytes(msgspec.json.encode(document | {"pid": pid}))
            for command in ("status", "down", "turns"):
                assert "interlock up" in one_sentence(run(home.path, command), 3)
        for name in ("old.7", "other.1"):
            with socket.socket(socket.AF_UNIX) as stale:
                stale.bind(str(home.run / "data" / name))
        with Supervised(short, timing() + GOOD) as interlock:
            interlock.spare(stranger.pid)
            ready(interlock, *BOTH)
            assert not list((home.run / "data").glob("o*"))
            assert interlock.client.call("mcp:good/echo").outcome == "ok"


@pytest.mark.parametrize("damage", [b"[" * 20_000, b'{"files": 5}'])
def test_damaged_files_stop_nothing(short: Path, damage: bytes) -> None:
    """Corrupt processes.json, trust.json and connection.json: a clean start, and it is said."""
    home = Home(short / "home")
    home.prepare()
    for path in (home.processes, home.trust, home.connection_file):
        path.write_bytes(damage)
    one_sentence(run(home.path, "status"), 3)
    one_sentence(run(home.path, "down"), 3)
    workspace = short / "work"
    workspace.mkdir()
    (workspace / "interlock.toml").write_text('[mcp_servers.evil]\ncommand = "false"\n')
    with Supervised(short, timing() + GOOD, workspace=workspace) as interlock:
        ready(interlock, *BOTH)
        codes = {row["code"] for row in interlock.attention()}
        assert "trust_file" in codes, interlock.attention()
        assert not [row for row in interlock.client.status()["workers"] if "evil" in row["name"]]
        # What forbids may stand in a file that is not known to be trusted: everything asks.
        asked: list[str] = []
        answer = interlock.client.call(
            "mcp:good/echo", on_approval=lambda why: not asked.append(why)
        )
        assert answer.outcome == "ok" and len(asked) == 1


def test_a_connection_file_of_a_stranger_is_not_believed(tmp_path: Path) -> None:
    """A connection file whose process started at another time is no supervisor's."""
    with Supervised(tmp_path, timing()) as interlock:
        info = read_connection(interlock.home)
        assert info.start == procfs.start_time(interlock.pid)
        assert info.boot_id == procfs.boot_id()
        with pytest.raises(InterlockError):
            interlock.client.control("start", "mcp:nobody")


def test_down_claims_only_what_it_has_seen_to(short: Path) -> None:
    """Supervisor and spawner are killed while they stop: `down` says so, and ends what is left."""
    config = timing(drain=5.0, term=10.0) + GOOD + rogue_toml("bad", *STUBBORN)
    with Supervised(short, config, clean=False) as interlock:
        ready(interlock, *BOTH, "mcp:bad")
        spawner = spawner_of(interlock)
        below = procfs.descendants(interlock.pid)
        with popen(interlock.home.path, "down") as command:
            interlock.wait_event("worker.stopping", "mcp:bad")
            os.kill(spawner, signal.SIGSTOP)  # so that it ends nothing any more
            for pid in (interlock.pid, spawner):
                os.kill(pid, signal.SIGKILL)
            said = command.communicate(timeout=PATIENCE)
        left = [one for one in below if procfs.alive(one.pid, one.start)]
        assert (command.returncode, left) == (0, [])
        assert f"(pid {interlock.pid}) was killed before" in said[0], said
        home = interlock.home
        assert not home.connection_file.exists() and not home.processes.exists()
        assert "interlock up" in one_sentence(run(home.path, "down"), 3)
