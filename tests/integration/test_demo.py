"""The demonstration as a user runs it, and what it leaves behind: nothing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from interlock.bus import procfs

COMMAND = [sys.executable, "-P", "-c", "from interlock.supervisor.cli import main; main()", "demo"]


def environment(tmp_path: Path) -> dict[str, str]:
    return os.environ | {"TMPDIR": str(tmp_path)}


def test_the_demo_runs_to_its_end(tmp_path: Path) -> None:
    started = time.monotonic()
    done = subprocess.run(
        COMMAND, env=environment(tmp_path), capture_output=True, text=True, timeout=58
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert time.monotonic() - started < 60
    for said in (
        "-> mcp:git/git_log",
        "Message: Begin with a greeting",
        "!! killed the git server",
        "mcp:mute",
        "mcp:crash",
        "mcp:git is READY again",
        "the bad servers cost the turn",
    ):
        assert said in done.stdout
    assert "worker_died" in done.stdout or "unavailable" in done.stdout
    assert done.stdout.count("  completed\n") == 2
    assert done.stderr == ""
    assert not list(tmp_path.iterdir())


def test_a_text_of_ones_own_is_the_first_turn(tmp_path: Path) -> None:
    done = subprocess.run(
        [*COMMAND, 'mcp:time/get_current_time {"timezone": "Asia/Tokyo"}'],
        env=environment(tmp_path),
        capture_output=True,
        text=True,
        timeout=58,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Asia/Tokyo" in done.stdout


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_demo_leaves_nothing(tmp_path: Path, number: signal.Signals) -> None:
    with subprocess.Popen(
        COMMAND,
        env=environment(tmp_path),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as demo:
        assert demo.stdout is not None
        for line in demo.stdout:
            if "a turn with real tools" in line:
                break
        left = procfs.descendants(demo.pid)
        assert len(left) > 5
        demo.send_signal(number)
        _, errors = demo.communicate(timeout=40)
    assert demo.returncode == 1
    assert "Traceback" not in errors
    assert [child for child in left if procfs.alive(child.pid, child.start)] == []
    assert not list(tmp_path.iterdir())


def test_without_the_extra_one_sentence_says_so() -> None:
    program = (
        "import sys\n"
        "sys.modules['mcp_server_git'] = None\n"
        "from interlock.supervisor.cli import main\n"
        "main(['demo'])"
    )
    done = subprocess.run(
        [sys.executable, "-P", "-c", program], capture_output=True, text=True, timeout=30
    )
    assert done.returncode == 1
    assert done.stdout == ""
    assert "pip install 'interlock[demo]'" in done.stderr
    assert len(done.stderr.splitlines()) == 1
