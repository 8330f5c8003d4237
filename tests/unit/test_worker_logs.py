"""The worker's log file and what of a server's standard error reaches it."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from interlock.workers.logs import WorkerLog
from interlock.workers.mcp.stderr import MAX_LINE, StderrReader
from interlock.workers.secrets import Masks

SECRET = "a-secret-of-some-length"


def test_a_log_whose_file_was_removed_begins_a_new_one(tmp_path: Path) -> None:
    path, troubles = tmp_path / "w.log", list[tuple[str, str]]()
    log = WorkerLog(path, Masks(), lambda *told: troubles.append(told), max_bytes=200)
    log.info("x" * 150)
    path.unlink()
    log.info("still there")
    log.close()
    assert "still there" in path.read_text() and troubles == []


def test_standard_output_follows_a_log_that_could_not_be_rotated_at_once(tmp_path: Path) -> None:
    path = tmp_path / "logs" / "w.log"
    outputs = [os.dup(1), os.dup(2)]
    log = WorkerLog(path, Masks(), redirect=True, max_bytes=1)
    try:
        log.info("first")
        path.parent.rename(tmp_path / "moved")
        (tmp_path / "logs").touch()
        log.info("lost")
        (tmp_path / "logs").unlink()
        log._retry_at = 1e-9  # the next attempt is due
        log.info("second")
        same = [os.fstat(1).st_ino, os.fstat(2).st_ino]
    finally:
        for number, saved in enumerate(outputs, 1):
            os.dup2(saved, number)
            os.close(saved)
        log.close()
    assert same == [path.stat().st_ino] * 2


@pytest.mark.parametrize("evil", ["\x9b31m", "\x07", "\x85", "\u2028", "\x0b", "\x7f"])
def test_nothing_in_a_line_can_break_it_or_steer_a_terminal(tmp_path: Path, evil: str) -> None:
    log = WorkerLog(tmp_path / "w.log", Masks())
    log.line("INFO", f"a{evil}b\tc")
    log.close()
    [line] = (tmp_path / "w.log").read_text().splitlines()
    assert evil not in line and line.endswith("b\tc")


def test_a_value_that_is_secret_later_is_not_quoted_from_lines_before(tmp_path: Path) -> None:
    """A sign-in brings a token after the server wrote it; the last line is quoted at the end."""
    masks = Masks()
    log = WorkerLog(tmp_path / "w.log", masks)

    async def scenario() -> str:
        read, write = os.pipe()
        reader = StderrReader(read, log)
        _write(write, f"refused: {SECRET}\n".encode())
        async with asyncio.timeout(10):
            await reader.ended
        masks.add(SECRET)
        return reader.last_line

    assert asyncio.run(scenario()) == "refused: [secret]"
    log.close()


def test_a_line_of_standard_error_that_is_too_long_shows_no_piece_of_a_secret(
    tmp_path: Path,
) -> None:
    masks = Masks()
    masks.add(SECRET)
    log = WorkerLog(tmp_path / "w.log", masks)
    line = "..." + SECRET * (2 * MAX_LINE // len(SECRET))

    async def scenario() -> None:
        read, write = os.pipe()
        reader = StderrReader(read, log)
        sending = asyncio.get_running_loop().run_in_executor(None, _write, write, line.encode())
        async with asyncio.timeout(10):
            await sending
            await reader.ended
        assert reader.last_line.startswith("...[secret][secret]")

    asyncio.run(scenario())
    log.close()
    kept = (tmp_path / "w.log").read_text()
    assert "a-sec" not in kept and "ength" not in kept


def test_a_log_that_was_removed_begins_anew(tmp_path: Path) -> None:
    log = WorkerLog(tmp_path / "w.log", Masks())
    log.info("one")
    (tmp_path / "w.log").unlink()
    log.info("two")
    log.close()
    assert (tmp_path / "w.log").read_text().endswith("INFO two\n")


def _write(descriptor: int, data: bytes) -> None:
    with open(descriptor, "wb") as file:
        file.write(data)
