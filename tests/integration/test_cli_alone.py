"""Commands without a supervisor: exit codes, sentences, files."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from command_line import CommandLine
from supervised import PATIENCE

from interlock.supervisor.cli.up import _last_words


@pytest.fixture
def cli(tmp_path: Path) -> CommandLine:
    return CommandLine(tmp_path)


@pytest.mark.parametrize(
    "arguments",
    [
        ("status",),
        ("down",),
        ("attach",),
        ("start", "git"),
        ("restart", "git", "time"),
        ("turn", "hello"),
        ("turns",),
        ("turn-show", "0" * 32),
        ("turn-watch", "0" * 32),
        ("turn-cancel", "0" * 32),
        ("call", "mcp:git/git_status"),
        ("tools",),
    ],
)
def test_without_a_supervisor_the_code_is_3(cli: CommandLine, arguments: tuple[str, ...]) -> None:
    out, err = cli.both(*arguments, code=3)
    assert out == ""
    assert err.count("\n") == len(arguments[1:] if arguments[0] == "restart" else [1])
    assert "interlock up" in err
    document = cli.json(*arguments, code=3)
    if arguments[0] not in ("start", "restart"):
        assert document["code"] == "no_supervisor"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("statsu",), "did you mean status?"),
        (("bogus",), "There is no command bogus; all are in `interlock --help`."),
        (("turn",), "Usage: interlock turn [OPTIONS] TEXT"),
        (("turn-show",), "`interlock turn-show --help` says more"),
        (("call", "mcp:x/y", "path=."), "`interlock tools mcp:x/y` shows what it takes."),
        (("turn", "x", "--id", "7"), "32 hex digits"),
        (("turn", "x", "--deadline", "0"), "deadline"),
        (("call", "mcp:x/y", "[1]"), "no JSON object"),
        (("call", "mcp:x/y", "{"), "no JSON object"),
        (("up", "--bogus"), "--bogus"),
        (("up", "--json"), "--detach"),
        (
            ("up", "interlock.toml"),
            "(interlock.toml). A file of configuration is named by `--config",
        ),
        (("turn", "hello", "there"), "(there). Put the whole text in quotes. See `interlock turn"),
        (("ps",), "did you mean status?"),
        (("help",), "did you mean --help?"),
        (("attach", "--nope"), "--nope"),
        (("logs", "git", "-n", "x"), "x"),
    ],
)
def test_wrong_usage_is_2_and_one_line(
    cli: CommandLine, arguments: tuple[str, ...], words: str
) -> None:
    _, err = cli.both(*arguments, code=2)
    assert words in err
    assert err.count("\n") == 1


def test_help_and_version_load_no_command(cli: CommandLine) -> None:
    assert "turn-watch" in cli.run("--help")
    assert cli.run("--version").startswith("interlock ")
    assert "Usage" in cli.run(code=2)


def test_home_may_stand_after_the_command(cli: CommandLine, tmp_path: Path) -> None:
    for arguments in (("--home", "other", "status"), ("status", "--home", "other")):
        assert str(cli.folder / "other") in cli.both(*arguments, code=3)[1]


def test_an_empty_home_is_not_the_current_folder(cli: CommandLine) -> None:
    """What an unset variable in a script leaves must not be taken for a choice."""
    for arguments in (("--home", "", "status"), ("validate", "--home", " ")):
        assert "--home is empty" in cli.both(*arguments, code=2)[1]


def test_status_loads_nothing_heavy(cli: CommandLine) -> None:
    code = (
        "import sys; from interlock.supervisor.cli.app import run; run(['status']);"
        "print(*sys.modules)"
    )
    out = subprocess.run(
        [sys.executable, "-c", code],
        env=cli.environ,
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    ).stdout.split()
    heavy = {"mcp", "rich", "asyncio", "tomllib", "yaml", "platformdirs", "psutil"}
    heavy |= {"hashlib", "interlock.bus.calling", "interlock.bus.events", "interlock.bus.feeds"}
    assert heavy.isdisjoint(out)
    assert "interlock.bus.client" in out


def test_validate(cli: CommandLine) -> None:
    file = cli.folder / "interlock.toml"
    file.write_text('[mcp_servers.git]\ncommand = "x"\n')
    assert "interlock.toml has 1 warning.\n" in cli.run("validate", "interlock.toml")
    file.write_text("")
    assert "in order" in cli.run("validate", "interlock.toml")
    file.write_text('[mcp_servers.git]\ncommand = "x"\ncomand = "y"\n')
    assert f"{file}:3" in cli.run("validate", "interlock.toml")
    file.write_text("[mcp_servers.git]\ncommand = 1\n")
    out = cli.run("validate", "interlock.toml", code=1)
    assert f"error: {file}:2: command must be text in quotes, not a number" in out
    document = cli.json("validate", code=1)
    assert not document["ok"]
    assert [problem["line"] for problem in document["problems"] if problem["line"]] == [2]
    file.write_text("[mcp_servers.git\n")
    assert f"{file}:1:17" in cli.both("validate", "interlock.toml", code=1)[1]
    assert "no such file" in cli.both("validate", "nowhere.toml", code=1)[1]


def test_validate_warns_of_a_rule_that_means_nothing(cli: CommandLine) -> None:
    file = cli.folder / "interlock.toml"
    file.write_text(
        '[mcp_servers.time]\ncommand = "sh"\n[mcp_servers.bad]\ncommand = 1\n[policy]\n'
        'ask = ["mcp:tiem/set_*", "mcp:bad/x"]\nblock = ["mcp:time/set"]\n'
    )
    out = cli.run("validate", "interlock.toml", code=1)
    assert f"{file}:6: 'mcp:tiem/set_*' in policy.ask matches nothing that is configured" in out
    assert "do: Did you mean mcp:time/set_*?" in out
    assert out.count("matches nothing") == 1


def test_validate_warns_of_what_cannot_run(cli: CommandLine) -> None:
    (cli.folder / "interlock.toml").write_text(
        """[mcp_servers.typo]
