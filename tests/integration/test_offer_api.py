"""What the api answers on offers and direct calls, with the runtime held in tables."""

from __future__ import annotations

import json
import time
from collections.abc import Awaitable
from pathlib import Path

import pytest
from turn_rig import KEY, Rig, refusal, run

from interlock.bus.messages import (
    Resolve,
    ToolsGet,
    WhyGet,
)
from interlock.bus.settings import AgentSettings, McpServerSettings, PolicySettings
from interlock.bus.tickets import verify


def tools(made: Rig, **fields: str) -> Awaitable[bytes]:
    return made.offers.tools(b"c", ToolsGet(id=1, key="", **fields), None)


def test_tools_are_listed_as_catalog_and_as_offer(tmp_path: Path) -> None:
    async def story(made: Rig) -> None:
        made.server(settings=McpServerSettings(disabled_tools=("git_log",)))
        made.server("off", ("a", "b"))
        made.server_state("off", "FAILED", "exit code 1")
        catalog = json.loads(await tools(made))
        assert catalog["agent"] == "main"
        assert [row["name"] for row in catalog["capabilities"]] == [
            "mcp:git/git_status",
            "mcp:off/a",
            "mcp:off/b",
        ]
        assert catalog["capabilities"][0] == {
            "name": "mcp:git/git_status",
            "wire": "mcp__git__git_status",
            "kind": "mcp",
            "source": "mcp:git",
            "tier": "monitor",
            "connected": True,
            "reason": "",
            "summary": "Does git_status.",
        }
        assert [(held["source"], held["by"]) for held in catalog["withheld"]] == [
            ("mcp:git", "disabled")
        ]
        offer = json.loads(await tools(made, text="all of mcp:git"))
        assert [row["name"] for row in offer["capabilities"]] == ["mcp:git/git_status"]
        assert offer["withheld"][1] == {
            "source": "mcp:off",
            "count": 2,
            "by": "state",
            "reason": "failed, exit code 1",
            "names": [],
        }
        assert (await refusal(tools(made, agent="nobody"))).code == "not_found"

    run(tmp_path, story)


def test_what_a_rule_withholds_is_named_and_asked_for_by_name_says_why(tmp_path: Path) -> None:
    async def story(made: Rig) -> None:
        made.runtime.rules = PolicySettings(block=("mcp:git/git_log", "mcp:all/*"))
        made.server()
        made.server("all", [f"t{n}" for n in range(6)])
        held = {row["source"]: row for row in json.loads(await tools(made))["withheld"]}
        assert held["mcp:git"]["names"] == ["mcp:git/git_log"]
        assert (held["mcp:all"]["count"], len(held["mcp:all"]["names"])) == (6, 5)
        for name in ("mcp:git/git_log", "mcp__git__git_log", "all"):
            refused = await refusal(tools(made, name=name))
            assert refused.code == "denied", name
            assert "blocked by policy" in refused.message
        assert (await refusal(tools(made, name="mcp:git/gone"))).code == "not_found"

    run(tmp_path, story)


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("mcp:git/git_status", ""),
        ("mcp__git__git_status", ""),
        ("git_status", "not_found"),
        ("mcp:git/git_log", "denied"),
        ("mcp:off/a", "unavailable"),
    ],
)
def test_resolve_for_a_direct_call(tmp_path: Path, name: str, code: str) -> None:
    async def story(made: Rig) -> None:
        made.runtime.rules = PolicySettings(block=("mcp:git/git_log",))
        made.server(settings=McpServerSettings(call_timeout=5))
        made.server("off", ("a",))
        made.server_state("off", "FAILED", "exit code 1")
        answer = made.api.resolve(b"\x00c", Resolve(id=1, key="", capability=name), b"{}")
        if code:
            assert (await refusal(answer)).code == code
            return
        found = json.loads(await answer)
        target = found.pop("target")
        assert found == {
            "capability": "mcp:git/git_status",
            "local": "git_status",
            "timeout": 5,
            "timeout_max": 600,
        }
        claims = verify(KEY, target["ticket"], time.time(), "mcp:git", 1, "api:0063")
        assert claims.names == ("git_status",)

    run(tmp_path, story)


def test_a_rule_about_one_tool_is_not_why_its_server_is_left_out(tmp_path: Path) -> None:
    """Promise: `why` says what would have to be otherwise for anything to be offered."""

    async def story(made: Rig) -> None:
        made.runtime.settings = {"main": AgentSettings(model="direct", deny=("git-log",))}
        made.server("git", ("git_log", "git_status"))

        async def decided() -> tuple[str, str]:
            asked = WhyGet(id=1, key="")
            (source,) = json.loads(await made.offers.why(b"c", asked, b'"Bake a cake"'))["sources"]
            assert not source["offered"]
            assert {held["by"] for held in source["withheld"]} >= {"deny", source["by"]}
            return source["by"], source["reason"]

        assert await decided() == ("gate", "nothing in the request is about it")
        made.server_state("git", "FAILED", "exit code 1")
        assert await decided() == ("state", "failed, exit code 1")

    run(tmp_path, story)
