"""What commands say to people: short texts, arguments of tools, calls by name, logs."""

from __future__ import annotations

import json
from typing import Any

import click
import pytest

from interlock.bus.errors import UsageError
from interlock.bus.messages import Progress
from interlock.bus.nearest import nearest_worker, no_worker
from interlock.supervisor.cli.app import app
from interlock.supervisor.cli.arguments import described
from interlock.supervisor.cli.attach import _line, _of
from interlock.supervisor.cli.call import Progression, _show, about_arguments
from interlock.supervisor.cli.logs import readable
from interlock.supervisor.cli.output import Options, cut
from interlock.supervisor.cli.session import _begun
from interlock.supervisor.cli.status import _attention, _left_out, told
from interlock.supervisor.cli.turn import _Show
from interlock.supervisor.cli.workers import _tell, _waiting
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


def test_what_asks_a_person_says_so_and_why() -> None:
    rules = [{"argument": "path", "matches": "/etc/*", "tier": "block"}]
    asks = row({"properties": {}}) | {"tier": "ask", "rules": rules}
    assert described(asks | {"tier_reason": "listed under ask"})[:4] == [
        "mcp:git/log (ask)",
        "  Shows the log",
        "  A person is asked before each call: listed under ask.",
        '  Where path fits "/etc/*": it is never called.',
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


def test_who_mistypes_a_worker_gets_the_name_or_a_few_to_choose_from() -> None:
    assert no_worker("tyme", ["mcp:git"], ["mcp:time"]).endswith(". Did you mean mcp:time?")
    assert no_worker("x", []) == "There is no worker x; none is configured."
    many = no_worker("postgres", [f"mcp:{n}" for n in range(15)])
    assert many.endswith("mcp:8, mcp:9 and 5 more.") and "Did you mean" not in many


def test_what_is_waited_for_is_a_sentence() -> None:
    assert _waiting("start", ["git", "time", "fetch"]).startswith(
        "Waiting until git, time and fetch are READY or have failed;"
    )
    assert _waiting("restart", ["agent:main"]).endswith("agent:main is READY or has failed.")
    assert _waiting("stop", ["git"]) == "Waiting until git has stopped."
    assert _waiting("stop", ["git", "time"]) == "Waiting until git and time have stopped."


def test_an_outcome_that_is_not_the_last_word_is_told_so(
    capsys: pytest.CaptureFixture[str],
) -> None:
    answer = {"name": "mcp:hang", "state": "BACKOFF", "reason": "it ended"}
    assert _tell("start", answer, False) == 1
    said = capsys.readouterr().err
    assert said.startswith("mcp:hang waits to be started again (BACKOFF): it ended.")


@pytest.mark.parametrize(
    ("text", "about"),
    [
        ("Error: ENOENT: no such file or directory", False),
        ("Refused to fetch https://a.example", False),
        ("git status: exit code 128", False),
        ("MCP error -32602: Invalid arguments for tool get-sum", True),
        ("1 validation error for git_log", True),
        ("missing 1 required positional argument", True),
    ],
)
def test_only_a_failure_about_arguments_points_to_them(text: str, about: bool) -> None:
    assert about_arguments([{"type": "text", "text": text}]) is about
    assert not about_arguments([{"type": "image"}, "x", {"text": 3}])


def test_the_text_of_a_resource_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    inner = {"uri": "memory://a", "text": "what it says"}
    _show([{"type": "resource", "resource": inner}, {"type": "image"}], to_output=True)
    assert capsys.readouterr().out == "what it says\n[image; shown with --json]\n"


def test_status_names_entries_that_do_not_run_and_counts_what_it_shows() -> None:
    untrusted = {"code": "untrusted", "message": "m", "fix": "interlock trust f"}
    rows = [
        {"name": "mcp:bad", "code": "wrong_type", "message": "m", "fix": "f"},
        {"name": "cli:odd", "code": "wrong_value", "message": "m", "fix": ""},
        {"name": "mcp:git", "code": "server_exited", "message": "m", "fix": "f"},
        {"name": "configuration", "code": "syntax", "message": "m", "fix": "f"},
        *({"name": f"mcp:u{n}", **untrusted} for n in range(3)),
    ]
    status = {"workers": [{"name": "mcp:git"}], "needs_attention": rows}
    assert _left_out(status) == ["mcp:bad and cli:odd do not run: see below"]
    assert _left_out({"workers": [{"name": "mcp:git"}], "needs_attention": rows[2:]}) == []
    assert told(rows) == 5


def failed(number: int, program: str = "nosuch") -> dict[str, Any]:
    fix = "Install it."
    message = f"command not found: {program}"
    return {"name": f"mcp:s{number}", "code": "command_not_found", "message": message, "fix": fix}


def test_many_that_fail_for_one_cause_are_summed_up() -> None:
    """Two hundred servers without their program were four hundred lines below the table."""
    rows = [failed(number) for number in range(200)]
    lines = _attention([*rows, {"name": "supervisor", "code": "x", "message": "m", "fix": "f"}])
    assert len(lines) == 2 + 2 * 10 + 2 + 2
    assert lines[2:4] == ["  mcp:s0: command not found: nosuch", "      do: Install it."]
    assert "  supervisor: m" in lines
    assert lines[-2:] == [
        "  190 more servers: command not found: nosuch",
        "      do: Install it; `interlock status --json` has them all",
    ]
    assert told(rows) == 11
    assert len(_attention(rows[:10])) == 2 + 2 * 10
    odd = _attention([*rows[:11], failed(11, "other")])
    assert odd[-2] == "  2 more servers: command not found: nosuch, or the like"
    assert len(_attention(rows, single=True)) == 2 + 2 * 200


def test_how_far_a_server_is_is_said_now_and_then(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whoever waits at a terminal for a long call saw nothing until its end."""
    seen = Progression()
    seen(Progress(id=1, progress=1.0, total=5.0, message="at\nwork"))
    seen(Progress(id=1, progress=2.0))
    monkeypatch.setattr("interlock.supervisor.cli.call.EVERY", 0.0)
    seen = Progression()
    seen(Progress(id=1, progress=3.5))
    first, second = capsys.readouterr().err.splitlines()
    assert first.startswith("... 1 of 5: at") and "work" in first and second == "... 3.5"


def test_an_event_is_plain_words() -> None:
    event = {"topic": "catalog.changed", "time": 0.0, "seq": 1, "changed": ("mcp:a/b", "mcp:a/c")}
    assert _line(event, False).endswith(" catalog.changed  changed=mcp:a/b,mcp:a/c")
    by = {"topic": "tool.started", "time": 0.0, "caller": "api:006b8b458e"}
    assert _line(by, False).endswith(" tool.started  caller=a-client")
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
    assert text[4::3][:5] == "-- ::", "the day, too: a supervisor runs for many"
    assert text[19:] == " info worker.ready name=mcp:git why=a\n    b n=1,2"
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
