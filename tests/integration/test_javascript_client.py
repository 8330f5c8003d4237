"""A program in another language, written from the protocol page, uses everything a client can."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from bus_peer import WORKER, Peer
from npm import NODE, npm_server
from supervised import DIRECT_AGENT, Supervised, server_toml, timing

HERE = Path(__file__).parent
LARGE = 3 << 20

Lines = list[dict[str, Any]]


def run_client(plan: dict[str, Any]) -> Lines:
    """Run the program and return the objects that it printed."""
    program = HERE / "javascript" / "client.mjs"
    done = subprocess.run(
        [NODE, program, json.dumps(plan)], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert lines[-1]["step"] == "done"
    return lines


def of(lines: Lines, step: str) -> Lines:
    return [line for line in lines if line["step"] == step]


def check_events(lines: Lines, worker: str) -> None:
    """The events after the snapshot have no gap and tell the restart."""
    events = [line["event"] for line in of(lines, "event")]
    first = of(lines, "snapshot")[0]["seq"] + 1
    assert [event["seq"] for event in events] == list(range(first, first + len(events)))
    told = [event["topic"] for event in events if event.get("name") == worker]
    assert told[-1] == "worker.ready"
    assert "worker.starting" in told
    assert events[-1]["generation"] == 2
    assert of(lines, "restarted")[0]["row"]["state"] == "READY"
    assert of(lines, "gone") == [{"step": "gone", "worker": worker, "generation": 1}]


def test_against_the_test_peer(tmp_path: Path) -> None:
    with Peer(tmp_path / "home") as peer:
        lines = run_client(
            {
                "connection": str(peer.home.connection_file),
                "turn": "say " + " ".join(str(n) for n in range(50)),
                "calls": [
                    ["mcp:test/echo", {"text": "grüße"}],
                    ["mcp:test/big", {"size": LARGE}],
                    ["mcp:test/progress", {}],
                    ["mcp:test/overloaded", {}],
                    ["mcp:tset/echo", {}],
                ],
                "restart": WORKER,
            }
        )
    assert [line["item"]["offset"] for line in of(lines, "item")] == list(range(52))
    results = of(lines, "result")
    expected = ["ok", "ok", "ok", "overloaded", "not_found"]
    outcomes = [result["outcome"] for result in results]
    # One after the other, all at once, and one after the other again after the restart.
    assert (outcomes[:5], outcomes[10:]) == (expected, expected)
    assert sorted(outcomes[5:10]) == sorted(expected)
    assert results[0]["document"]["structuredContent"] == {"text": "grüße"}
    assert len(results[1]["document"]["content"][0]["text"]) == LARGE
    assert results[1]["chunks"] == LARGE // (256 << 10)
    check_events(lines, WORKER)
    assert of(lines, "refused")[0]["code"] == "unauthorized"


@pytest.mark.timeout(120)
def test_against_a_supervisor(tmp_path: Path) -> None:
    files = tmp_path / "files"
    files.mkdir()
    (files / "small.txt").write_text("grüße")
    (files / "large.txt").write_text("x" * LARGE)
    config = timing() + DIRECT_AGENT + server_toml("files", *npm_server("filesystem"), str(files))
    read = "mcp:files/read_text_file"
    with Supervised(tmp_path, config) as interlock:
        interlock.wait_state("mcp:files", "READY")
        interlock.wait_state("agent:main", "READY")
        lines = run_client(
            {
                "connection": str(interlock.home.connection_file),
                "turn": f"{read} " + json.dumps({"path": str(files / "small.txt")}),
                "calls": [
                    [read, {"path": str(files / "small.txt")}],
                    ["mcp__files__read_text_file", {"path": str(files / "large.txt")}],
                    [read, {"path": "/nonexistent"}],
                    ["mcp:files/read_txt_file", {}],
                ],
                "restart": "mcp:files",
            }
        )
    workers = {row["name"] for row in of(lines, "status")[0]["status"]["workers"]}
    assert {"mcp:files", "agent:main"} <= workers
    items = [line["item"] for line in of(lines, "item")]
    assert [item["offset"] for item in items] == list(range(len(items)))
    assert items[0]["type"] == "turn.started"
    assert items[-1]["type"] == "turn.completed"
    answer = next(item for item in items if item["type"] == "tool.result")
    assert answer["content"][0]["text"] == "grüße"
    assert of(lines, "same_turn")[0]["state"] == "completed"
    results = of(lines, "result")
    # One after the other, all at once, and one after the other again after the restart.
    assert len(results) == 12
    for group in (results[:4], results[8:]):
        small, large, missing, unknown = group
        assert small["document"]["content"][0]["text"] == "grüße"
        assert len(large["document"]["content"][0]["text"]) == LARGE
        assert missing["outcome"] == "tool_error"
        assert unknown["outcome"] == "not_found"
        assert read in unknown["message"]
    assert sorted(result["outcome"] for result in results[4:8]) == [
        "not_found",
        "ok",
        "ok",
        "tool_error",
    ]
    assert {result["generation"] for result in results[:7] if "generation" in result} == {1}
    assert results[8]["generation"] == 2
    check_events(lines, "mcp:files")
    assert of(lines, "refused")[0]["code"] == "unauthorized"
