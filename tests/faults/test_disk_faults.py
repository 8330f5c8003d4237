"""A disk that is full for everything, for a while or from the start."""

from __future__ import annotations

import json
import resource
from pathlib import Path
from typing import Any

from breaking import GOOD, Busy, ready, run, tree_of
from supervised import Supervised, rogue_toml, timing

OURS = {"journal_full", "log_disk_full", "processes_disk_full"}
SERVERS = (
    ("mcp:cut", "log_disk_full"),
    ("mcp:cut", "results_full"),
    ("agent:main", "results_full"),
)


def limit_files(interlock: Supervised, size: int) -> None:
    """Let no file of any process grow beyond `size`; what they start later inherits that."""
    for pid in tree_of(interlock):
        hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)[1]
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (size, hard))


def shown(items: list[dict[str, Any]]) -> str:
    """The last text of the turn's one result."""
    (result,) = [item for item in items if item["type"] == "tool.result"]
    return str(result["content"][-1]["text"])


def test_a_disk_that_fills_up_and_has_room_again(tmp_path: Path) -> None:
    """Full for logs, journal, results, records: said with a fix, no turn lost, then recovered."""
    config = timing() + GOOD + rogue_toml("cut", max_result="4KiB")
    large = f'mcp:good/echo {{"n": "{"z" * 20_000}"}}'
    with Supervised(tmp_path, config, clean=False) as interlock:
        ready(interlock, "agent:main", "mcp:good", "mcp:cut")
        turns = [list(interlock.client.turn('mcp:good/echo {"n": 0}'))]
        limit_files(interlock, 0)
        place = interlock.mark()

        assert interlock.client.control("restart", "mcp:cut")["state"] == "READY"
        turns += [list(interlock.client.turn(f'mcp:good/echo {{"n": {n}}}')) for n in range(9)]
        assert {items[-1]["type"] for items in turns} == {"turn.completed"}
        cut = interlock.client.call("mcp:cut/big", {"bytes": 50_000})
        assert cut.outcome == "ok" and "could not be kept" in cut.content[-1]["text"]
        turns.append(list(interlock.client.turn(large)))
        assert "could not be kept: " in shown(turns[-1])
        interlock.wait_event("attention.changed", "agent:main", place, code="results_full")
        assert not any(path.is_file() for path in interlock.home.results.rglob("*"))
        for code in OURS:
            interlock.wait_event("attention.changed", "supervisor", place, code=code)
        interlock.wait_event("attention.changed", "mcp:cut", place, code="log_disk_full")
        rows = interlock.attention()
        assert {row["code"] for row in rows if row["name"] == "supervisor"} >= OURS
        words = ("ulimit -f", "Free some space")  # SQLite tells the two apart in part only
        assert all(any(word in row["fix"] for word in words) for row in rows), rows
        for items in turns:
            assert list(interlock.client.watch(items[0]["turn"])) == items
        assert len(interlock.client.turns()["turns"]) == len(turns)

        # All rows go by themselves: nothing has to happen that would be written.
        place = interlock.mark()
        limit_files(interlock, resource.RLIM_INFINITY)
        for code in OURS:
            interlock.wait_event("attention.changed", "supervisor", place, code=code, clear=True)
        for name, code in SERVERS:
            interlock.wait_event("attention.changed", name, place, code=code, clear=True)
        assert interlock.attention() == []
        turns.append(list(interlock.client.turn(large)))
        assert "z" * 20_000 in Path(shown(turns[-1])).read_text()
        whole = interlock.client.call("mcp:cut/big", {"bytes": 50_000}).content[-1]["text"]
        assert len(Path(whole).read_bytes()) == 50_000
        assert interlock.stop() == 0
        interlock.client.close()

        interlock.clean = True
        interlock.start()
        for items in turns:
            assert list(interlock.client.watch(items[0]["turn"])) == items


def test_the_end_on_a_full_disk_says_what_is_not_kept(tmp_path: Path) -> None:
    """All of a run that the journal could not take is lost at its end: whoever ends it is told."""
    config = timing() + GOOD
    with Supervised(tmp_path, config, clean=False) as interlock:
        ready(interlock, "agent:main", "mcp:good")
        list(interlock.client.turn('mcp:good/echo {"n": 0}'))
        place = interlock.mark()
        limit_files(interlock, 0)
        for n in range(3):
            list(interlock.client.turn(f'mcp:good/echo {{"n": {n}}}'))
        interlock.wait_event("attention.changed", "supervisor", place, code="journal_full")
        code, out, err = run(interlock.home.path, "down", "--json")
        told = json.loads(out)["not_kept"]
        assert (code, err.strip()) == (0, told)
        assert told.startswith("Not kept of this run: all or part of 3 turns, "), told
        assert "The journal cannot be written (" in told
        assert interlock.stop() == 0
        interlock.client.close()

        interlock.clean = True
        interlock.start()
        assert len(interlock.client.turns()["turns"]) == 1
        code, out, err = run(interlock.home.path, "down")
        assert (code, out.strip(), err) == (0, "Stopped; nothing is left running.", "")


def test_a_worker_whose_log_cannot_be_made_works_all_the_same(tmp_path: Path) -> None:
    """A log that cannot even be opened costs the log, not the worker."""
    with Supervised(tmp_path, timing() + GOOD + rogue_toml("x")) as interlock:
        ready(interlock, "agent:main", "mcp:good", "mcp:x")
        log = next(interlock.home.logs.glob("*x.log"))
        log.unlink()
        log.mkdir()
        place = interlock.mark()
        with Busy(interlock):
            assert interlock.client.control("restart", "mcp:x")["state"] == "READY"
            interlock.wait_event("attention.changed", "mcp:x", place, code="log_disk_full")
        assert interlock.client.call("mcp:x/echo").outcome == "ok"
        assert all(row["fix"] for row in interlock.attention("mcp:x"))
        log.rmdir()


def test_a_start_on_a_full_disk_is_one_sentence(tmp_path: Path) -> None:
    """Full for the connection file: refused in one sentence that says what to do, nothing left."""
    home = tmp_path / "home"
    for arguments in (["up"], ["up", "--detach"]):
        code, _, err = run(home, *arguments, prefix=["prlimit", "--fsize=0"])
        assert code == 1 and len(err.strip().splitlines()) == 1, err
        assert str(home) in err
    assert not list(home.glob("*connection*"))
    assert [path for path in (home / "run").rglob("*") if not path.is_dir()] == []
