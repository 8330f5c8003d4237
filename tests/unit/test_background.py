from __future__ import annotations

import asyncio
import errno
import json
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from interlock.bus.remedies import disk_remedy
from interlock.supervisor import background
from interlock.supervisor.background import Background
from interlock.supervisor.home.log import Log, RotatingFile
from interlock.workers.logs import WorkerLog
from interlock.workers.secrets import Masks


def test_work_that_fails_is_reported_and_begins_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background, "AGAIN_AFTER", 0.0)
    trouble: list[tuple[str, str]] = []

    async def run() -> None:
        again = asyncio.Event()
        runs = 0

        async def work() -> None:
            nonlocal runs
            runs += 1
            if runs == 1:
                raise KeyError("x")
            again.set()
            await asyncio.Event().wait()

        keeper = Background(lambda error, what: trouble.append((type(error).__name__, what)))
        keeper.keep("pings", work)
        async with asyncio.timeout(5):
            await again.wait()
        await keeper.close()
        keeper.keep("pings", work)
        assert runs == 2
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(run())
    assert trouble == [("KeyError", "pings")]


def test_the_log_rotates_and_keeps_one_older_file(tmp_path: Path) -> None:
    path = tmp_path / "supervisor.log"
    file = RotatingFile(path, lambda reason, fix: pytest.fail(reason), max_bytes=1000)
    log = Log(file)
    for number in range(50):
        log.info("worker.ready", n=number)
    file.close()
    assert sorted(entry.name for entry in tmp_path.iterdir()) == [
        "supervisor.log",
        "supervisor.log.1",
    ]
    assert path.stat().st_size <= 1000
    assert '"n":49' in path.read_text() and '"event":"worker.ready"' in path.read_text()


def test_a_full_disk_is_said_once_and_again_when_it_is_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("interlock.supervisor.home.log.RETRY_AFTER", 0.0)
    said: list[tuple[str, str]] = []
    file = RotatingFile(tmp_path / "supervisor.log", lambda *told: said.append(told))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, hard))
    try:
        for _ in range(10):
            file.write_line("x" * 40)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert len(said) == 1 and os.strerror(27) in said[0][0] and "ulimit -f" in said[0][1]
    assert file.lost >= 6
    Log(file).look()
    assert said[1:] == [("", "")]
    assert f'"lines":{file.lost}' in (tmp_path / "supervisor.log").read_text()
    file.close()


@pytest.mark.parametrize(
    ("number", "todo"),
    [
        (errno.ENOSPC, "Free some space"),
        (errno.EDQUOT, "your quota is used up"),
        (errno.EROFS, "it is read-only"),
        (errno.EACCES, "look at its owner and mode"),
        (errno.EISDIR, "Remove or rename what is at /h/log"),
        (errno.EMFILE, "more open files"),
        (errno.EFBIG, "ulimit -f"),
        (errno.EIO, "Look at /h/log and its disk"),
        (None, "Look at /h/log and its disk"),
    ],
)
def test_what_to_do_follows_from_what_the_system_said(number: int | None, todo: str) -> None:
    said = disk_remedy(number, "/h/log")
    assert todo in said and ("space" in said) == (number == errno.ENOSPC)


def test_a_folder_in_the_place_of_a_file_is_no_full_disk(tmp_path: Path) -> None:
    """Each of those who write into the home says what has to be done about that very error."""
    (tmp_path / "w.log").mkdir()
    said: list[str] = []
    RotatingFile(tmp_path / "w.log", lambda *told: said.append(told[1])).write_line("x")
    WorkerLog(tmp_path / "w.log", Masks(), lambda *told: said.append(told[1])).info("x")
    assert said == [f"Remove or rename what is at {tmp_path / 'w.log'}"] * 2


def test_an_error_is_logged_with_where_it_happened(tmp_path: Path) -> None:
    file = RotatingFile(tmp_path / "supervisor.log", lambda reason, fix: pytest.fail(reason))
    try:
        raise LookupError("nothing here")
    except LookupError as error:
        Log(file).error("internal", error, what=object)
    file.close()
    line = json.loads((tmp_path / "supervisor.log").read_text())
    assert (line["level"], line["event"], line["what"]) == ("error", "internal", repr(object))
    assert "LookupError: nothing here" in line["exception"]


def test_the_supervisor_loads_no_more_than_it_uses() -> None:
    program = "import interlock.supervisor.runtime, sys; print(*sys.modules)"
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    heavy = {"structlog", "rich", "pygments", "mcp", "click", "yaml", "keyring"}
    assert heavy.isdisjoint(run.stdout.decode().split())


def test_a_log_that_was_removed_begins_anew(tmp_path: Path) -> None:
    path = tmp_path / "supervisor.log"
    file = RotatingFile(path, lambda reason, fix: pytest.fail(reason))
    file.write_line("one")
    path.unlink()
    file.write_line("two")
    file.close()
    assert path.read_text() == "two\n"
