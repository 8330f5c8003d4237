"""Commands whose standard streams are closed, full, or lose their reader."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from command_line import PATIENCE, CommandLine, server_table

ECHO = '{"text": "hello"}'
TURN = f"mcp:small/echo {ECHO}"
FULL = "Standard output cannot be written: No space left on device.\n"


@pytest.fixture(scope="module")
def cli(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CommandLine]:
    line = CommandLine(tmp_path_factory.mktemp("streams"))
    config = server_table("small") + '[agents.main]\nmodel = "direct"\n'
    (line.folder / "c.toml").write_text(config)
    # A supervisor, too, can be started without any stream.
    done = line.shell("interlock up --detach --config c.toml <&- >&- 2>&-")
    assert done.returncode == 0
    try:
        line.run("start", "small", "agent:main")
        yield line
    finally:
        line.run("down")


COMMANDS = (
    "status",
    "status --json",
    f"call mcp:small/echo '{ECHO}'",
    "logs supervisor",
    f"turn '{TURN}'",
    f"turn '{TURN}' --json",
    f"turn '{TURN}' --detach",
    "--help",
    "--version",
)


@pytest.mark.parametrize("command", COMMANDS)
def test_closed_streams_are_no_mistake(cli: CommandLine, command: str) -> None:
    """What is closed is not written to, and the code is that of the command."""
    for closed in (">&-", "2>&-", "<&-", "<&- >&- 2>&-"):
        done = cli.shell(f"interlock {command} {closed}")
        assert done.returncode == 0, (closed, done)
        assert (">&-" in closed.split()) == (done.stdout == ""), (closed, done)
        assert "mistake" not in done.stderr and "Traceback" not in done.stderr


@pytest.mark.parametrize("command", ["turn -", "call mcp:small/echo -"])
def test_what_must_read_says_that_it_cannot(cli: CommandLine, command: str) -> None:
    done = cli.shell(f"interlock {command} <&-")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "Standard input is closed; give the text instead of `-`.\n"


@pytest.mark.parametrize("command", COMMANDS)
def test_a_full_disk_behind_the_output(cli: CommandLine, command: str) -> None:
    """One sentence and code 1; with JSON wanted, too, and Python adds no words of its own."""
    done = cli.shell(f"interlock {command} >/dev/full")
    assert done.returncode == 1, done
    assert "No space left on device" in done.stderr
    assert (done.stderr == FULL) or command == "--help" or command.startswith(f"turn '{TURN}'")
    assert "Traceback" not in done.stderr and "Exception ignored" not in done.stderr


@pytest.mark.parametrize("command", COMMANDS)
def test_a_reader_that_leaves(cli: CommandLine, command: str) -> None:
    done = cli.shell(f"interlock {command} | true; exit ${{PIPESTATUS[0]}}")
    assert done.returncode == 0, done
    assert not {"Traceback", "mistake", "ignored"} & set(done.stderr.split())


@pytest.mark.parametrize("command", ["attach", "attach --json", "logs -f supervisor", "turn-watch"])
def test_a_reader_that_leaves_while_nothing_happens(cli: CommandLine, command: str) -> None:
    """`attach | head -1` ends with its reader, not with the next event."""
    words = command.split()
    if command == "turn-watch":
        words.append(cli.json("turn", "mcp:small/mute {}", "--detach")["turn"])
    with cli.popen(*words) as process:
        assert process.stdout is not None and process.stderr is not None
        if command == "turn-watch":
            assert "mcp:small/mute" in process.stderr.readline()
        else:
            assert process.stdout.readline()
        process.stdout.close()
        assert process.wait(PATIENCE) == 0
    if command == "turn-watch":
        assert cli.json("turn-show", words[1])["state"] == "running"
        cli.run("turn-cancel", words[1])


def test_streams_that_do_not_block(cli: CommandLine) -> None:
    """Their owner has made them so: all is read, all is written, and no limit is to blame."""
    text = "x" * 1_000_000
    (words, speak), (hear, say) = os.pipe(), os.pipe()
    for end in (words, say):
        os.set_blocking(end, False)
    with cli.popen("call", "mcp:small/echo", "-", "--json", stdin=words, stdout=say) as process:
        os.close(words)
        os.close(say)
        with open(speak, "w") as asked:
            json.dump({"text": text}, asked)
        with open(hear) as answered:
            said = json.load(answered)
        assert process.stderr is not None
        assert (process.wait(PATIENCE), process.stderr.read()) == (0, "")
    assert said["content"][0]["text"] == text


def test_a_failure_is_told_where_that_is_possible(cli: CommandLine) -> None:
    for closed in (">&-", ">/dev/full", "| true; exit ${PIPESTATUS[0]}"):
        done = cli.shell(f"interlock turn-show {'f' * 32} --json {closed}")
        assert done.returncode == 1
        assert "turn" in done.stderr and done.stderr.count("\n") == 1, (closed, done)
    for closed in ("2>&-", "2>/dev/full"):
        done = cli.shell(f"interlock turn-show {'f' * 32} --json {closed}")
        assert (done.returncode, done.stderr) == (1, "")
        assert json.loads(done.stdout)["code"] == "not_found"


def test_no_stream_goes_to_a_file_of_ours(tmp_path: Path) -> None:
    """With all closed, what is written meets no socket or file that got the free number."""
    line = CommandLine(tmp_path)
    done = line.shell("interlock trust --yes <&- >&- 2>&-")
    assert done.returncode == 1
    (line.folder / "interlock.toml").write_text("")
    assert line.shell("interlock trust --yes <&- >&- 2>&-").returncode == 0
    for file in line.home.rglob("*"):
        if file.is_file():
            assert "Trusted" not in file.read_text(), file
    assert line.json("trust", "--list")["trusted"][0]["state"] == "trusted"
