"""Nine real servers with 283 oddly named tools, and one with a tool that cannot be mended."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from odd_servers import SERVERS, TOOLS, seed
from supervised import DIRECT_AGENT, Supervised, rogue_toml, timing

from interlock.bus.names import CapabilityName, WorkerName

WORKERS = {server: str(WorkerName("mcp", server)) for server in SERVERS}
EVERYTHING = " ".join(WORKERS.values())


@pytest.fixture(scope="module")
def interlock(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Supervised]:
    config = timing() + DIRECT_AGENT
    config += "".join(rogue_toml(json.dumps(name), f"names={seed(name)}") for name in SERVERS)
    config += rogue_toml("mixed", "one_bad")
    with Supervised(tmp_path_factory.mktemp("names"), config) as running:
        for name in ("agent:main", "mcp:mixed", *WORKERS.values()):
            running.wait_state(name, "READY")
        yield running


def test_all_are_callable_in_a_turn_by_their_wire_names(interlock: Supervised) -> None:
    rows = [row for row in interlock.client.tools()["capabilities"] if row["kind"] == "mcp"]
    wires = {row["name"]: row["wire"] for row in rows if row["source"] != "mcp:mixed"}
    assert len(wires) == 283
    items = list(interlock.client.turn(" & ".join(wires.values()), deadline=120))
    calls = {item["id"]: item["capability"] for item in items if item["type"] == "tool.call"}
    said = {
        calls[item["id"]]: (item["outcome"], item["content"][0]["text"])
        for item in items
        if item["type"] == "tool.result"
    }
    assert said == {
        str(CapabilityName("mcp", server, tool)): ("ok", f"{tool} called")
        for server in SERVERS
        for tool in TOOLS[server]
    }


def test_the_list_does_not_depend_on_who_came_first(interlock: Supervised) -> None:
    before = json.dumps(interlock.client.tools())
    offered = json.dumps(interlock.client.tools(for_text=EVERYTHING))
    order = list(WORKERS.values())
    random.Random(7).shuffle(order)
    for name in order:
        assert interlock.client.control("stop", name)["state"] == "STOPPED"
    random.Random(8).shuffle(order)
    for name in order:
        assert interlock.client.control("start", name)["state"] == "READY"
    assert json.dumps(interlock.client.tools()) == before
    assert json.dumps(interlock.client.tools(for_text=EVERYTHING)) == offered


def test_one_impossible_schema_costs_one_tool(interlock: Supervised) -> None:
    rows = interlock.client.tools(for_text="mcp:mixed")["capabilities"]
    offered = [row["name"] for row in rows if row["source"] == "mcp:mixed"]
    assert offered == sorted(f"mcp:mixed/good_{n}" for n in range(11))
    (told,) = interlock.attention("mcp:mixed")
    assert (told["code"], told["subject"]) == ("tool_schema", "bad")
    assert "The tool bad is left out" in told["message"] and "'array'" in told["message"]
    assert told["fix"]
    assert interlock.client.call("mcp:mixed/bad", {}).outcome == "not_found"
    assert interlock.client.call("mcp:mixed/good_3", {}).outcome == "ok"


def test_validate_names_the_tool_without_starting_anything(tmp_path: Path) -> None:
    config = timing() + rogue_toml("mixed", "one_bad")

    def said() -> list[dict[str, str]]:
        command = [sys.executable, "-P", "-m", "interlock.supervisor.cli"]
        command += ["--home", str(tmp_path / "home"), "validate", str(running.config), "--json"]
        done = subprocess.run(command, capture_output=True, check=True, timeout=30)
        return [row for row in json.loads(done.stdout)["problems"] if row["code"] == "tool_schema"]

    with Supervised(tmp_path, config) as running:
        running.wait_state("mcp:mixed", "READY")
    (row,) = said()
    assert row["severity"] == "warning" and row["entry"] == "mcp:mixed" and row["fix"]
    assert "The tool bad is left out: its inputSchema has the type 'array'" in row["message"]
    assert row["line"] == config.splitlines().index("[mcp_servers.mixed]") + 1
    running.config.write_text(config.replace("one_bad", "resources"))
    assert said() == []
