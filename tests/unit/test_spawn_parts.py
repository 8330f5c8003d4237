"""The pure parts of spawning: environment, records, limits; and what /proc says about this test."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlock.bus import procfs
from interlock.bus.errors import MalformedError, TooLargeError
from interlock.supervisor.spawn.environment import scrub
from interlock.supervisor.spawn.limits import Usage, cpu_percent, judge, sample
from interlock.supervisor.spawn.protocol import (
    MAX_RECORD,
    Exited,
    Reap,
    Spawn,
    decode_down,
    decode_up,
    encode,
)


def test_environment_keeps_the_list_and_what_is_named() -> None:
    environ = {
        "PATH": "/bin",
        "LC_TIME": "C",
        "https_proxy": "http://p",
        "SSL_CERT_FILE": "/c",
        "ANTHROPIC_API_KEY": "a",
        "GITHUB_TOKEN": "b",
        "GIT_DIR": "c",
        "PYTHONPATH": "d",
        "INTERLOCK_HOME": "e",
    }
    base = {"PATH", "LC_TIME", "https_proxy", "SSL_CERT_FILE"}
    assert set(scrub(environ)) == base
    assert set(scrub(environ, ["GITHUB_TOKEN", "GIT_*"])) == base | {"GITHUB_TOKEN", "GIT_DIR"}
    assert set(scrub(environ, ["*"])) == set(environ) - {"INTERLOCK_HOME"}


def test_records_come_back_as_they_were() -> None:
    order = Spawn(
        name="mcp:a", generation=3, boot=b"\0\xff", entry="a:b", title="t", log="/l", nice=5
    )
    assert decode_down(encode(order)) == order
    assert decode_down(encode(Reap(pid=1))) == Reap(pid=1)
    exited = Exited(name="mcp:a", generation=3, pid=4, start=5, signal=9)
    assert decode_up(encode(exited)) == exited


def test_a_record_over_the_limit_is_refused() -> None:
    with pytest.raises(TooLargeError):
        encode(Exited(name="x" * MAX_RECORD, generation=1, pid=1, start=1))


@given(st.binary(max_size=200))
def test_any_bytes_are_a_record_or_malformed(data: bytes) -> None:
    for decode in (decode_up, decode_down):
        try:
            decode(data)
        except MalformedError as error:
            assert error.code == "malformed"


@pytest.mark.parametrize("data", [b"\x91" * 100_000, b"\x81\xa1a" * 60_000, b""])
def test_deep_nesting_is_malformed(data: bytes) -> None:
    with pytest.raises(MalformedError):
        decode_up(data)


@pytest.mark.parametrize(
    ("resident", "soft", "hard", "verdict"),
    [
        (10, 10, 20, "fine"),
        (11, 10, 20, "soft"),
        (20, 10, 20, "soft"),
        (21, 10, 20, "hard"),
        (21, None, 20, "hard"),
        (21, None, None, "fine"),
        (21, 20, None, "soft"),
        (30, 20, 10, "hard"),
    ],
)
def test_limits(resident: int, soft: int | None, hard: int | None, verdict: str) -> None:
    assert judge(resident, soft, hard) == verdict


def test_cpu_percent() -> None:
    before, now = Usage(cpu_ticks=100), Usage(cpu_ticks=100 + procfs.TICKS)
    assert cpu_percent(before, now, 2.0) == 50.0
    assert cpu_percent(now, before, 2.0) == 0.0
    assert cpu_percent(before, now, 0.0) == 0.0


def test_a_tree_is_measured_whole() -> None:
    script = (
        "import subprocess; child = subprocess.Popen(['sleep', '1000']); "
        "print(child.pid, flush=True); child.wait()"
    )
    with subprocess.Popen([sys.executable, "-S", "-c", script], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        below = int(process.stdout.readline())
        found = procfs.descendants(process.pid)
        direct = procfs.children(process.pid)
        used = sample({"a": process.pid, "gone": 0})
        for one in found:
            assert procfs.kill(one)
        process.kill()
    assert used["a"].processes == 2
    assert used["a"].resident > 0
    assert used["gone"] == Usage()
    assert [(one.pid, one.command) for one in found] == [(below, "sleep")]
    assert direct == [below]


def test_this_process() -> None:
    start = procfs.start_time(os.getpid())
    assert start is not None
    assert procfs.alive(os.getpid(), start)
    assert not procfs.alive(os.getpid(), start + 1)
    assert procfs.boot_id() == procfs.boot_id() != ""
    assert procfs.resident_bytes([os.getpid()]) > 1 << 20
    assert procfs.cpu_ticks([os.getpid()]) > 0


@pytest.mark.parametrize("pid", [0, -1, 1 << 30])
def test_a_process_that_is_not_there(pid: int) -> None:
    assert procfs.stat(pid) is None
    assert procfs.start_time(pid) is None
    assert procfs.children(pid) == []
    assert procfs.descendants(pid) == []
    assert procfs.command(pid) == ""
    assert procfs.resident_bytes([pid]) == procfs.cpu_ticks([pid]) == 0


@pytest.mark.parametrize(
    ("title", "shown"),
    [
        ("npm exec server --api-key planted/x", "npm"),
        ("/opt/bin/shodan-mcp", "shodan-mcp"),
        ("bundle: server --token planted", "bundle:"),
        ("  ", ""),
    ],
)
def test_a_command_is_one_word_of_a_title(title: str, shown: str) -> None:
    with subprocess.Popen(
        [title, "-"],
        executable=shutil.which("cat"),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        bufsize=0,
    ) as process:
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(b"x")
        process.stdout.read(1)
        assert procfs.command(process.pid) == shown


def test_a_command_never_shows_arguments() -> None:
    script = "import sys; sys.stdout.write('x'); sys.stdout.flush(); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", script, "--token", "planted"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        process.stdout.read(1)
        assert procfs.command(process.pid).startswith("python")
        assert "planted" not in procfs.command(process.pid)
