"""A supervisor that runs and that nobody new can reach, as its socket files are not there."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from breaking import GOOD, ready, run
from supervised import Supervised, timing

SOON = 20.0
"""Seconds, on a busy machine, within which a command that cannot reach anybody has to say so."""
LOOKS = 6.0
"""Seconds in which each worker looks at its socket once more."""


def as_file(folder: Path) -> None:
    """Put a file in the place of a folder."""
    folder.write_text("x")


def as_loop(folder: Path) -> None:
    """Put a link that leads to itself in the place of a folder."""
    folder.symlink_to(folder)


def removed(folder: Path) -> None:
    """Leave nothing, where nothing can be made."""
    folder.symlink_to("/proc/none/away")


@pytest.mark.parametrize("damage", [as_file, as_loop, removed])
def test_commands_say_that_nobody_can_be_reached_and_down_ends_it(
    tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    """`run` is no folder any more: each command says so, and `down` stops everything in order."""
    with Supervised(tmp_path, timing() + GOOD, clean=False) as interlock:
        before = ready(interlock, "mcp:good")
        home = interlock.home
        shutil.rmtree(home.run)
        damage(home.run)
        for command in (("status",), ("restart", "good"), ("turn", "mcp:good/echo {}")):
            begun = time.monotonic()
            code, out, error = run(home.path, *command)
            assert time.monotonic() - begun < SOON
            assert (code, out) == (5, "")
            assert "nobody new can reach it" in error and "interlock down" in error, error
            assert "overloaded" not in error and "init_timeout" not in error
            if damage is not removed:
                assert f"Remove or rename what is at {home.run}" in error
        assert interlock.worker("mcp:good")["pid"] == before["mcp:good"]["pid"]
        code, out, error = run(home.path, "down")
        assert (code, error) == (0, "")
        assert "nothing is left running" in out
        assert interlock.process.wait(SOON) == 0
        home.run.unlink()  # what was put there is the test's to remove


def test_a_socket_that_cannot_be_made_again_is_told_once_with_what_helps(tmp_path: Path) -> None:
    """`run/data` is a file: the row names that, a restart would only end what still works."""
    with Supervised(tmp_path, timing() + GOOD) as interlock:
        before = ready(interlock, "mcp:good", "core:basics")
        data, place = interlock.home.run / "data", interlock.mark()
        assert interlock.client.call("mcp:good/echo").outcome == "ok"
        shutil.rmtree(data)
        data.write_text("x")
        for name in before:
            told = interlock.wait_event("attention.changed", name, place, code="socket_removed")
            assert f"Remove or rename what is at {data}" in told["fix"]
            assert "interlock restart" not in told["fix"]
        damaged = interlock.wait_event("attention.changed", "supervisor", place)
        assert str(data) in damaged["message"] + damaged["fix"]
        for again in ("mcp:good", "core:basics"):
            later = interlock.mark()
            with pytest.raises(AssertionError):
                interlock.wait_event("attention.changed", again, later, patience=LOOKS)
        later = [e for e in interlock.events[place:] if e["topic"] == "attention.changed"]
        assert len(later) == 3, later  # two workers and the supervisor, each once
        assert interlock.client.call("mcp:good/echo").outcome == "ok"
        data.unlink()
        for name in before:
            interlock.wait_event("attention.changed", name, place, clear=True)
        assert run(interlock.home.path, "call", "mcp:good/echo")[0] == 0
