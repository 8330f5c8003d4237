"""The gate in a running supervisor: what a turn is offered, why, and what stays reachable."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from fault_rig import until
from supervised import DIRECT_AGENT, Supervised, server_toml, timing
from tool_lists import CODE_HOST, LISTS, NOTEBOOKS

from interlock.bus import messages

SERVER = str(Path(__file__).parents[1] / "listing_server.py")
TALKER = '[agents.talker]\nmodel = ""\n'
GITHUB, NOTEBOOKLM = "mcp:github", "mcp:notebooklm"


def listing(name: str, tools: str, *more: str, **settings: Any) -> str:
    # Without `site`, which costs such a small program most of its start.
    return server_toml(name, sys.executable, "-S", SERVER, tools, *more, **settings)


CONFIG = (
    timing()
    + DIRECT_AGENT
    + TALKER
    + listing("github", "code_host", usage_card=["pull request", "issue", "repo"])
    + listing("notebooklm", "notebooks")
)


@pytest.fixture(scope="module")
def interlock(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Supervised]:
    with Supervised(tmp_path_factory.mktemp("gate"), CONFIG) as running:
        for name in ("agent:main", "agent:talker", GITHUB, NOTEBOOKLM):
            running.wait_state(name, "READY")
        yield running


def servers(document: dict[str, Any]) -> list[str]:
    found = {row["source"] for row in document["capabilities"] if row["kind"] == "mcp"}
    return sorted(found)


def started(interlock: Supervised, text: str, **fields: Any) -> dict[str, Any]:
    """The first item of a turn of an agent that has no model, so nothing is called."""
    items = list(interlock.client.turn(text, agent="talker", **fields))
    assert items[0]["type"] == "turn.started"
    return dict(items[0])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("What will the weather be like tomorrow?", []),
        ("When does my flight to Lisbon leave?", []),
        ("Put lunch with Anna on my calendar for Friday", []),
        ("Make flashcards from chapter three", [NOTEBOOKLM]),
        ("Turn my notes into a mind map", [NOTEBOOKLM]),
        ("Which issues are still open in the website repo?", [GITHUB]),
        ("Open a pull request for this branch", [GITHUB]),
        ("What is the price of a flight to Rome in April?", []),
        ("call the emergency number", []),
        ("write a report", []),
        ("tissue box size", []),
        ("expression of interest", []),
        ("I will emerge soon", []),
        ("open source licence of curl?", []),
        ("What does notebook lm say about it?", [NOTEBOOKLM]),
        ("Use `mcp:notebooklm/quiz_create` for that", [NOTEBOOKLM]),
        ("mcp__github__list_commits, please", [GITHUB]),
    ],
)
def test_requests_get_the_servers_that_they_are_about(
    interlock: Supervised, text: str, expected: list[str]
) -> None:
    why = interlock.client.why(text, "talker")
    passed = [row["source"] for row in why["sources"] if row["offered"] and row["by"] == "gate"]
    assert passed == expected, why
    offer = interlock.client.tools(text, "talker")
    assert servers(offer) == expected
    counts = {GITHUB: len(CODE_HOST), NOTEBOOKLM: len(NOTEBOOKS)}
    held = {row["source"]: row["count"] for row in offer["withheld"] if row["by"] == "gate"}
    assert held == {name: count for name, count in counts.items() if name not in expected}
    assert started(interlock, text)["offered"] == len(offer["capabilities"])


def test_why_explains_every_source(interlock: Supervised) -> None:
    why = interlock.client.why("Open a pull request for this branch", "talker")
    assert why["request"] == "Open a pull request for this branch"
    assert 0 < why["threshold"] < 1
    rows = {row["source"]: row for row in why["sources"]}
    assert list(rows) == sorted(rows)
    github, notebooklm = rows[GITHUB], rows[NOTEBOOKLM]
    assert github["offered"] and github["by"] == "gate" and github["score"] >= why["threshold"]
    assert {"pull request"} <= {one["word"] for one in github["evidence"]}
    assert all(set(one) == {"word", "from", "weight"} for one in github["evidence"])
    assert not notebooklm["offered"] and notebooklm["score"] < why["threshold"]
    assert notebooklm["reason"] == "nothing in the request is about it"
    tokens = why["schema_tokens"]
    assert 0 < tokens["offered"] < tokens["all"]
    core = next(row for row in why["sources"] if row["source"].startswith("core:"))
    assert core["offered"] and core["by"] == "grant"


def test_a_conversation_goes_on_about_its_servers(interlock: Supervised) -> None:
    before = started(interlock, "do the same with that one", session="one")["offered"]
    first = started(interlock, "Which issues are open in the website repo?", session="one")
    assert first["offered"] == before + len(CODE_HOST)
    on = started(interlock, "do the same with that one", session="one")
    assert on["offered"] == first["offered"]
    why = interlock.client.why("do the same with that one", "talker", "one")
    (row,) = (row for row in why["sources"] if row["source"] == GITHUB)
    assert row["offered"] and row["via"] == "context"
    # Another matter, and another session: it is not about it any more.
    assert started(interlock, "What is the capital of Peru?", session="one")["offered"] == before
    assert started(interlock, "do the same with that one", session="two")["offered"] == before


def test_a_program_reaches_what_it_calls_in_any_spelling(interlock: Supervised) -> None:
    text = "ListCommits {}\ngithub.get_commit {}\nmcp__notebooklm__quizCreate {}\n"
    items = list(interlock.client.turn(text, agent="main"))
    calls = [item["capability"] for item in items if item["type"] == "tool.call"]
    assert calls == [
        "mcp:github/list_commits",
        "mcp:github/get_commit",
        "mcp:notebooklm/quiz_create",
    ]
    outcomes = [item["outcome"] for item in items if item["type"] == "tool.result"]
    assert outcomes == ["ok"] * 3


def test_what_the_gate_withholds_is_reached_by_its_name(interlock: Supervised) -> None:
    # The agent's offer has nothing of it: the name stands where the gate does not look.
    filler = "# " + "x" * 70_000 + "\n"
    text = f"{filler}mcp:github/list_commits {{}}\nmcp:github/get_commit {{}}"
    items = list(interlock.client.turn(text, agent="main"))
    outcomes = [item["outcome"] for item in items if item["type"] == "tool.result"]
    assert outcomes == ["ok", "ok"]


ORDERED = {"github": "code_host", "notebooklm": "notebooks", "times": "calendars", "x": "risky"}
WORKS = '[agents.talker]\nmodel = ""\ndescription = "Keeps GitHub issues and my calendar"\n'
ORDERS, STARTS = 20, 3
"""Random orders, and how many of them are those of a supervisor that has just started."""


def seen_in_order(interlock: Supervised, order: list[str], chance: random.Random) -> bytes:
    """What a turn and `tools` are told once the servers are ready, one after the other."""
    tables: list[str] = []
    for name in order:
        # Their tables stand in another order, too.
        tables.insert(chance.randint(0, len(tables)), listing(name, ORDERED[name]))
        place = interlock.mark()
        interlock.config.write_text(timing() + WORKS + "".join(tables))
        interlock.client.reload()
        interlock.wait_event("worker.ready", f"mcp:{name}", place)
    client = interlock.client
    text = "Open issues, flashcards, a calendar: mcp:github mcp:notebooklm mcp:times mcp:x"
    offer = client.request(messages.ToolsGet, text=text, agent="talker")
    assert servers(offer) == sorted(f"mcp:{name}" for name in ORDERED)
    assert offer["capabilities"][0]["source"] == GITHUB  # what the agent says it works with
    return msgspec.json.encode([offer, client.why(text, "talker"), client.tools()])


def forget(interlock: Supervised) -> None:
    """Take all servers away, so that the next ones are new to the supervisor."""
    interlock.config.write_text(timing() + WORKS)
    interlock.client.reload()
    until(lambda: {row["kind"] for row in interlock.client.status()["workers"]}.isdisjoint({"mcp"}))


@pytest.mark.timeout(120)
def test_the_order_in_which_servers_connect_does_not_show(tmp_path: Path) -> None:
    chance = random.Random(7)
    orders = [chance.sample(sorted(ORDERED), len(ORDERED)) for _ in range(ORDERS)]
    assert len(set(map(tuple, orders))) > ORDERS // 2
    seen: set[bytes] = set()
    for start in range(STARTS):
        with Supervised(tmp_path, timing() + WORKS) as interlock:
            for name in ("agent:talker", "core:basics"):
                interlock.wait_state(name, "READY")
            for order in orders[start::STARTS]:
                seen.add(seen_in_order(interlock, order, chance))
                forget(interlock)
    assert len(seen) == 1
    assert sum(map(len, LISTS.values())) > 50
