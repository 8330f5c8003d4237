"""Where the home is, that it is private, and that it has one supervisor."""

from __future__ import annotations

import os
import shutil
import socket
import stat
import subprocess
import sys
import threading
from pathlib import Path

import msgspec
import platformdirs
import pytest
from hypothesis import given
from hypothesis import strategies as st
from supervised import PATIENCE

from interlock.bus import endpoints
from interlock.bus.endpoints import (
    MAX_PATH,
    MAX_STEM,
    ConnectionInfo,
    Home,
    HomeLock,
    default_home,
    endpoint,
    file_stem,
    read_connection,
    unlink_endpoint,
    write_connection,
)
from interlock.bus.errors import AlreadyRunningError, ConfigError, NoSupervisorError
from interlock.supervisor.home.runfolders import sweep_run_folders, undisturbed

INFO = ConnectionInfo(
    version="1.2",
    protocol=1,
    pid=5,
    api="ipc:///a",
    events="ipc:///e",
    key="k" * 64,
    epoch="e",
    home="/h",
)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize("state", [None, "", "  ", "/somewhere/state"])
def test_the_default_home_is_where_platformdirs_says(
    state: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("INTERLOCK_HOME", raising=False)
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    if state is not None:
        monkeypatch.setenv("XDG_STATE_HOME", state)
    assert default_home() == platformdirs.user_state_path("interlock")


def test_the_environment_names_a_home(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/x")
    assert default_home({"INTERLOCK_HOME": "~/there"}) == Path("/home/x/there")
    assert default_home({"INTERLOCK_HOME": "here"}) == Path.cwd() / "here"


@given(st.text(max_size=60), st.text(max_size=60))
def test_stems_are_file_names_and_differ(one: str, other: str) -> None:
    for name in (one, other):
        stem = file_stem(name)
        assert 0 < len(stem) <= MAX_STEM
        assert set(stem) <= set("abcdefghijklmnopqrstuvwxyz0123456789-_~")
    assert (file_stem(one) == file_stem(other)) == (one == other)


@given(st.from_regex(r"[a-z]{1,4}[:-][a-zA-Z_-]{1,9}", fullmatch=True))
def test_stems_of_similar_names_differ(name: str) -> None:
    similar = {name, name.lower(), name.replace(":", "-"), name.replace("-", ":"), name + "~"}
    assert len({file_stem(each).lower() for each in similar}) == len(similar)


def test_prepare_makes_private_folders(tmp_path: Path) -> None:
    home = Home(tmp_path / "a" / "home")
    home.prepare()
    home.logs.chmod(0o755)
    home.prepare()
    for folder in (home.path, home.run, home.run / "data", home.logs, home.results):
        assert mode(folder) == 0o700


def test_long_homes_get_a_short_run_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    base = tmp_path / "short"
    monkeypatch.setattr(endpoints, "_fallback_base", lambda: base)
    home, other = Home(tmp_path / ("x" * 80)), Home(tmp_path / ("x" * 81))
    home.prepare()
    assert home.run.parent == base
    assert mode(base) == mode(home.run) == 0o700
    assert home.run != other.run
    assert Home(home.path).run == home.run
    assert Home.of_run_folder(home.run) == home
    (home.run / "data" / "x.1").touch()
    home.remove_run()
    assert list(base.iterdir()) == []
    home.remove_run()


def test_short_run_folders_without_a_supervisor_are_swept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = tmp_path / "short"
    monkeypatch.setattr(endpoints, "_fallback_base", lambda: base)
    own, gone, killed, running = (Home(tmp_path / (name * 90)) for name in "ogkr")
    for home in (own, gone, killed, running):
        home.prepare()
        (home.run / "control").touch()
        (home.run / "data" / "x.1").touch()
    (base / "stale" / "data").mkdir(parents=True)
    os.utime(base / "stale", (1, 1))
    (base / "young" / "data").mkdir(parents=True)
    (base / "unknown").mkdir()
    (base / "unknown" / "kept").touch()
    os.utime(base / "unknown", (1, 1))
    (base / "lying").mkdir()
    (base / "lying" / "home").write_bytes(os.fsencode(running.path))
    shutil.rmtree(gone.path)
    HomeLock(killed).close()
    with HomeLock(own), HomeLock(running):
        sweep_run_folders(own)
    left = {own.run.name, running.run.name, "young", "unknown", "lying"}
    assert {folder.name for folder in base.iterdir()} == left
    assert not Home(Path("/h")).run_is_elsewhere


def test_whoever_answers_keeps_its_sockets_while_its_home_is_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = tmp_path / "short"
    monkeypatch.setattr(endpoints, "_fallback_base", lambda: base)
    own, running = Home(tmp_path / ("o" * 90)), Home(tmp_path / ("r" * 90))
    for home in (own, running):
        home.prepare()
    with socket.socket(socket.AF_UNIX) as api, HomeLock(running):
        api.bind(os.fspath(running.run / "api"))
        api.listen(1)
        os.utime(running.run, (1, 1))
        running.path.rename(tmp_path / "away")
        sweep_run_folders(own)
        assert (running.run / "api").exists() and (running.run / "data").exists()
    sweep_run_folders(own)
    assert not running.run.exists()


@pytest.mark.parametrize("lock", ["missing", "exchanged", "held"])
def test_whoever_answers_keeps_its_sockets_whatever_its_lock_file_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lock: str
) -> None:
    base = tmp_path / "short"
    monkeypatch.setattr(endpoints, "_fallback_base", lambda: base)
    own, running = Home(tmp_path / ("o" * 90)), Home(tmp_path / ("r" * 90))
    for home in (own, running):
        home.prepare()
    with socket.socket(socket.AF_UNIX) as api:
        api.bind(os.fspath(running.run / "api"))
        api.listen(0)
        os.utime(running.run, (1, 1))
        with HomeLock(running):
            if lock != "held":
                running.lock_file.unlink()
            if lock == "exchanged":
                running.lock_file.write_text("1\n")
            sweep_run_folders(own)
            sweep_run_folders(own)  # the queue of the socket is full now
            assert (running.run / "api").exists()
            # Nor is a lock file made or signed by somebody who only looks.
            assert running.lock_file.exists() == (lock != "missing")
            if lock == "exchanged":
                assert running.lock_file.read_text() == "1\n"
    os.utime(running.run)
    sweep_run_folders(own)
    assert running.run.exists() == (lock == "missing")
    os.utime(own.run, (1, 1))
    if running.run.exists():
        os.utime(running.run, (1, 1))
    sweep_run_folders(own)
    assert not running.run.exists()
    assert running.lock_file.exists() == (lock != "missing")


def test_a_home_that_is_about_to_be_locked_is_not_swept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = tmp_path / "short"
    monkeypatch.setattr(endpoints, "_fallback_base", lambda: base)
    own, starting = Home(tmp_path / ("o" * 90)), Home(tmp_path / ("s" * 90))
    for home in (own, starting):
        home.prepare()
    sweeping = threading.Thread(target=sweep_run_folders, args=(own,))
    with undisturbed(starting):
        sweeping.start()
        sweeping.join(0.2)
        assert sweeping.is_alive() and (starting.run / "data").exists()
        lock = HomeLock(starting)
    sweeping.join(PATIENCE)
    assert (starting.run / "data").exists()
    lock.close()
    sweep_run_folders(own)
    assert not starting.run.exists()


def test_socket_paths_fit() -> None:
    for size in (10, 56, 57, 58, 200):
        home = Home(Path("/" + "h" * (size - 1)))
        address = endpoint(home, "data", "mcp:" + "n" * 200, 9_999_999)
        assert len(address.removeprefix("ipc://")) <= MAX_PATH
    assert endpoint(Home(Path("/h")), "control") == "ipc:///h/run/control"
    assert endpoint(Home(Path("/h")), "data", "mcp:git", 3) == "ipc:///h/run/data/mcp-git.3"


@pytest.mark.parametrize("trap", ["link", "file", "owner"])
def test_a_run_folder_that_is_not_ours_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trap: str
) -> None:
    base = tmp_path / "short"
    monkeypatch.setattr(endpoints, "_fallback_base", lambda: base)
    home = Home(tmp_path / ("x" * 80))
    if trap == "link":
        (tmp_path / "real").mkdir()
        base.symlink_to(tmp_path / "real")
    elif trap == "file":
        base.write_text("")
    else:
        home.path.mkdir()
        monkeypatch.setattr(os, "geteuid", lambda: 12345)
    with pytest.raises(ConfigError):
        home.prepare()