command = "mcp-server-tyme --key s3cret"
args = ["x"]
[mcp_servers.nowhere]
command = "sh"
cwd = "gone"
[mcp_servers.off]
command = "mcp-server-tyme"
enabled = false
[mcp_servers.filled]
command = "${SERVER}"
[mcp_servers.elsewhere]
url = "http://127.0.0.1:1/mcp"
[mcp_servers.fine]
command = "sh"
[cli_tools.nap]
command = "./nap"
[mcp_servers.folder]
command = "/usr/"
[mcp_servers.text]
command = "./interlock.toml"
[cli_tools.own]
command = "env"
args = ["interlock", "down"]
[agents.main]
model = "claude"
"""
    )
    out = cli.run("validate", "interlock.toml")
    warnings = [line.partition(": ")[2] for line in out.splitlines() if line.startswith("warning")]
    file = cli.folder / "interlock.toml"
    assert warnings == [
        f"{file}:1: mcp:typo: command not found: mcp-server-tyme and what follows it in `command`",
        f"{file}:4: mcp:nowhere: there is no folder {cli.folder / 'gone'}",
        f"{file}:10: mcp:filled: the variable SERVER is not set",
        f"{file}:13: servers at a url are not supported yet: this one does not run",
        f"{file}:16: cli:nap: command not found: ./nap",
        f"{file}:18: mcp:folder: /usr/ is a folder, not a program",
        f"{file}:20: mcp:text: ./interlock.toml cannot be run",
        f"{file}:22: cli:own: it would run Interlock itself, and agents never may",
        f"{file}:26: this model is not supported yet: every turn of the agent fails",
    ]
    assert out.count("    do: ") == 9
    assert out.endswith("interlock.toml has 9 warnings.\n")
    assert "s3cret" not in out


def test_validate_says_of_a_value_what_other_programs_mean_by_it(cli: CommandLine) -> None:
    (cli.folder / "a.json").write_text(
        """{"mcpServers": {
"a": {"command": "sh", "args": ["${workspaceFolder}/x", "${env:HOME}"]},
"b": {"command": "sh", "env": {"T": "${input:token}", "H": "${env:HOME:-x}"}},
"c": {"command": "sh", "env": {"T": "${keyring:t}"}},
"d": {"command": "no-such-npx -y x"}
}}"""
    )
    (cli.folder / "a.toml").write_text('[mcp_servers.e]\ncommand = "sh"\nargs = ["${env:HOME}"]\n')
    cli.environ["PYTHON_KEYRING_BACKEND"] = "keyring.backends.fail.Keyring"
    found = cli.json("validate", "a.json")["problems"]
    assert [(one["line"], one["message"]) for one in found] == [
        (2, "mcp:a: ${workspaceFolder} is no variable: only an editor knows it"),
        (
            3,
            "mcp:b: ${input:token} is no variable: editors ask a person for it, which Interlock "
            "does not",
        ),
        (4, "mcp:c: ${keyring:t} cannot be read: there is no system keyring here"),
        (5, "command looks like a whole command line; its words belong into args"),
    ]
    assert all(one["fix"] for one in found)
    (told,) = cli.json("validate", "a.toml")["problems"]
    assert told["message"].endswith("editors write the variable HOME so")
    assert told["fix"] == "Write ${HOME} in its place."


def test_validate_says_once_that_a_file_is_not_trusted_and_that_there_is_none(
    cli: CommandLine,
) -> None:
    out = cli.run("validate")
    assert "There is no configuration here." in out and "in order" not in out
    file = cli.folder / "interlock.toml"
    assert str(file) in out
    file.write_text("".join(f'[mcp_servers.s{n}]\ncommand = "sh"\n' for n in range(12)))
    out = cli.run("validate")
    assert out.count("interlock trust") == 1
    assert "at the next start none of its 12 entries acts" in out
    assert "The configuration has 1 warning." in out, "what is counted is shown"
    problems = cli.json("validate")["problems"]
    assert len(problems) == 12, "for programs each entry stays a row"


def test_validate_says_when_a_changed_file_counts(cli: CommandLine) -> None:
    file = cli.folder / "interlock.toml"
    file.write_text('[mcp_servers.s]\ncommand = "sh"\n')
    cli.run("trust", stdin="y\n")
    file.write_text('[mcp_servers.s]\ncommand = "bash"\n')
    out = cli.run("validate")
    assert "from the next start on every capability asks" in out


def test_trust_shows_asks_lists_and_revokes(cli: CommandLine) -> None:
    own = cli.folder / "interlock.toml"
    own.write_text(
        '[mcp_servers.git]\ncommand = "evil\\u001b[1m"\nargs = ["a b"]\nenv = {TOKEN = "s3cret"}\n'
    )
    (cli.folder / ".mcp.json").write_text('{"mcpServers": {"x": {"url": "http://x"}}}')
    out, _ = cli.both("trust", code=1, stdin="n\n")
    assert "mcp:git: start 'evil\\x1b[1m' 'a b' with variables TOKEN" in out
    assert "mcp:x: connect to http://x (not supported yet)" in out
    assert "s3cret" not in out
    assert cli.json("trust", "--list") == {"trusted": []}
    cli.run("trust", stdin="y\n")
    rows = cli.json("trust", "--list")["trusted"]
    assert [row["state"] for row in rows] == ["trusted", "trusted"]
    own.write_text("")
    assert "changed" in cli.run("trust", "--list")
    cli.run("trust", "interlock.toml", "--yes")
    cli.run("trust", "--revoke", ".")
    assert cli.json("trust", "--list") == {"trusted": []}
    cli.both("trust", "--revoke", ".", code=1)
    own.write_text("[")
    assert "mend it first" in cli.both("trust", "--yes", code=1)[1]
    assert "does not exist" in cli.both("trust", "nowhere", code=1)[1]


def test_trust_shows_all_that_counts_and_nothing_can_hide_it(cli: CommandLine) -> None:
    """Promise: a person who says yes has seen what the files would do."""
    (cli.folder / "interlock.toml").write_text(
        """[mcp_servers.git]
