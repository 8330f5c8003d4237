"""The demonstration as a user runs it, and what it leaves behind: nothing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from fault_rig import until

from interlock.bus import procfs
from interlock.supervisor.home import folders

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
    assert "was stopped during the call" not in done.stdout, "it ended, nobody stopped it"
    assert not any(
        line.endswith("| {") for line in done.stdout.split("a second turn")[1].split("\n")
    )
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
    assert demo.returncode == 130
    assert "Traceback" not in errors
    assert [child for child in left if procfs.alive(child.pid, child.start)] == []
    assert not list(tmp_path.iterdir())


AT_A_FORK = "os.register_at_fork(after_in_parent=interrupt)"
AS_MEMORY_IS_FREED = """
class Dying:
    def __del__(self):
        interrupt()

def repository(folder, make=run.make_repository):
    Dying()
    return make(folder)

run.make_repository = repository
"""


@pytest.mark.parametrize("moment", [AT_A_FORK, AS_MEMORY_IS_FREED])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_where_python_only_prints_errors(
    tmp_path: Path, moment: str, number: signal.Signals
) -> None:
    program = (
        "import os\n"
        "from interlock.supervisor.cli import main\n"
        "from interlock.supervisor.demo import run\n"
        f"interrupt = lambda: os.kill(os.getpid(), {int(number)})\n"
        f"{moment}\n"
        "main(['demo'])"
    )
    done = subprocess.run(
        [sys.executable, "-P", "-c", program],
        env=environment(tmp_path),
        capture_output=True,
        text=True,
        timeout=50,
    )
    assert done.returncode == 130, done
    assert not any(word in done.stderr for word in ("Traceback", "Exception ignored"))
    assert "READY" not in done.stdout
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


def test_the_folder_of_a_killed_demo_goes_with_the_next_one(tmp_path: Path) -> None:
    """SIGKILL: what that demo left goes with the next one; what others work in stays."""
    with subprocess.Popen(
        COMMAND, env=environment(tmp_path), stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if b"READY" in line:
                break
        (folder,) = tmp_path.iterdir()
        below = procfs.descendants(process.pid)
        process.kill()
    until(lambda: not any(procfs.alive(one.pid, one.start) for one in below), 30.0, "their end")
    assert folder.exists()
    linked, foreign = tmp_path / "interlock-demo-link", tmp_path / "interlock-demo-file"
    linked.symlink_to(tmp_path)
    foreign.write_text("no folder")
    with subprocess.Popen(
        COMMAND, env=environment(tmp_path), stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    ) as second:
        assert second.stdout is not None
        assert b"interlock demo" in second.stdout.readline()
        assert not folder.exists()
        (used,) = set(tmp_path.iterdir()) - {linked, foreign}
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("tempfile.tempdir", str(tmp_path))
            folders.sweep_folders("interlock-demo-")
        assert used.exists()
        second.send_signal(signal.SIGINT)
        second.communicate(timeout=58)
    assert set(tmp_path.iterdir()) == {linked, foreign}