def test_a_home_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "file", tmp_path / "file" / "home"):
        with pytest.raises(ConfigError, match="choose another --home"):
            Home(path).prepare()


def test_clear_run_removes_sockets_and_keeps_folders(tmp_path: Path) -> None:
    home = Home(tmp_path)
    home.prepare()
    (home.run / "control").write_text("")
    (home.run / "data" / "mcp-git.1").write_text("")
    home.clear_run()
    assert [p.name for p in home.run.rglob("*")] == ["data"]
    unlink_endpoint(endpoint(home, "data", "mcp:git", 1))
    (home.run / "data" / "mcp-git.1").write_text("")
    unlink_endpoint(endpoint(home, "data", "mcp:git", 1))
    assert not list((home.run / "data").iterdir())


def test_the_connection_file(tmp_path: Path) -> None:
    home = Home(tmp_path)
    old = os.umask(0)
    try:
        write_connection(home, INFO)
        write_connection(home, INFO)
    finally:
        os.umask(old)
    assert read_connection(home) == INFO
    assert mode(home.connection_file) == 0o600
    assert [p.name for p in tmp_path.iterdir()] == ["connection.json"]
    assert "kkk" not in repr(INFO)


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", "[" * 10_000, '{"version": 5}'])
def test_a_broken_connection_file_means_no_supervisor(tmp_path: Path, text: str) -> None:
    home = Home(tmp_path)
    with pytest.raises(NoSupervisorError, match="interlock up"):
        read_connection(home)
    home.connection_file.write_text(text)
    with pytest.raises(NoSupervisorError, match="interlock up"):
        read_connection(home)


def test_another_protocol_is_refused_by_name(tmp_path: Path) -> None:
    home = Home(tmp_path)
    write_connection(home, msgspec.structs.replace(INFO, protocol=9))
    with pytest.raises(NoSupervisorError, match="protocol 9") as caught:
        read_connection(home)
    assert caught.value.code == "protocol"


def test_a_connection_file_of_another_user_is_not_believed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = Home(tmp_path)
    write_connection(home, INFO)
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    with pytest.raises(NoSupervisorError, match="another user"):
        read_connection(home)


def test_one_supervisor_a_home(tmp_path: Path) -> None:
    home = Home(tmp_path)
    with HomeLock(home) as lock:
        with pytest.raises(AlreadyRunningError) as caught:
            HomeLock(home)
        assert caught.value.pid == os.getpid()
        assert str(os.getpid()) in caught.value.message
        assert home.lock_file.read_text() == f"{os.getpid()}\n"
        assert mode(home.lock_file) == 0o600
        lock.close()
        HomeLock(home).close()


def test_a_lock_file_that_was_removed_is_locked_anew_unless_another_was_faster(
    tmp_path: Path,
) -> None:
    home = Home(tmp_path / "home")
    home.path.mkdir()
    with HomeLock(home) as lock:
        home.lock_file.unlink()
        assert lock.state() == "removed" and lock.restore() and lock.state() == "held"
        assert home.lock_file.read_text() == f"{os.getpid()}\n"
        with pytest.raises(AlreadyRunningError):
            HomeLock(home)
        home.lock_file.unlink()
        with HomeLock(home):
            assert lock.state() == "taken" and not lock.restore() and lock.same_home()
        home.lock_file.unlink()
        home.lock_file.symlink_to(tmp_path / "elsewhere")
        with pytest.raises(OSError):
            lock.restore()
        assert not (tmp_path / "elsewhere").exists()
        home.path.rename(tmp_path / "moved")
        assert lock.state() == "gone" and not lock.restore()
        home.path.mkdir()
        assert not lock.same_home() and not lock.restore() and not home.lock_file.exists()


def test_a_killed_holder_leaves_no_lock(tmp_path: Path) -> None:
    script = (
        "import os, sys, pathlib; from interlock.bus.endpoints import *\n"
        "lock = HomeLock(Home(pathlib.Path(sys.argv[1])))\n"
        "os.kill(os.getpid(), 9)"
    )
    done = subprocess.run([sys.executable, "-c", script, tmp_path], check=False, timeout=30)
    assert done.returncode == -9
    HomeLock(Home(tmp_path)).close()
