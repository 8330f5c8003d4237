"""What commands say to people: short texts, arguments of tools, calls by name, logs."""

from __future__ import annotations

import json
from typing import Any

import click
import pytest

from interlock.bus.errors import UsageError
from interlock.bus.nearest import nearest_worker
from interlock.supervisor.cli.app import app
from interlock.supervisor.cli.arguments import described
from interlock.supervisor.cli.attach import _line, _of
from interlock.supervisor.cli.logs import readable
from interlock.supervisor.cli.output import Options, cut
from interlock.supervisor.cli.session import _begun
from interlock.supervisor.cli.turn import _Show
from interlock.supervisor.lifecycle import inputs
from interlock.supervisor.lifecycle.states import State, Worker
from interlock.supervisor.lifecycle.step import step


@pytest.fixture(autouse=True)
def context() -> Any:
    with click.Context(app, obj=Options()):
        yield


def row(schema: Any) -> dict[str, Any]:
    return {
        "name": "mcp:git/log",
        "tier": "monitor",
        "connected": True,
        "reason": "",
        "summary": "Shows the log",
        "schema": schema,
    }


def test_a_tools_arguments_are_shown_with_a_call_to_begin_with() -> None:
    properties = {
        "repo": {"type": "string", "description": "where it is"},
        "count": {"type": "integer", "default": 10},
        "order": {"enum": ["new", "old"]},
        "since": {"anyOf": [{"type": "string"}, {"type": "null"}]},
    }
    assert described(row({"properties": properties, "required": ["repo"]})) == [
        "mcp:git/log (monitor)",
        "  Shows the log",
        "  repo: string, required: where it is",
        "  count: integer, optional, else 10",
        '  order: "new" | "old", optional',
        "  since: string or null, optional",
        '  interlock call mcp:git/log \'{"repo": "..."}\'',
    ]


@pytest.mark.parametrize(
    "schema",
    [
        None,
        7,
        {"properties": [1], "required": "x"},
        {"properties": {"a": 3}, "required": ["b", 1]},
        {"properties": {"a\x1b": {"type": {}, "enum": {}, "anyOf": [1], "description": [1]}}},
    ],
)
def test_a_schema_of_a_server_may_be_anything(schema: Any) -> None:
    lines = described(row(schema))
    assert lines[0] == "mcp:git/log (monitor)"
    assert "interlock call mcp:git/log" in lines[-1]
    assert not any("\x1b" in line for line in lines)


def test_a_text_that_is_cut_says_so() -> None:
    assert cut("as it is", 8) == "as it is"
    assert cut("longer than that", 8) == "longer…"


def test_the_nearest_worker() -> None:
    known = ["mcp:git", "mcp:time", "agent:main"]
    assert nearest_worker("gti", known) == "mcp:git"
    assert nearest_worker("agent:mian", known) == "agent:main"
    assert nearest_worker("postgres", known) == ""


def test_an_event_is_plain_words() -> None:
    event = {"topic": "catalog.changed", "time": 0.0, "seq": 1, "changed": ("mcp:a/b", "mcp:a/c")}
    assert _line(event, False).endswith(" catalog.changed  changed=mcp:a/b,mcp:a/c")
    event["changed"] = tuple(f"mcp:a/{n}" for n in range(26))
    assert _line(event, False).endswith(" catalog.changed  changed=26")


def test_a_snapshot_has_the_chosen_workers_only() -> None:
    rows = [{"name": "mcp:a"}, {"name": "mcp:b"}]
    status = {"supervisor": {}, "workers": rows, "needs_attention": rows}
    assert _of(status, frozenset()) == status
    assert _of(status, frozenset({"mcp:b"})) == {
        "supervisor": {},
        "workers": rows[1:],
        "needs_attention": rows[1:],
    }


def test_the_supervisors_log_is_read_by_people() -> None:
    line = {"timestamp": "2026-01-02T03:04:05.678+00:00", "level": "info", "event": "worker.ready"}
    text = readable(
        json.dumps(line | {"name": "mcp:git", "reason": "", "why": "a\nb", "n": [1, 2]})
    )
    assert text[2::3][:2] == "::"
    assert text[8:] == " info worker.ready name=mcp:git why=a\n    b n=1,2"
    for other in ("no json", "[1]", "7", '{"timestamp": 3, "level": "x", "event": "y"}'):
        assert readable(other) == other


def test_results_of_calls_name_their_call(capsys: pytest.CaptureFixture[str]) -> None:
    show = _Show(False)
    for number, text in ((1, "a"), (2, "b")):
        call = {"type": "tool.call", "id": str(number), "capability": "mcp:x/echo"}
        show.item(call | {"arguments": {"text": text}})
    result = {"type": "tool.result", "duration_ms": 40.0}
    show.item(result | {"id": "2", "outcome": "timeout"})
    show.item(result | {"id": "1", "outcome": "ok"})
    show.item({"type": "turn.completed", "text": ""})
    assert capsys.readouterr().err.splitlines()[2:] == [
        '<- mcp:x/echo {"text":"b"}: timeout after 40 ms',
        "<- mcp:x/echo: ok after 40 ms",
        "1 of 2 calls failed.",
    ]


def test_the_beginning_of_an_id_is_enough_if_it_is_the_only_one() -> None:
    def ids() -> list[str]:
        return ["ab12cd", "ab12ef", "ff00aa"]

    assert _begun("ff00", 0, ids) == "ff00aa"
    assert _begun("ff0", 0, ids) == "ff0", "too short to be meant"
    assert _begun("dddd", 0, ids) == "dddd"
    with pytest.raises(UsageError, match="ab12cd or ab12ef"):
        _begun("ab12", 0, ids)


@pytest.mark.parametrize("state", [State.BACKOFF, State.FAILED])
def test_a_worker_that_was_down_and_is_stopped_says_by_whom(state: State) -> None:
    worker = Worker(name="mcp:bad", kind="mcp", state=state)
    step(worker, inputs.Stop(now=1.0))
    assert (worker.state, worker.reason) == (State.STOPPED, "stopped by hand")
