"""What a turn finds of the rows that were not put before it, and how that joins its offer."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from turn_rig import KEY, Rig, rig

from interlock.bus.events import CatalogChanged
from interlock.bus.messages import OfferUpdate, TicketGrant, TicketRequest, ToolsFind, ToolsFound
from interlock.bus.names import local_name
from interlock.bus.settings import AgentSettings
from interlock.bus.tickets import verify
from interlock.supervisor.events.ports import WorkerView

T = "ab" * 16
CORE = "core:basics"
PAGE = local_name("resource", "file:///guide")
SECRET = local_name("resource", "file:///secret guide")


def run(tmp_path: Path, story: Callable[[Rig], Awaitable[None]]) -> None:
    async def whole() -> None:
        async with rig(tmp_path / "j.sqlite3") as made:
            made.runtime.views[CORE] = WorkerView(
                name=CORE, kind="core", state="READY", generation=1
            )
            made.agent()
            made.server("git", ("git_log",))
            made.server("files", ("read", PAGE, SECRET))
            await story(made)

    asyncio.run(whole())


def search(made: Rig, query: str, turn: str = T) -> tuple[ToolsFound, list[dict[str, Any]]]:
    made.turns.on_tools_find(CORE, 1, ToolsFind(id=len(made.runtime.sent), turn=turn, query=query))
    worker, _, message, body = made.runtime.sent[-1]
    assert worker == CORE and isinstance(message, ToolsFound)
    return message, json.loads(body or b'{"tools": []}')["tools"]


def updates(made: Rig) -> list[OfferUpdate]:
    return list(made.runtime.messages("agent:main", OfferUpdate))


def test_what_is_found_joins_the_turn_with_a_ticket(tmp_path: Path) -> None:
    async def story(made: Rig) -> None:
        await made.start(T, "mcp:git mcp:files")
        (dispatch,) = made.dispatches()
        assert [row.name for row in dispatch.offer] == ["mcp:files/read", "mcp:git/git_log"]
        _, (first, _) = search(made, "guide")
        assert first["name"] == "resource:files/file%3A%2F%2F%2Fguide"
        assert first.keys() == {"name", "wire", "summary"} and len(first["wire"]) <= 64
        (update,) = updates(made)
        assert {row.local for row in update.rows} == {PAGE, SECRET}
        (target,) = update.targets
        claims = verify(KEY, target.ticket, time.time(), "mcp:files", 1, "agent:main")
        assert claims.turn == T and set(claims.names) == {"read", PAGE, SECRET}
        assert search(made, "guide")[1] == [], "it is in the offer now"
        # What joined stays a part of the turn when its server restarts.
        made.server("files", ("read", PAGE, SECRET), generation=2)
        assert updates(made)[-1].targets and not updates(made)[-1].removed

    run(tmp_path, story)


def test_nothing_is_found_that_the_agent_may_not_use(tmp_path: Path) -> None:
    async def story(made: Rig) -> None:
        made.runtime.settings["main"] = AgentSettings(
            model="direct", grant=("mcp:files/*", "resource:*"), focus=(), deny=("*secret guide",)
        )
        await made.start(T, "mcp:git mcp:files")
        assert PAGE in {row.local for row in made.dispatches()[0].offer}
        assert search(made, "guide secret git_log")[1] == []
        made.runtime.settings["main"] = AgentSettings(model="direct", deny=("mcp:files",))
        assert search(made, "guide secret read")[1] == []
        request = TicketRequest(id=1, turn=T, capability="resource:files/file%3A%2F%2F%2Fguide")
        made.turns.on_ticket_request("agent:main", 1, request, None)
        (grant,) = made.runtime.messages("agent:main", TicketGrant)
        assert grant.code == "denied"
        assert updates(made) == []

    run(tmp_path, story)


def test_a_turn_that_is_over_finds_nothing(tmp_path: Path) -> None:
    async def story(made: Rig) -> None:
        assert search(made, "guide")[0].code == "unavailable"
        assert {row["name"] for row in search(made, "log guide", turn="")[1]} >= {"mcp:git/git_log"}
        made.server_state("git", "BACKOFF", "exit code 1")
        assert "mcp:git/git_log" not in {row["name"] for row in search(made, "log", turn="")[1]}

    run(tmp_path, story)


def test_rows_of_a_server_that_stays_down_go_after_their_time(tmp_path: Path) -> None:
    async def story(made: Rig) -> None:
        made.turns.stale_after = 0.05
        made.server_state("git", "BACKOFF", "exit code 1")
        told = [event for event in made.events if isinstance(event, CatalogChanged)]
        assert (told[-1].removed, told[-1].changed) == ((), ("mcp:git/git_log",))
        (row,) = made.catalog.rows_of("mcp:git")
        assert (row.connected, row.reason) == (False, "restarting, exit code 1")
        await made.until(lambda: not made.catalog.rows_of("mcp:git"))
        last = made.events[-1]
        assert isinstance(last, CatalogChanged) and last.removed == ("mcp:git/git_log",)
        made.server("git", ("git_log",), generation=2)
        last = made.events[-1]
        assert isinstance(last, CatalogChanged) and last.added == ("mcp:git/git_log",)

    run(tmp_path, story)


def test_what_the_gate_withholds_is_found(tmp_path: Path) -> None:
    async def story(made: Rig) -> None:
        await made.start(T, "mcp:files")
        assert {row.name for row in made.dispatches()[0].offer} == {"mcp:files/read"}
        assert search(made, "git log")[1][0]["name"] == "mcp:git/git_log"
        (update,) = updates(made)
        assert [row.name for row in update.rows] == ["mcp:git/git_log"]
        assert [target.worker for target in update.targets] == ["mcp:git"]

    run(tmp_path, story)
