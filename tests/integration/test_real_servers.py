"""Six servers that other people wrote, in two languages, at once."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from npm import npm_server
from supervised import DIRECT_AGENT, Supervised, server_toml, timing

TOOLS = {"git": 12, "time": 2, "fetch": 1, "everything": 13, "filesystem": 14, "memory": 9}
PYTHON = ("git", "time", "fetch")


def python_server(name: str) -> str:
    """The command of a server that was installed beside this Python."""
    program = Path(sys.executable).parent / f"mcp-server-{name}"
    assert program.exists(), f"{program} is missing: `make test` installs what the tests need"
    return str(program)


def configuration(folder: Path) -> str:
    """Configuration of the six, and an agent that calls them."""
    files, repository = folder / "files", folder / "repository"
    files.mkdir()
    (files / "note.txt").write_text("grüße")
    subprocess.run(["git", "init", "--quiet", repository], check=True)
    memory = {"MEMORY_FILE_PATH": str(folder / "memory.jsonl")}
    tables = [
        server_toml("git", python_server("git"), "--repository", str(repository)),
        server_toml("time", python_server("time")),
        server_toml("fetch", python_server("fetch")),
        server_toml("everything", *npm_server("everything")),
        server_toml("filesystem", *npm_server("filesystem"), str(files)),
        server_toml("memory", *npm_server("memory"), env=memory),
    ]
    return timing() + DIRECT_AGENT + "".join(tables)


@pytest.mark.timeout(120)
def test_six_real_servers_answer_in_one_turn(tmp_path: Path) -> None:
    calls = {
        "mcp:git/git_status": {"repo_path": str(tmp_path / "repository")},
        "mcp:time/get_current_time": {"timezone": "Asia/Tokyo"},
        "mcp:fetch/fetch": {"url": "http://127.0.0.1:9/"},
        "mcp:everything/echo": {"message": "all the same"},
        "mcp:filesystem/read_text_file": {"path": str(tmp_path / "files" / "note.txt")},
        "mcp:memory/create_entities": {
            "entities": [{"name": "Ada", "entityType": "person", "observations": ["counts"]}]
        },
    }
    said = {
        "mcp:git/git_status": "No commits yet",
        "mcp:time/get_current_time": "Asia/Tokyo",
        "mcp:fetch/fetch": "127.0.0.1",
        "mcp:everything/echo": "Echo: all the same",
        "mcp:filesystem/read_text_file": "grüße",
        "mcp:memory/create_entities": "Ada",
    }
    with Supervised(tmp_path, configuration(tmp_path)) as interlock:
        interlock.wait_state("agent:main", "READY")
        for name, tools in TOOLS.items():
            row = interlock.wait_state(f"mcp:{name}", "READY", patience=60)
            assert row["tools"] == tools, row
            interlock.wait_for_children(f"mcp:{name}", 1)
        text = " & ".join(f"{name} {json.dumps(given)}" for name, given in calls.items())
        items = list(interlock.client.turn(text))
        assert items[-1]["type"] == "turn.completed"
        asked = {item["id"]: item["capability"] for item in items if item["type"] == "tool.call"}
        results = {asked[item["id"]]: item for item in items if item["type"] == "tool.result"}
        assert set(results) == set(calls)
        for name, result in results.items():
            # The fetch server refuses addresses of this machine; its refusal is its answer.
            refused = name.startswith("mcp:fetch")
            assert result["outcome"] == ("tool_error" if refused else "ok"), result
            assert said[name] in result["content"][0]["text"]
            assert said[name] in items[-1]["text"]
        for name in calls:
            interlock.wait_for(
                lambda event, name=name: (
                    event.get("capability") == name
                    and event["topic"] in ("tool.completed", "tool.failed")
                )
            )
        status = interlock.client.status()
        assert status["needs_attention"] == []
        rows = {row["name"]: row for row in status["workers"]}
        for name in TOOLS:
            row = rows[f"mcp:{name}"]
            assert (row["state"], row["restarts"]) == ("READY", 0)
            assert row["calls"] == 1
            program = f"mcp-server-{name}" if name in PYTHON else "index.js"
            assert any(child["command"] == program for child in row["children"]), row
