"""What a large configuration costs: the same for each entry, however many there are."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from types import FrameType

import pytest

from interlock.supervisor.config.meant import MOST_UNKNOWN
from interlock.supervisor.config.read import check_file, load


def calls_of(path: Path) -> int:
    """Count the calls of Python functions that a check of a file makes."""
    count = 0

    def on_event(frame: FrameType, event: str, argument: object) -> None:
        nonlocal count
        count += event == "call"

    before = sys.getprofile()
    sys.setprofile(on_event)
    try:
        found = check_file(path)
        settings, problems = found.settings, found.problems
    finally:
        sys.setprofile(before)
    assert settings.mcp_servers and not problems
    return count


def test_an_entry_costs_little(tmp_path: Path) -> None:
    """The types of the settings are looked at once, not for each server."""
    path = tmp_path / "interlock.toml"
    counts = []
    for servers in (100, 200):
        path.write_text("".join(f'[mcp_servers.s{n}]\ncommand = "x"\n' for n in range(servers)))
        counts.append(calls_of(path))
    assert counts[1] - counts[0] < 100 * 400


def test_thousands_of_replaced_entries_are_read_in_a_moment(tmp_path: Path) -> None:
    """A search of all keys for each entry would take longer than a test may."""
    shared = {f"s{n}": {"command": "x", "args": ["a"]} for n in range(12_000)}
    (tmp_path / ".mcp.json").write_text(json.dumps({"mcpServers": shared}))
    own = "".join(f'[mcp_servers.s{n}]\ncommand = "y"\n' for n in range(12_000))
    (tmp_path / "interlock.toml").write_text(own)
    environ = {"HOME": str(tmp_path)}
    loaded = load(tmp_path / "home", tmp_path, None, environ, trust_all=True)
    assert {entry.settings.command for entry in loaded.settings.mcp_servers.values()} == {"y"}
    assert {problem.code for problem in loaded.problems} == {"shadowed"}


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ('[mcp_servers.a]\ncommand = "x"\n{keys}', "mcp_servers.a"),
        ("{keys}", "policy"),
        ("[policy]\n{keys}", "policy"),
        (
            '[mcp_servers.a]\ncommand = "x"\n[mcp_servers.a.tools.t]\n{keys}',
            "mcp_servers.a.tools.t",
        ),
    ],
)
def test_tens_of_thousands_of_unknown_keys_are_one_error(
    tmp_path: Path, text: str, key: str
) -> None:
    """Each is compared with what is known, which took half a minute; a supervisor reads it, too."""
    path = tmp_path / "interlock.toml"
    path.write_text(text.format(keys="".join(f"key{n} = 1\n" for n in range(20_000))))
    before = time.process_time()
    found = check_file(path)
    assert time.process_time() - before < 6.0
    last = [one for one in found.problems if one.key == key and one.code == "unread_key"]
    assert [one.message.partition(" not known")[0] for one in last] == [
        f"{20_000 - MOST_UNKNOWN} more keys that are"
    ]
    assert "a" not in found.settings.mcp_servers
    assert key != "policy" or "every capability asks" in last[0].message


def test_the_unknown_keys_of_many_entries_are_counted_together(tmp_path: Path) -> None:
    path = tmp_path / "interlock.toml"
    path.write_text("".join(f'[mcp_servers.s{n}]\ncomand = "x"\n' for n in range(5_000)))
    problems = check_file(path).problems
    warnings = [one for one in problems if one.code == "unknown_key"]
    refused = [one for one in problems if one.code == "unread_key"]
    assert (len(warnings), len(refused)) == (MOST_UNKNOWN, 5_000 - MOST_UNKNOWN)
