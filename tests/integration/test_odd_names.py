"""Workers whose names hold characters with a meaning of their own, as a user types them.

Promise: what the configuration takes as a name works everywhere that a worker or agent is named.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from command_line import CommandLine, server_table

from interlock.bus.names import WorkerName

ODD = ("my tool", "a:b/c%")
CONFIG = "".join(
    f'[agents."{name}"]\nmodel = "direct"\n'
    + server_table("SERVER").replace("SERVER", f'"{name}"', 1)
    for name in ODD
)


@pytest.fixture(scope="module")
def cli(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CommandLine]:
    line = CommandLine(tmp_path_factory.mktemp("odd"))
    (line.folder / "c.toml").write_text(CONFIG + '[agents.main]\nmodel = "direct"\n')
    line.run("up", "--detach", "--config", "c.toml")
    try:
        workers = [row["name"] for row in line.json("status")["workers"]]
        line.run("start", *workers)
        yield line
    finally:
        line.run("down")


@pytest.mark.parametrize("name", ODD)
def test_an_agent_with_an_odd_name_takes_turns(cli: CommandLine, name: str) -> None:
    worker, server = str(WorkerName("agent", name)), str(WorkerName("mcp", name))
    for agent in (name, worker):
        items = cli.lines("turn", "--agent", agent, f'{server}/echo {{"text": "hello"}}')
        assert items[-1]["type"] == "turn.completed", items
        result = next(item for item in items if item["type"] == "tool.result")
        assert result["outcome"] == "ok"
        assert items[0]["agent"] == name
        assert cli.json("tools", "--agent", agent, "--for", f"{server}/echo")["agent"] == name
        assert cli.json("why", "--agent", agent, "echo")["agent"] == name
    assert {row["agent"] for row in cli.json("turns")["turns"][:2]} == {name}


@pytest.mark.parametrize("name", ODD)
def test_a_server_with_an_odd_name_is_started_stopped_read_and_called(
    cli: CommandLine, name: str
) -> None:
    server = str(WorkerName("mcp", name))
    assert cli.json("stop", server)["workers"][0]["name"] == server
    assert cli.json("start", f"mcp:{name}")["workers"][0]["state"] == "READY"
    assert cli.json("status", f"mcp:{name}")["workers"][0]["name"] == server
    assert cli.run("logs", server, "-n", "5") == cli.run("logs", f"mcp:{name}", "-n", "5")
    assert cli.run("call", f"{server}/echo", '{"text": "hi"}') == "hi\n"


def test_the_name_of_a_worker_means_its_agent(cli: CommandLine) -> None:
    assert cli.lines("turn", "--agent", "agent:main", "hello")[0]["agent"] == "main"
    assert (
        "There is no agent 'agent:nobody'"
        in cli.both("turn", "--agent", "agent:nobody", "hello", code=1)[1]
    )


def test_a_space_needs_no_escape_in_a_call(cli: CommandLine) -> None:
    assert cli.run("call", "mcp:my tool/echo", '{"text": "hi"}') == "hi\n"


def test_the_logs_of_odd_names_are_found_without_a_supervisor(cli: CommandLine) -> None:
    cli.run("down")
    try:
        for name in ODD:
            assert "Ready" in cli.run("logs", f"mcp:{name}")
        assert "Ready" in cli.run("logs", "agent:my tool")
    finally:
        cli.run("up", "--detach", "--config", "c.toml")
