"""Command lines: what a call may bring, and that none of them runs Interlock."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlock.bus.own import runs_interlock
from interlock.bus.settings import CliConfigure, CliToolSettings
from interlock.supervisor.config.clitools import cli_faults
from interlock.workers.cli import worker
from interlock.workers.cli.arguments import ArgumentError, input_schema, words


class FullQueue:
    """A host whose control queue takes nothing until `free` is set."""

    def __init__(self) -> None:
        self.tried, self.free = 0, False

    def send(self, *message: object) -> bool:
        self.tried += 1
        return self.free


def test_what_could_not_be_reported_is_tried_again_once_at_a_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(worker, "SEND_AGAIN", 0.0)
    host, kind = FullQueue(), worker.CliKind()
    kind._host = host  # type: ignore[assignment]
    body = msgspec.json.encode(
        CliConfigure(tool="t", settings=tool(), folder="/", results_folder="/nowhere")
    )

    async def apply_often() -> None:
        for _ in range(20):
            await kind.apply(body)
        host.tried, host.free = 0, True
        for _ in range(5):
            await asyncio.sleep(0)  # timers that are due run in the next turn of the loop

    asyncio.run(apply_often())
    assert host.tried == 1


def tool(**keys: Any) -> CliToolSettings:
    return msgspec.convert({"command": "x", **keys}, CliToolSettings)


GH = tool(subcommands=["pr list", "issue  view"])
DECLARED = tool(
    subcommands=["pr list"],
    arguments={
        "limit": {"type": "integer", "option": "--limit"},
        "state": {"option": "--state", "choices": ["open", "closed"]},
        "web": {"type": "boolean", "option": "--web"},
        "label": {"type": "list", "option": "--label"},
        "number": {"required": True},
    },
)


@pytest.mark.parametrize(
    ("settings", "given_", "line"),
    [
        (tool(), {}, []),
        (tool(), {"args": ["a b", "$(x)", ""]}, ["a b", "$(x)", ""]),
        (GH, {"args": ["pr", "list", "--json", "x"]}, ["pr", "list", "--json", "x"]),
        (GH, {"subcommand": "issue view", "args": ["7"]}, ["issue", "view", "7"]),
        (DECLARED, {"subcommand": "pr list", "number": "7"}, ["pr", "list", "7"]),
        (
            DECLARED,
            {
                "number": "7",
                "subcommand": "pr list",
                "web": True,
                "limit": -3,
                "label": ["a", "b"],
                "state": "open",
            },
            [
                *("pr", "list", "--limit", "-3", "--state", "open", "--web"),
                *("--label", "a", "--label", "b", "7"),
            ],
        ),
        (DECLARED, {"number": "7", "subcommand": "pr list", "web": False}, ["pr", "list", "7"]),
    ],
)
def test_lines(settings: CliToolSettings, given_: dict[str, Any], line: list[str]) -> None:
    assert words(settings, given_) == line


@pytest.mark.parametrize(
    ("settings", "given_", "says"),
    [
        (tool(), {"args": "ls -l"}, "list of texts"),
        (tool(), {"args": [1]}, "list of texts"),
        (tool(), {"argv": []}, "no argument"),
        (tool(), {"args": ["a\0b"]}, "cannot be passed"),
        (tool(), {"args": ["\ud800"]}, "cannot be passed"),
        (tool(), {"args": ["x" * 200_000]}, "too long"),
        (tool(), {"args": ["x"] * 600}, "more than"),
        (GH, {}, "pr list"),
        (GH, {"args": ["pr"]}, "pr list"),
        (GH, {"args": ["--repo", "x", "pr", "list"]}, "pr list"),
        (GH, {"args": ["pr", "listing"]}, "pr list"),
        (GH, {"subcommand": "pr merge"}, "pr list"),
        (GH, {"subcommand": ["pr", "list"]}, "pr list"),
        (DECLARED, {"subcommand": "pr list"}, "The argument number is missing"),
        (DECLARED, {"number": "7"}, "subcommand is one of"),
        (DECLARED, {"subcommand": "pr list", "number": "--web"}, "dash"),
        (DECLARED, {"subcommand": "pr list", "number": 7}, "text"),
        (DECLARED, {"subcommand": "pr list", "number": "7", "limit": True}, "whole number"),
        (DECLARED, {"subcommand": "pr list", "number": "7", "web": 1}, "true or false"),
        (DECLARED, {"subcommand": "pr list", "number": "7", "state": "all"}, "open, closed"),
        (DECLARED, {"subcommand": "pr list", "number": "7", "label": ["-x"]}, "dash"),
    ],
)
def test_refused_lines(settings: CliToolSettings, given_: dict[str, Any], says: str) -> None:
    with pytest.raises(ArgumentError, match=says):
        words(settings, given_)


_VALUES = st.one_of(
    st.none(), st.booleans(), st.integers(), st.text(), st.lists(st.text() | st.integers())
)


@given(st.dictionaries(st.sampled_from(["args", "subcommand", "number", "limit", "x"]), _VALUES))
def test_an_allow_list_holds_whatever_is_given(given_: dict[str, Any]) -> None:
    for settings in (GH, DECLARED):
        try:
            line = words(settings, given_)
        except ArgumentError:
            continue
        assert line[:2] in (["pr", "list"], ["issue", "view"])


def test_schemas() -> None:
    assert input_schema(GH)["properties"]["subcommand"]["enum"] == ["pr list", "issue  view"]
    schema = input_schema(DECLARED)
    assert schema["required"] == ["subcommand", "number"]
    assert schema["properties"]["state"] == {"type": "string", "enum": ["open", "closed"]}


@pytest.mark.parametrize(
    ("keys", "at"),
    [
        ({"command": ""}, ()),
        ({"subcommands": ["--help"]}, ("subcommands",)),
        ({"subcommands": [" "]}, ("subcommands",)),
        ({"arguments": {"a b": {}}}, ("arguments", "a b")),
        ({"arguments": {"a": {"option": "limit"}}}, ("arguments", "a", "option")),
        ({"arguments": {"a": {"option": "-a b"}}}, ("arguments", "a", "option")),
        ({"arguments": {"a": {"type": "boolean"}}}, ("arguments", "a", "option")),
        ({"arguments": {"a": {"type": "list", "choices": ["x"]}}}, ("arguments", "a", "choices")),
        ({"arguments": {"a": {"type": "list"}, "b": {}}}, ("arguments", "b")),
        (
            {"subcommands": ["x"], "arguments": {"subcommand": {}}},
            ("arguments", "subcommand"),
        ),
    ],
)
def test_faults_of_entries(keys: dict[str, Any], at: tuple[str, ...]) -> None:
    assert [where for where, _ in cli_faults(tool(**keys))] == [at]


def test_entries_without_fault() -> None:
    assert not list(cli_faults(GH)) and not list(cli_faults(DECLARED))


PYTHON = sys.executable


@pytest.mark.parametrize(
    "line",
    [
        ("/usr/bin/interlock",),
        ("/opt/x/INTERLOCK.exe", "status"),
        (PYTHON, "-m", "interlock.supervisor.cli", "down"),
        (PYTHON, "-minterlock.supervisor.cli"),
        (PYTHON, "-P", "-W", "error", "-Im", "interlock.supervisor.run"),
        (PYTHON, "-c", "import interlock.supervisor.cli as c; c.main()"),
        (PYTHON, "/usr/local/bin/interlock", "up"),
        (PYTHON, "-m", "runpy", "interlock.supervisor.cli", "down"),
        (PYTHON, "-m", "cProfile", "-m", "interlock.supervisor.cli"),
        (PYTHON, "-mpdb", "-m", "interlock.supervisor.cli"),
        (PYTHON, "-m", "timeit", "import interlock.supervisor.cli"),
        (PYTHON, "-m", "trace", "--trace", "/usr/bin/interlock"),
        ("/usr/bin/env", PYTHON, "-m", "runpy", "interlock.supervisor.cli"),
        ("/usr/bin/env", "-i", "interlock", "up"),
        ("/usr/bin/env", "A=b", "/x/y/interlock"),
        ("/bin/sh", "-c", "cd /; interlock down"),
        ("/bin/bash", "-lc", "x=1;exec /usr/bin/interlock status"),
        ("/usr/bin/timeout", "5", PYTHON, "-m", "interlock.supervisor.cli"),
        ("/usr/bin/uvx", "interlock", "status"),
        ("/usr/bin/pipx", "run", "interlock"),
    ],
)
def test_lines_that_run_interlock(line: tuple[str, ...]) -> None:
    assert runs_interlock(line, "/")


@pytest.mark.parametrize(
    "line",
    [
        (),
        ("/usr/bin/git", "commit", "-m", "interlock"),
        ("/usr/bin/gh", "repo", "view", "me/interlock"),
        ("/usr/bin/interlocking", "x"),
        ("/bin/echo", "interlock"),
        (PYTHON, "-m", "pip", "show", "interlock"),
        (PYTHON, "-c", "print('interlocked')"),
        (PYTHON, "/x/script.py", "interlock"),
        ("/bin/sh", "-c", "echo interlocking"),
        ("/usr/bin/env", "FOO=1", "ls"),
    ],
)
def test_lines_that_do_not(line: tuple[str, ...]) -> None:
    assert not runs_interlock(line, "/")


def test_links_and_copies_of_the_script(tmp_path: Path) -> None:
    script = tmp_path / "bin" / "interlock"
    script.parent.mkdir()
    script.write_text(
        f"#!{PYTHON}\nimport sys\nfrom interlock.supervisor.cli import main\nmain()\n"
    )
    link, hard, copy = (tmp_path / name for name in ("a", "b", "c"))
    link.symlink_to(script)
    os.link(script, hard)
    copy.write_bytes(script.read_bytes())
    for path in (link, hard, copy):
        assert runs_interlock((str(path),), "/"), path
        assert runs_interlock((PYTHON, str(path)), "/")
        assert runs_interlock(("/usr/bin/env", f"./{path.name}"), str(tmp_path))
    other = tmp_path / "other"
    other.write_text("#!/bin/sh\necho interlock\n")
    assert not runs_interlock((str(other),), "/")
