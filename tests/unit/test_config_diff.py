"""Every kind of change, and what it means for the worker."""

from __future__ import annotations

from typing import Any

import pytest

from interlock.bus.settings import AgentSettings, Limits, McpServerSettings, PolicySettings
from interlock.supervisor.config import AgentEntry, ServerEntry, Settings, diff


def with_server(**keys: Any) -> Settings:
    settings = McpServerSettings(**{"command": "x", **keys})
    return Settings(mcp_servers={"git": ServerEntry(settings=settings, folder="/w")})


@pytest.mark.parametrize(
    ("keys", "kind"),
    [
        ({}, "unchanged"),
        ({"command": "y"}, "restart"),
        ({"args": ("a",)}, "restart"),
        ({"env": {"A": ""}}, "restart"),
        ({"cwd": "/tmp"}, "restart"),
        ({"type": "stdio"}, "restart"),
        ({"url": "http://x"}, "restart"),
        ({"headers": {"A": "b"}}, "restart"),
        ({"api_key_env": "K"}, "restart"),
        ({"limits": Limits(nice=1)}, "restart"),
        ({"limits": Limits(memory=1)}, "apply"),
        ({"call_timeout": 1.0}, "apply"),
        ({"init_timeout": 1.0}, "apply"),
        ({"disabled_tools": ("t",)}, "apply"),
        ({"tier": "ask"}, "apply"),
        ({"enabled": False}, "disabled"),
    ],
)
def test_change_of_one_server(keys: dict[str, Any], kind: str) -> None:
    found = diff(with_server(), with_server(**keys))
    assert getattr(found, kind) == ("mcp:git",)
    assert found.empty is (kind == "unchanged")


def test_workers_that_come_go_and_wake_up() -> None:
    agents = {"main": AgentEntry(settings=AgentSettings())}
    old = with_server(enabled=False)
    new = Settings(agents=agents)
    assert diff(old, new).added == ("agent:main",)
    assert diff(old, new).removed == ("mcp:git",)
    assert diff(old, with_server()).enabled == ("mcp:git",)
    assert diff(old, with_server(enabled=False, command="y")).apply == ("mcp:git",)


def test_a_moved_file_restarts_and_a_moved_line_does_not() -> None:
    settings = McpServerSettings(command="x")
    moved = Settings(mcp_servers={"git": ServerEntry(settings=settings, folder="/other")})
    assert diff(with_server(), moved).restart == ("mcp:git",)


def test_other_sections() -> None:
    found = diff(Settings(), Settings(policy=PolicySettings(ask=("*",))))
    assert (found.policy, found.supervisor, found.empty) == (True, False, False)
