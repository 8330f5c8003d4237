"""Commands against a running supervisor, as a user types them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from command_line import CommandLine, server_table

from interlock.bus.client import connect

CONFIG = (
    server_table("small")
    + server_table("off", enabled=False)
    + '[mcp_servers.gone]\ncommand = "no-such-command"\n'
    + '[agents.main]\nmodel = "direct"\n'
)
ECHO = 'mcp:small/echo {"text": "hello"}'


@pytest.fixture(scope="module")
def cli(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CommandLine]:
    line = CommandLine(tmp_path_factory.mktemp("cli"))
    (line.folder / "c.toml").write_text(CONFIG)
    line.run("up", "--detach", "--config", "c.toml")
    try:
        line.run("start", "small", "agent:main")
        yield line
    finally:
        line.run("down")


def test_a_second_supervisor_is_refused_with_the_pid(cli: CommandLine) -> None:
    pid = cli.json("status")["supervisor"]["pid"]
    for arguments in (("up",), ("up", "--detach")):
        assert f"pid {pid}" in cli.both(*arguments, code=1)[1]


def test_status(cli: CommandLine) -> None:
    document = cli.json("status")
    assert {row["name"] for row in document["workers"]} >= {"agent:main", "mcp:small", "mcp:gone"}
    (one,) = cli.json("status", "small")["workers"]
    assert one["name"] == "mcp:small"
    assert one["state"] == "READY"
    out = cli.run("status")
    assert "\x1b" not in out
    assert "needs attention" in out
    assert "command not found: no-such-command" in out
    assert "mcp:small" in cli.both("status", "nobody", code=1)[1]
    for command in ("status", "stop", "logs"):
        assert "Did you mean mcp:small?" in cli.both(command, "smal", code=1)[1]


def test_start_and_restart_say_the_outcome(cli: CommandLine) -> None:
    assert "mcp:small is READY" in cli.run("restart", "small")
    told = cli.both("start", "gone", code=1)[1]
    assert "command not found: no-such-command. Install it, or write its full path" in told
    assert "the PATH is that of `interlock up`" in told
    assert cli.json("stop", "small")["workers"][0]["state"] == "STOPPED"
    document = cli.json("start", "small", "gone", code=1)
    assert [row["state"] for row in document["workers"]] == ["READY", "FAILED"]
    assert "no worker" in cli.both("stop", "nobody", code=1)[1]


def test_call(cli: CommandLine) -> None:
    assert cli.run("call", "mcp:small/echo", '{"text": "hi"}') == "hi\n"
    assert cli.run("call", "mcp:small/echo", "-", stdin='{"text": "in"}') == "in\n"
    document = cli.json("call", "mcp__small__echo", '{"text": "hi"}')
    assert document["outcome"] == "ok"
    assert document["content"] == [{"type": "text", "text": "hi"}]
    assert (
        cli.json("call", "mcp:small/echo", '{"text": "error"}', code=1)["outcome"] == "tool_error"
    )
    assert cli.json("call", "mcp:small/nope", code=1)["outcome"] == "not_found"
    assert cli.json("call", "mcp:gone/x", code=1)["outcome"] in ("unavailable", "not_found")
    assert cli.json("call", "mcp:small/mute", "--timeout", "0.2", code=5)["outcome"] == "timeout"


def test_tools_by_name_shows_what_they_take(cli: CommandLine) -> None:
    out = cli.run("tools", "mcp:small/echo")
    assert "text: string, optional" in out
    assert "  interlock call mcp:small/echo" in out
    assert "mcp:small/mute" not in out
    (one,) = cli.json("tools", "mcp__small__echo")["capabilities"]
    assert one["schema"]["properties"] == {"text": {"type": "string"}}
    rows = cli.json("tools", "small")["capabilities"]
    assert [row["name"] for row in rows] == ["mcp:small/echo", "mcp:small/mute"]
    assert "schema" not in cli.json("tools")["capabilities"][0]
    assert "did you mean mcp:small/echo?" in cli.both("tools", "mcp:small/ecko", code=1)[1]
    assert (
        "`interlock tools" not in cli.both("call", "mcp:small/echo", '{"text": "error"}', code=1)[1]
    )


def test_the_beginning_of_a_turns_id_is_enough(cli: CommandLine) -> None:
    turn = "5eed" + "0" * 28
    cli.run("turn", ECHO, "--id", turn)
    assert turn in cli.run("turn-show", "5eed")
    assert cli.lines("turn-watch", "5eed")[0]["turn"] == turn
    assert cli.json("turn-cancel", "5eed")["turn"] == turn


def test_turn(cli: CommandLine) -> None:
    out, err = cli.both("turn", ECHO)
    assert out == "hello\n"
    assert "-> mcp:small/echo" in err
    items = cli.lines("turn", ECHO)
    assert [item["offset"] for item in items] == list(range(len(items)))
    assert items[0]["type"] == "turn.started"
    assert items[-1]["type"] == "turn.completed"
    turn = items[0]["turn"]
    assert cli.lines("turn-watch", turn, "--offset", "1") == items[1:]
    assert cli.lines("turn", ECHO, "--id", turn) == items
    assert cli.run("turn", "-", stdin=ECHO) == "hello\n"
    shown = cli.json("turn-show", turn)
    assert [call["outcome"] for call in shown["calls"]] == ["ok"]
    assert turn in cli.run("turn-show", turn)
    assert cli.json("turns")["turns"][0]["state"] == "completed"
    assert turn in cli.run("turns")


def test_a_turn_that_has_ended_can_be_watched_from_its_end(cli: CommandLine) -> None:
    """Whoever resumes where the stream ended learns how the turn did, not that it is lost."""
    items = cli.lines("turn", ECHO)
    for beyond in (0, 100):
        offset = str(len(items) + beyond)
        out, err = cli.both("turn-watch", items[0]["turn"], "--offset", offset)
        assert out == "" and err.endswith("it has ended: completed.\n")
    late = cli.lines("turn", "mcp:small/mute {}", "--deadline", "0.3", code=5)
    arguments = ("turn-watch", late[0]["turn"], "--offset", str(len(late)))
    assert cli.both(*arguments, code=5)[1].endswith("it has ended: failed.\n")
    assert cli.lines(*arguments, code=5) == []


def test_a_turn_names_the_file_that_holds_the_whole_of_a_result(cli: CommandLine) -> None:
    text = "ä" * 20_000
    items = cli.lines("turn", f"mcp:small/echo {json.dumps({'text': text})}")
    (shown,) = [item["content"] for item in items if item["type"] == "tool.result"]
    assert text.startswith(shown[0]["text"]) and "cut here" in shown[1]["text"]
    whole = Path(shown[-1]["text"])
    assert whole.is_absolute() and whole.parent.parent == cli.home / "results"
    assert whole.read_text("utf-8") == text
    assert whole.stat().st_mode & 0o777 == 0o600
    assert cli.lines("turn-watch", items[0]["turn"]) == items


def test_turns_that_end_badly(cli: CommandLine) -> None:
    assert "turn.failed" in cli.run("turn", "in plain words", "--json", code=1)
    assert (
        cli.lines("turn", "mcp:small/mute {}", "--deadline", "0.3", code=5)[-1]["code"]
        == "deadline"
    )
    assert "agent" in cli.both("turn", ECHO, "--agent", "nobody", code=1)[1]
    cli.both("turn-show", "f" * 32, code=1)


def test_ctrl_c_cancels_the_turn(cli: CommandLine) -> None:
    with cli.popen("turn", "mcp:small/mute {}", "--json") as process:
        assert process.stdout is not None
        items = []
        for line in process.stdout:
            items.append(json.loads(line))
            if items[-1]["type"] == "tool.call":
                process.send_signal(signal.SIGINT)
        assert process.wait(30) == 1
    assert items[-1]["type"] == "turn.cancelled"
    assert [item["offset"] for item in items] == list(range(len(items)))


def test_a_detached_turn_is_cancelled_by_hand(cli: CommandLine) -> None:
    turn = cli.json("turn", "mcp:small/mute {}", "--detach")["turn"]
    assert cli.json("turn-cancel", turn)["turn"] == turn
    assert cli.lines("turn-watch", turn, code=1)[-1]["type"] == "turn.cancelled"
    assert cli.run("turn-cancel", turn) == f"turn {turn} is cancelled\n"
    running = cli.json("turn", "mcp:small/mute {}", "--detach")["turn"]
    assert f"turn {running} is being cancelled; " in cli.run("turn-cancel", running)
    cli.both("turn-watch", running, code=1)
    done = cli.lines("turn", ECHO)[0]["turn"]
    assert cli.run("turn-cancel", done) == f"turn {done} had ended before: completed\n"


def test_attach_streams_and_resumes(cli: CommandLine) -> None:
    with cli.popen("attach", "small", "--json", "--logs") as process:
        assert process.stdout is not None
        snapshot = json.loads(process.stdout.readline())
        assert snapshot["topic"] == "snapshot"
        cli.run("restart", "small")
        topics = []
        for line in process.stdout:
            document = json.loads(line)
            topics.append(document["topic"])
            assert document["name"] == "mcp:small"
            if {"log", "worker.ready"} <= set(topics):
                break
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 130
    since = f"{snapshot['epoch']}:{snapshot['seq']}"
    with cli.popen("attach", "--json", "--since", since) as process:
        assert process.stdout is not None
        first = json.loads(process.stdout.readline())
        assert first["seq"] == snapshot["seq"] + 1
        process.stdout.close()
        cli.run("restart", "small")
        assert process.wait(30) == 0
    cli.both("attach", "--since", "what", code=2)


def test_a_reader_that_leaves_is_no_failure(cli: CommandLine) -> None:
    for arguments in (("status",), ("tools",), ("attach",)):
        with cli.popen(*arguments) as process:
            assert process.stdout is not None
            process.stdout.close()
            if arguments == ("attach",):
                cli.run("restart", "small")
            assert process.stderr is not None
            assert process.stderr.read() == ""
            assert process.wait(30) == 0


def test_tools_and_logs(cli: CommandLine) -> None:
    document = cli.json("tools")
    assert document["agent"] == "main"
    names = [row["name"] for row in document["capabilities"] if row["kind"] == "mcp"]
    assert names == ["mcp:small/echo", "mcp:small/mute"]
    assert "mcp:small/echo" in cli.run("tools")
    assert cli.json("tools", "--for", "x")["capabilities"]
    assert "worker.ready" in cli.run("logs", "supervisor", "-n", "1000")
    assert cli.run("logs", "small")
    (cli.home / "logs" / "cli-earlier.log").write_text("of a worker that was removed since\n")
    assert cli.run("logs", "earlier") == "of a worker that was removed since\n"
    assert "mcp:small" in cli.both("logs", "nobody", code=1)[1]
    with cli.popen("logs", "small", "-f", "-n", "1") as process:
        assert process.stdout is not None
        assert process.stdout.readline(), "it follows from here on"
        cli.run("restart", "small")
        assert process.stdout.readline()
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 130


def test_trust_is_in_force_at_once(cli: CommandLine) -> None:
    file = cli.folder / "interlock.toml"
    with cli.popen("attach", "--json") as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline()
            file.write_text(server_table("late"))
            _until(process, "attention.changed", "mcp:late")
            assert "interlock trust" in cli.run("status")
            cli.run("trust", "--yes")
            _until(process, "worker.ready", "mcp:late")
            cli.run("trust", "--revoke")
            _until(process, "worker.stopped", "mcp:late")
        finally:
            file.unlink()
            process.kill()


def test_status_says_what_a_slow_server_is_waited_for(cli: CommandLine) -> None:
    file = cli.folder / "interlock.toml"
    file.write_text('[mcp_servers.mute]\ncommand = "sleep"\nargs = ["600"]\n')
    try:
        with connect(cli.home) as bus:
            for event in bus.events(["worker.initializing"]):
                if event["topic"] == "snapshot":
                    cli.run("trust", "--yes")
                elif event["name"] == "mcp:mute":
                    break
        out = cli.run("status", "mute")
        assert "INITIALIZING" in out
        assert "the server has not answered yet" in out
        with cli.popen("start", "mute") as process:
            assert process.stderr is not None
            line = process.stderr.readline()
            process.send_signal(signal.SIGINT)
        assert line.startswith("Waiting until mute is READY or has failed")
    finally:
        cli.run("trust", "--revoke")
        file.unlink()


def test_a_model_that_is_not_supported_needs_attention(cli: CommandLine) -> None:
    file = cli.folder / "interlock.toml"
    file.write_text('[agents.other]\nmodel = "claude"\n')
    try:
        cli.run("trust", "--yes")
        rows = cli.json("status")["needs_attention"]
        (row,) = [row for row in rows if row["code"] == "not_supported"]
        assert f"{file}:2: this model is not supported yet" in row["message"]
        assert "direct" in row["fix"]
    finally:
        cli.run("trust", "--revoke")
        file.unlink()


def test_an_entry_that_does_not_run_is_no_unknown_name(cli: CommandLine) -> None:
    """What status shows under needs attention is what every command says of that entry."""
    file = cli.folder / "interlock.toml"
    file.write_text(server_table("fine") + '[mcp_servers.broken]\ncomand = "x"\n')
    try:
        cli.shell("interlock trust --revoke; true")  # nobody trusts it
        with connect(cli.home) as bus:
            bus.reload()
        for command in (
            ("start", "fine"),
            ("status", "fine"),
            ("attach", "fine"),
            ("logs", "fine"),
            ("call", "mcp:fine/echo", "{}"),
        ):
            _, err = cli.both(*command, code=1)
            assert f"interlock trust {file}" in err, command
            assert "mcp:fine does not run: " in err
        assert cli.json("call", "mcp:fine/echo", "{}", code=1)["outcome"] == "not_found"
        cli.run("trust", "--yes")
        assert "mcp:fine is READY" in cli.run("start", "fine")
        for command in (("restart", "broken"), ("call", "mcp:broken/echo", "{}")):
            _, err = cli.both(*command, code=1)
            assert f"mcp:broken does not run: {file}:" in err
            assert "command or url is missing" in err
        cli.run("trust", "--revoke")
        assert "interlock trust" in cli.both("start", "fine", code=1)[1]
    finally:
        file.unlink()


def _until(process: subprocess.Popen[str], topic: str, name: str) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        event = json.loads(line)
        if (event["topic"], event.get("name")) == (topic, name):
            return


def test_up_in_the_foreground_tells_and_stops_in_order(tmp_path: Path) -> None:
    line = CommandLine(tmp_path)
    (line.folder / "c.toml").write_text(CONFIG)
    with line.popen("up", "--config", "c.toml") as process:
        assert process.stderr is not None
        told = []
        for text in process.stderr:
            told.append(text)
            so_far = "".join(told)
            if "mcp:small is READY" in so_far and "\n    do: Install it" in so_far:
                break
        assert any(f"(pid {process.pid})" in text for text in told)
        assert line.json("status")["supervisor"]["pid"] == process.pid
        os.kill(process.pid, signal.SIGINT)
        rest = process.stderr.read()
        assert process.wait(30) == 0
        assert "Traceback" not in rest
    line.run("status", code=3)