command = "x"
args = ["a\\n  mcp:git: do nothing", "\\u202etxt", "\\u2028", "\\u200b"]
tier = "safe"
tools.rm.tier = "monitor"
disabled_tools = []
[mcp_servers.other]
args = ["-c", "y"]
[policy]
allow = ["*"]
approval = "never"
[agents.main]
deny = []
"""
    )
    shown = [
        "  mcp:git: start x 'a\\n  mcp:git: do nothing' '\\u202etxt' '\\u2028' '\\u200b', "
        'tier = "safe", disabled_tools = [], tier of rm = "monitor"',
        "  mcp:other: change args (args: -c y)",
        '  policy: set allow = ["*"], approval = "never"',
        "  agent:main: set deny = []",
    ]
    out, _ = cli.both("trust", code=1, stdin="n\n")
    assert out.splitlines()[1:] == shown
    # With --json standard output is for the document alone.
    _, err = cli.both("trust", "--json", code=1, stdin="n\n")
    assert err.splitlines()[1:5] == shown


def test_up_says_why_it_cannot(cli: CommandLine) -> None:
    file = cli.folder / "c.toml"
    file.write_text("a = \n")
    for arguments in (("up",), ("up", "--detach")):
        out, err = cli.both(*arguments, "--config", "c.toml", code=1)
        assert out == ""
        assert err.startswith(f"{file}:1:5: this is not valid TOML")
        assert err.count("\n") == 1
    document = cli.json("up", "--detach", "--config", "nowhere.toml", code=1)
    assert document["code"] == "start_failed"
    cli.home.rename(cli.home.with_name("old"))
    cli.home.write_text("")
    assert "--home" in cli.both("up", "--detach", code=1)[1]


def test_logs_of_a_worker_that_ran_once(cli: CommandLine) -> None:
    logs = cli.home / "logs"
    logs.mkdir(parents=True)
    (logs / "mcp-git.log.1").write_text("one\ntwo\n")
    (logs / "mcp-git.log").write_text("three\nf\x1b[31mour\n")
    assert cli.run("logs", "git", "-n", "3") == "two\nthree\nf\\x1b[31mour\n"
    assert cli.run("logs", "mcp:git", "-n", "0") == ""
    lines = [json.loads(line) for line in cli.run("logs", "git", "--json").splitlines()]
    assert [line["line"] for line in lines] == ["one", "two", "three", "f\x1b[31mour"]
    assert "no log" in cli.both("logs", "time", code=1)[1]
    for worker in ("cli:nap", "core:basics", "agent:main"):  # of whatever kind
        kind, _, name = worker.partition(":")
        (logs / f"{kind}-{name}.log").write_text(f"{worker}\n")
        assert cli.run("logs", name) == cli.run("logs", worker) == f"{worker}\n"


def test_trust_says_which_file_stops_counting(cli: CommandLine) -> None:
    above, below = cli.folder / "interlock.toml", cli.folder / "sub" / "interlock.toml"
    below.parent.mkdir()
    above.write_text('[policy]\nblock = ["mcp:x/*"]\n')
    below.write_text("")
    cli.run("trust", "--yes")
    out, _ = cli.both("trust", "sub", code=1, stdin="n\n")
    assert f"In place of {above}" in out
    cli.run("trust", "sub", "--yes")
    assert "In place of" not in cli.run("trust", "sub", "--yes")


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir], ids=["pipe", "folder"])
def test_down_says_what_is_wrong_with_the_lock_where_nothing_runs(
    cli: CommandLine, make: Callable[[Path], None]
) -> None:
    lock = cli.home / "supervisor.lock"
    cli.home.mkdir(mode=0o700, exist_ok=True)
    make(lock)
    out, err = cli.both("down", code=3)
    assert out == "" and err.count("\n") == 1
    assert f"No supervisor is running on {cli.home}." in err and f"{lock} cannot be used" in err


def test_a_pipe_for_what_a_supervisor_says_at_its_start_holds_nobody_up(tmp_path: Path) -> None:
    said = tmp_path / "up.log"
    with subprocess.Popen([sys.executable, "-c", "raise SystemExit(7)"]) as ended:
        pass
    os.mkfifo(said)
    found: list[str] = []
    look = threading.Thread(target=lambda: found.append(_last_words(said, ended)), daemon=True)
    look.start()
    look.join(PATIENCE)
    assert found and str(said) in found[0]
    said.unlink()
    said.write_text("first\nlast\n")
    assert _last_words(said, ended) == "last"
