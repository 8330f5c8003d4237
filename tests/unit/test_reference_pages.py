"""The reference pages name every command, option and key, with the defaults that are in force."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import click
import msgspec
import pytest

from interlock.bus import settings
from interlock.supervisor.bench.budgets import KEYS
from interlock.supervisor.cli.app import COMMANDS, app
from interlock.supervisor.config.sizes import parse_size

REFERENCE = Path(__file__).parents[2] / "docs" / "reference"
SECTIONS = {
    "## `[mcp_servers.NAME]`": (
        settings.McpServerSettings,
        settings.Limits,
        settings.ToolSettings,
    ),
    "## `[cli_tools.NAME]`": (settings.CliToolSettings, settings.CliArgument),
    "## `[agents.NAME]`": (settings.AgentSettings,),
    "## `[policy]`": (settings.PolicySettings,),
    "## `[supervisor]`": (settings.SupervisorSettings, settings.Timing),
}


def page(name: str) -> str:
    return (REFERENCE / f"{name}.md").read_text()


def rows(text: str) -> list[tuple[list[str], str]]:
    """The words in code of each table row's first cell, and its second cell."""
    cells = [line.split("|") for line in text.splitlines() if line.startswith("| `")]
    return [(re.findall(r"`([^`]+)`", row[1]), row[2].strip()) for row in cells]


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_and_option_is_described(name: str) -> None:
    text = page("commands")
    assert re.search(rf"`{name}[ `]", text), name
    command = app.get_command(click.Context(app), name)
    assert command is not None
    for parameter in command.params:
        if isinstance(parameter, click.Option):
            for option in parameter.opts:
                assert re.search(rf"(?<![-\w]){option}\b", text), (name, option)


@pytest.mark.parametrize("heading", SECTIONS)
def test_every_key_is_described(heading: str) -> None:
    section = page("configuration").partition(heading)[2].partition("\n## ")[0]
    assert section
    words = set(re.findall(r"`([a-z_]+)", section))
    for kind in SECTIONS[heading]:
        fields = {field.name for field in msgspec.structs.fields(kind)}
        assert fields <= words, fields - words


@pytest.mark.parametrize("heading", SECTIONS)
def test_defaults_are_the_ones_in_force(heading: str) -> None:
    section = page("configuration").partition(heading)[2].partition("\n## ")[0]
    in_force: dict[str, Any] = {}
    for kind in reversed(SECTIONS[heading]):
        in_force |= json.loads(msgspec.json.encode(kind()))
    checked = 0
    for keys, cell in rows(section):
        values = re.findall(r'"[^"]*"|\[.*?\]|\{.*?\}|[\w.]+', cell.replace("`", ""))
        if len(values) != len(keys) or keys == ["cwd"]:
            continue  # told in words
        for key, text in zip(keys, values, strict=True):
            value = json.loads(text)
            size = key in ("max_result", "max_output")
            assert (parse_size(value) if size else value) == in_force[key], key
            checked += 1
    assert checked


def test_every_measurement_is_described() -> None:
    assert {keys[0] for keys, _ in rows(page("bench"))} >= set(KEYS)
