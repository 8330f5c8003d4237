"""The bound on the folder of whole results."""

from __future__ import annotations

import os
import time
from pathlib import Path

import msgspec

from interlock.bus.endpoints import Home
from interlock.bus.settings import McpServerSettings, Timing
from interlock.supervisor.config.model import ServerEntry
from interlock.supervisor.fleet.boot import configure_body
from interlock.workers.kept import MAX_AGE, MAX_FILES, MAX_TOTAL, KeptFile, keep, prune, surplus


def test_the_newest_files_stay_within_number_and_size() -> None:
    files = [KeptFile(str(n), float(n), 1) for n in range(MAX_FILES + 5)]
    assert sorted(surplus(files, 0.0)) == sorted("012345")
    large = [KeptFile(str(n), float(n), MAX_TOTAL // 4) for n in range(6)]
    assert sorted(surplus(large, 0.0)) == ["0", "1"]
    assert sorted(surplus(large, 0.0, MAX_TOTAL // 2)) == ["0", "1", "2", "3"]


def test_a_write_makes_room_and_leaves_strangers_alone(tmp_path: Path) -> None:
    stranger, link = tmp_path / "notes.txt", tmp_path / "20000101-000000-x-00000000.txt"
    stranger.touch()
    link.symlink_to(stranger)
    old, problem = keep(b"old", "txt", folder=tmp_path, tool="read/all")
    assert old and not problem and old.stat().st_mode & 0o777 == 0o600
    past = time.time() - MAX_AGE - 1
    for path in (old, stranger):
        os.utime(path, (past, past))
    os.utime(link, (past, past), follow_symlinks=False)
    new, problem = keep(b"new", "txt", folder=tmp_path, tool="read/all")
    assert new and new.read_bytes() == b"new" and not problem
    assert sorted(tmp_path.iterdir()) == sorted([stranger, link, new])


def test_a_folder_that_is_not_there_is_no_trouble(tmp_path: Path) -> None:
    prune(tmp_path / "none", time.time())


def test_a_flood_of_one_worker_costs_its_neighbours_nothing(tmp_path: Path) -> None:
    bodies = [
        msgspec.json.decode(configure_body(Home(tmp_path), name, entry, Timing()))
        for name, entry in (
            ("mcp:a", ServerEntry(settings=McpServerSettings(command="a"), folder="/")),
            ("mcp:b", ServerEntry(settings=McpServerSettings(command="b"), folder="/")),
        )
    ]
    first, second = (Path(body["results_folder"]) for body in bodies)
    kept, _ = keep(b"kept", "txt", folder=first, tool="t")
    old, _ = keep(b"old", "txt", folder=first, tool="t")
    assert kept and old
    os.utime(old, (time.time() - MAX_AGE - 1,) * 2)
    for _ in range(MAX_FILES + 2):
        assert keep(b"flood", "txt", folder=second, tool="t")[0]
    assert list(first.iterdir()) == [kept]
    assert len(list(second.iterdir())) == MAX_FILES
