"""Commands that change the home: two at once, on a full disk, without an answer, with odd paths."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from command_line import CommandLine
from fault_rig import until

from interlock.bus import procfs
from interlock.bus.endpoints import Home
from interlock.bus.errors import ConfigError
from interlock.supervisor.config.trust import changing_trust, read_trust


@pytest.fixture
def cli(tmp_path: Path) -> CommandLine:
    return CommandLine(tmp_path)


def test_trust_of_many_at_once_loses_none(tmp_path: Path) -> None:
    """Promise: what a person trusted is trusted, whatever another command records meanwhile."""
    record = tmp_path / "home" / "trust.json"
    together = threading.Barrier(8)

    def add(name: str) -> None:
        together.wait()
        for n in range(5):
            with changing_trust(record) as trusted:
                trusted[f"{name}{n}"] = "0"

    threads = [threading.Thread(target=add, args=(name,)) for name in "abcdefgh"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(read_trust(record)) == 40
    assert {file.name for file in record.parent.iterdir()} == {"trust.json", ".trust.json.lock"}


def test_a_change_that_fails_changes_nothing(tmp_path: Path) -> None:
    record = tmp_path / "trust.json"
    with changing_trust(record) as trusted:
        trusted["a"] = "0"
    with pytest.raises(ZeroDivisionError), changing_trust(record) as trusted:
        trusted["b"] = str(1 / 0)
    record.unlink()
    record.mkdir()
    with pytest.raises(ConfigError, match="cannot be written"), changing_trust(record) as trusted:
        trusted["b"] = "0"
    assert {file.name for file in tmp_path.iterdir()} == {"trust.json", ".trust.json.lock"}


def test_trust_without_an_answer_says_so(cli: CommandLine) -> None:
    """Standard input at its end is no yes; with --json that is a document, too."""
    (cli.folder / "interlock.toml").write_text('[mcp_servers.x]\ncommand = "x"\n')
    out, err = cli.both("trust", "--json", code=1)
    assert '"code":"not_confirmed"' in out and out.count("\n") == 1
    assert "mcp:x: start x" in err, "nobody can say yes to what is not shown"
    done = cli.shell("interlock trust <&-")
    assert done.returncode == 1 and "nobody said yes" in done.stderr
    assert cli.json("trust", "--list") == {"trusted": []}
    assert len(cli.json("trust", "--yes")["trusted"]) == 1


def test_up_in_the_background_tells_its_reason_on_a_full_disk(cli: CommandLine) -> None:
    """Promise: the reason reaches the user although no file takes a byte, and nothing is left."""

    def full() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))

    with cli.popen("up", "--detach", preexec_fn=full) as process:
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (1, ""), err
    assert err.count("\n") == 1 and str(cli.home) in err, err
    assert "File too large" in err and "while it started" not in err
    assert (cli.home / "logs" / "up.log").read_bytes() == b""
    cli.run("status", code=3)


def test_up_in_the_background_says_in_words_that_its_supervisor_was_killed(
    cli: CommandLine,
) -> None:
    """Promise: a person reads what happened and what to do, not a number of the system."""
    with cli.popen("up", "--detach") as process:
        until = time.monotonic() + 30
        while not (started := procfs.children(process.pid)) and time.monotonic() < until:
            os.sched_yield()
        os.kill(started[0], signal.SIGKILL)
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (1, "")
    assert "The supervisor was killed by SIGKILL while it started; see " in err, err
    cli.run("status", code=3)


def test_a_home_and_folders_with_bytes_that_are_no_text(cli: CommandLine) -> None:
    odd = os.fsencode(cli.folder) + b"/\xff"
    for arguments in (["status"], ["up", "--detach"], ["trust", "--list"], ["down"]):
        done = subprocess.run(
            [sys.executable, "-m", "interlock.supervisor.cli", *arguments, "--home", odd],
            cwd=cli.folder,
            capture_output=True,
            timeout=60,
            check=False,
        )
        assert (done.returncode, done.stdout) == (2, b""), done
        assert b"is not UTF-8" in done.stderr and done.stderr.count(b"\n") == 1
    os.mkdir(odd)
    Path(os.fsdecode(odd), "interlock.toml").write_text("x = 1\n")
    done_ = cli.shell("cd $'\\xff'; interlock validate --json; interlock validate")
    assert done_.returncode == 0, done_
    assert "mistake" not in done_.stdout + done_.stderr
    assert "udcff" in done_.stdout
    up = cli.shell("cd $'\\xff'; interlock up --detach")
    assert (up.returncode, up.stdout) == (1, "")
    assert "is not UTF-8" in up.stderr and up.stderr.count("\n") == 1, up
    assert "Traceback" not in (cli.home / "logs" / "up.log").read_text()


def test_the_sockets_of_a_home_with_a_long_path_go_with_it(tmp_path: Path) -> None:
    """Promise: `down` leaves nothing running, and the sockets of a killed one do not pile up."""
    cli = CommandLine(tmp_path / "long" / ("x" * 90))
    cli.run("up", "--detach")
    run = Home(cli.home).run
    assert run.parent != cli.home and (run / "control").exists()
    pid = cli.json("status")["supervisor"]["pid"]
    start = procfs.start_time(pid)
    assert start is not None
    os.kill(pid, signal.SIGKILL)
    assert (run / "control").exists()
    other = CommandLine(tmp_path / "other" / ("y" * 90))
    until(lambda: not procfs.alive(pid, start), what="the end of the killed one")
    other.run("up", "--detach")
    assert not run.exists()
    assert Home(other.home).run.exists()
    other.run("down")
    assert not Home(other.home).run.exists()


def test_a_lock_that_another_program_holds_is_told_as_that(cli: CommandLine) -> None:
    """A backup has the lock file: no command calls it, or whoever it names, a supervisor."""
    home = Home(cli.home)
    home.prepare()
    home.lock_file.write_text(f"{os.getpid()}\n")
    script = (
        "import fcntl, sys\n"
        "file = open(sys.argv[1])\n"
        "fcntl.flock(file, fcntl.LOCK_EX)\n"
        "print(flush=True)\n"
        "sys.stdin.read()\n"
    )
    pipe = subprocess.PIPE
    with subprocess.Popen(
        [sys.executable, "-c", script, str(home.lock_file)], stdin=pipe, stdout=pipe
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"\n"
        for command, code in (
            (("up",), 1),
            (("up", "--detach"), 1),
            (("down",), 3),
            (("status",), 3),
        ):
            _, error = cli.both(*command, code=code)
            assert f"(pid {holder.pid}), holds the lock {home.lock_file}" in error, error
            assert f"pid {os.getpid()}" not in error
            assert "interlock up" not in error and "interlock down" not in error
        holder.communicate()
    assert "No supervisor is running" in cli.both("down", code=3)[1]


def test_what_was_half_written_when_its_writer_was_killed_is_removed(cli: CommandLine) -> None:
    """At the next start; what somebody may write just now, and what is not ours, stays."""
    home = Home(cli.home)
    home.prepare()
    (home.path / "notes").mkdir()
    (home.results / "mcp-x").mkdir()
    names = (".connection.7", ".tools-x", ".trust.json-x", ".journal.sqlite3.new", "notes/.note-x")
    left = [home.path / name for name in (*names, "results/mcp-x/.room-1")]
    kept = [home.path / name for name in ("mine", ".hidden", "notes/.own")]
    for path in (*left, *kept):
        path.write_text("x")
        os.utime(path, (1, 1))
    fresh = home.path / ".tools-y"
    fresh.write_text("x")
    cli.run("up", "--detach")
    cli.run("down")
    assert [path for path in left if path.exists()] == []
    assert all(path.exists() for path in (*kept, fresh))


def test_a_start_says_what_is_in_the_way_and_not_to_free_space(cli: CommandLine) -> None:
    """A folder where the lock was, a file where the home was, a limit on the size of files."""
    home = Home(cli.home)
    home.prepare()
    home.lock_file.mkdir()
    said = cli.both("up", code=1)[1]
    assert f"Remove or rename what is at {home.lock_file}" in said and "space" not in said
    assert "No supervisor is running" in cli.both("down", code=3)[1]
    home.lock_file.rmdir()
    with cli.popen(
        "up", preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    ) as limited:
        _, said = limited.communicate(timeout=60)
    assert limited.returncode == 1 and "ulimit -f" in said and "space" not in said
    home.path.rename(cli.folder / "moved")
    home.path.write_text("x")
    for command, code in (("up", 1), ("status", 3), ("down", 3)):
        said = cli.both(command, code=code)[1]
        assert f"Remove or rename what is at {home.path}" in said, said


def test_a_folder_that_was_removed_is_named(cli: CommandLine) -> None:
    gone = cli.folder / "gone"
    gone.mkdir()
    for command in ("up", "validate"):
        done = cli.shell(f"mkdir -p {gone}; cd {gone}; rmdir {gone}; interlock {command}")
        assert done.returncode == 1 and "was removed; change to another one" in done.stderr, done
