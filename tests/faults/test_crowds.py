"""More connections than descriptors: whoever asks, the process that is asked lives.

libzmq ends a process that has no descriptor left for a connection; see `interlock.bus.turnstile`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from breaking import GOOD, Busy, ready, run
from crowd import Crowd
from fault_rig import descriptors_at_first, descriptors_of, until
from supervised import Supervised, rogue_toml, timing

from interlock.bus.client import Client

LIMIT = 1024


@pytest.fixture(scope="module")
def interlock(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Supervised]:
    folder = tmp_path_factory.mktemp("crowds")
    with Supervised(folder, timing(ping=5.0) + GOOD, open_files=LIMIT) as running:
        ready(running, "agent:main", "mcp:good", "core:basics")
        running.client.turns()  # SQLite keeps the descriptor of the first reader for the next one
        yield running


@pytest.mark.parametrize("introduced", [False, True], ids=["silent", "introduced"])
@pytest.mark.parametrize("count", [1100, 3000])
@pytest.mark.parametrize("plane", ["api", "events", "control"])
def test_a_supervisor_survives_any_number_of_connections(
    interlock: Supervised, plane: str, count: int, introduced: bool
) -> None:
    """Hard limit of descriptors below the connections of one burst: it is said, nobody suffers."""
    before, place = descriptors_at_first(interlock), interlock.mark()
    path, kind = interlock.home.run / plane, "SUB" if plane == "events" else "DEALER"
    with (
        Busy(interlock) as busy,
        Crowd(path, count, introduced=kind if introduced else "") as crowd,
    ):
        crowd.wait_asked()
        if introduced:  # the silent are sent away after 5 s, on a slow machine before all are in
            interlock.wait_event("attention.changed", "supervisor", place, code="open_files")
            (row,) = (row for row in interlock.attention() if row["code"] == "open_files")
            assert str(LIMIT) in row["message"] and "ulimit" in row["fix"]
        assert interlock.descriptors() <= LIMIT - 32
        busy.wait(2)
    until(lambda: not interlock.attention(), what="an end of the trouble")
    assert run(interlock.home.path, "status")[0] == 0
    until(lambda: interlock.descriptors() <= before, what="an end of all connections")


def test_a_worker_survives_any_number_of_connections(tmp_path: Path) -> None:
    """A burst at the data socket of a worker: it lives, says so, and its callers are served."""
    config = timing() + GOOD + rogue_toml("small", limits={"open_files": 128})
    with Supervised(tmp_path, config) as interlock:
        rows = ready(interlock, "agent:main", "mcp:good", "mcp:small")
        row, place = rows["mcp:small"], interlock.mark()
        before = descriptors_of(row["pid"])
        (path,) = interlock.home.run.glob("data/mcp-small.*")
        with Client(interlock.home.path) as early, Busy(interlock) as busy:
            assert early.call("mcp:small/echo").outcome == "ok"
            with Crowd(path, 600, introduced="DEALER") as crowd:
                crowd.wait_asked()
                interlock.wait_event("attention.changed", "mcp:small", place, code="open_files")
                assert early.call("mcp:small/echo").outcome == "ok"
                assert all(one["fix"] for one in interlock.attention("mcp:small"))
                busy.wait(1)
            cleared = {"code": "open_files", "clear": True}
            interlock.wait_event("attention.changed", "mcp:small", place, **cleared)
        assert interlock.client.call("mcp:small/echo").outcome == "ok"
        assert interlock.worker("mcp:small")["pid"] == row["pid"]
        until(lambda: descriptors_of(row["pid"]) <= before + 2, what="an end of all connections")


def test_a_limit_that_is_too_low_is_refused_at_the_start(tmp_path: Path) -> None:
    """A hard limit with which it could not live: one plain sentence, and nothing is started."""
    home = tmp_path / "home"
    for arguments in (["up"], ["up", "--detach"]):
        code, _, said = run(home, *arguments, prefix=["prlimit", "--nofile=100:100"])
        assert code == 1 and len(said.strip().splitlines()) == 1, said
        assert "100 files" in said and "ulimit" in said
    assert not (home / "connection.json").exists()
