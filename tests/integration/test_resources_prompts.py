"""Resources and prompts of a server, called like tools and told apart from them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from supervised import Supervised, rogue_toml, timing

ONE = "resource:x/memo%3A%2F%2F%2Fone"
TEMPLATE = "resource:x/memo%3A%2F%2F%2F%7B%2Bpath%7D%7B%3Fline%7D"
PROMPT = "prompt:x/greet"


@pytest.fixture(scope="module")
def interlock(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Supervised]:
    config = timing() + '[agents.main]\nmodel = "direct"\n'
    config += '[agents.reader]\nmodel = "direct"\ngrant = ["mcp:*", "resource:x/*"]\n'
    config += rogue_toml("x", "resources") + rogue_toml("mute", "resources=mute")
    with Supervised(tmp_path_factory.mktemp("extras"), config) as running:
        running.wait_for(
            lambda event: event["topic"] == "catalog.changed" and ONE in event["added"]
        )
        for name in ("agent:main", "agent:reader", "mcp:mute"):
            running.wait_state(name, "READY")
        yield running


def rows(interlock: Supervised, **how: Any) -> dict[str, dict[str, Any]]:
    return {row["name"]: row for row in interlock.client.tools(**how)["capabilities"]}


def test_they_are_rows_of_their_own_kind(interlock: Supervised) -> None:
    found = rows(interlock)
    assert {name: found[name]["kind"] for name in (ONE, TEMPLATE, PROMPT)} == {
        ONE: "resource",
        TEMPLATE: "resource",
        PROMPT: "prompt",
    }
    assert {found[name]["source"] for name in (ONE, TEMPLATE, PROMPT)} == {"mcp:x"}
    tools = [row for row in found.values() if row["kind"] == "mcp" and row["source"] == "mcp:x"]
    assert interlock.worker("mcp:x")["tools"] == len(tools)
    left_out = {row["subject"] for row in interlock.attention("mcp:x")}
    assert left_out == {"resource 3", "template 2"}


def test_they_are_called_like_tools(interlock: Supervised) -> None:
    call = interlock.client.call
    text = call(ONE, {}).content[0]
    assert text == {
        "type": "resource",
        "resource": {"uri": "memo:///one", "text": "contents of memo:///one"},
    }
    read = call(TEMPLATE, {"path": "a/b c", "line": "7"})
    assert read.content[0]["resource"]["uri"] == "memo:///a/b%20c?line=7"
    prompt = call(PROMPT, {"topic": "bees"})
    assert prompt.content == [{"type": "text", "text": "talk about bees"}]
    assert prompt.structured["messages"][0]["role"] == "user"
    assert call(ONE, {"x": 1}).outcome == "invalid_arguments"
    assert call(TEMPLATE, {"way": "x"}).outcome == "invalid_arguments"
    assert call("resource:x/memo%3A%2F%2F%2Fno%2Fwhere", {}).outcome == "tool_error"
    assert call("resource:x/none", {}).outcome == "not_found"


def test_a_turn_finds_and_calls_them_though_they_are_not_offered(interlock: Supervised) -> None:
    assert ONE not in rows(interlock, for_text="mcp:x")
    text = f'core:find_tools {{"query": "memo one"}}\n{ONE}'
    items = list(interlock.client.turn(text))
    found, read = (item for item in items if item["type"] == "tool.result")
    assert ONE in [row["name"] for row in found["structured"]["tools"]]
    assert read["outcome"] == "ok"
    event = interlock.wait_event("tool.completed", "mcp:x", turn=items[0]["turn"])
    assert event["capability"] == ONE


def test_an_agent_whose_grant_names_them_is_offered_them(interlock: Supervised) -> None:
    offered = rows(interlock, for_text="mcp:x", agent="reader")
    assert {ONE, TEMPLATE} <= offered.keys() and PROMPT not in offered
    denied = interlock.client.turn(f'{PROMPT} {{"topic": "x"}}', agent="reader")
    assert [item["outcome"] for item in denied if item["type"] == "tool.result"] == ["denied"]


def test_a_change_of_the_list_is_followed(interlock: Supervised) -> None:
    place = interlock.mark()
    interlock.client.call("mcp:x/add_resource", {"name": "memo:///two"})
    new = "resource:x/memo%3A%2F%2F%2Ftwo"
    interlock.wait_event("catalog.changed", "mcp:x", place, added=(new,))
    assert interlock.client.call(new, {}).outcome == "ok"
