"""Interlock's own tools, called by a person and by a turn of a real supervisor."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from supervised import DIRECT_AGENT, Supervised, timing


@pytest.fixture(scope="module")
def interlock(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Supervised]:
    with Supervised(tmp_path_factory.mktemp("core"), timing() + DIRECT_AGENT) as running:
        running.wait_state("core:basics", "READY")
        yield running


def test_they_are_in_the_catalog_with_their_tiers(interlock: Supervised) -> None:
    rows = {row["name"]: row for row in interlock.client.tools()["capabilities"]}
    assert {name: row["tier"] for name, row in rows.items()} == {
        "core:find_tools": "safe",
        "core:notes_read": "safe",
        "core:notes_write": "monitor",
        "core:time": "safe",
    }
    assert {row["source"] for row in rows.values()} == {"core:basics"}
    assert rows["core:time"]["wire"] == "core__time" and rows["core:time"]["connected"]


def test_time(interlock: Supervised) -> None:
    answer = interlock.client.call("core:time", {"zone": "Europe/Berlin"})
    assert answer.outcome == "ok"
    assert answer.structured["zone"] == "Europe/Berlin" and answer.structured["unix"] > 0
    for wrong in ({"zone": "No/Where"}, {"zone": 5}, {"zon": "UTC"}, {"zone": "../../etc/passwd"}):
        assert interlock.client.call("core:time", wrong).outcome == "invalid_arguments"


def test_notes_outlive_the_worker(interlock: Supervised) -> None:
    client = interlock.client
    assert client.call("core:notes_write", {"name": "plan", "text": "one"}).outcome == "ok"
    client.call("core:notes_write", {"name": "plan", "text": ", two", "append": True})
    client.control("restart", "core:basics")
    answer = client.call("core:notes_read", {"name": "plan"})
    assert answer.structured == {"name": "plan", "text": "one, two"}
    listed = client.call("core:notes_read").structured["notes"]
    assert [(note["name"], note["bytes"]) for note in listed] == [("plan", 8)]
    path = Path(interlock.home.path) / "notes" / "plan.md"
    assert path.read_text() == "one, two" and path.stat().st_mode & 0o777 == 0o600
    assert client.call("core:notes_read", {"name": "no"}).outcome == "invalid_arguments"


def test_a_turn_calls_them_and_the_events_say_so(interlock: Supervised) -> None:
    place = interlock.mark()
    items = list(interlock.client.turn("core__time {}"))
    results = [item for item in items if item["type"] == "tool.result"]
    assert [item["outcome"] for item in results] == ["ok"]
    turn = items[0]["turn"]
    event = interlock.wait_event("tool.completed", "core:basics", place, turn=turn)
    assert (event["capability"], event["outcome"]) == ("core:time", "ok")


def test_a_search_with_nothing_withheld_finds_nothing_further(interlock: Supervised) -> None:
    items = list(interlock.client.turn('core:find_tools {"query": "tell the time"}'))
    (result,) = [item for item in items if item["type"] == "tool.result"]
    assert (result["outcome"], result["structured"]) == ("ok", {"tools": []})
    found = interlock.client.call("core:find_tools", {"query": "tell the time"})
    assert found.structured["tools"][0]["name"] == "core:time"
    assert interlock.client.call("core:find_tools", {"query": " "}).outcome == "invalid_arguments"


def test_a_pipe_among_the_notes_takes_no_other_note_away(interlock: Supervised) -> None:
    client = interlock.client
    assert client.call("core:notes_write", {"name": "good", "text": "one"}).outcome == "ok"
    os.mkfifo(Path(interlock.home.path) / "notes" / "pipe.md")
    for _ in range(7):  # the threads of a worker, and one more
        answer = client.call("core:notes_read", {"name": "pipe"}, timeout=1)
        assert answer.outcome == "unavailable"
    answer = client.call("core:notes_read", {"name": "good"})
    assert answer.structured == {"name": "good", "text": "one"}
