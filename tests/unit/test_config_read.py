"""Layers, trust and the fate of bad files, on real files."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from config_place import Place, tier
from hypothesis import given, settings
from hypothesis import strategies as st

from interlock.bus.errors import ConfigError
from interlock.supervisor.config import Loaded, load
from interlock.supervisor.config.content import parse
from interlock.supervisor.config.reading import TRUST_FILE
from interlock.supervisor.config.text import BadFileError
from interlock.supervisor.config.trust import effects, write_trust


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def codes(loaded: Loaded) -> list[str]:
    return [problem.code for problem in loaded.problems]


def test_without_any_file_there_is_the_agent_main(place: Place) -> None:
    loaded = place.load()
    assert list(loaded.settings.workers()) == ["agent:main", "core:basics"]
    assert loaded.settings.agents["main"].settings.model == ""
    assert loaded.problems == ()


def test_later_layers_win_key_by_key(place: Place) -> None:
    place.user.write_text('[mcp_servers.git]\ncommand = "user"\nargs = ["a"]\nenv = {A = "1"}\n')
    place.own.write_text('[mcp_servers.git]\ncommand = "work"\nenv = {B = "2"}\n')
    place.local.write_text("[mcp_servers.git]\nconcurrency = 3\n")
    explicit = place.workspace / "other.toml"
    explicit.write_text("[mcp_servers.git]\nqueue = 7\n")
    place.trust(place.own, place.local)
    entry = place.load(explicit).settings.mcp_servers["git"]
    assert entry.settings.command == "work"
    assert entry.settings.args == ("a",)
    assert entry.settings.env == {"A": "1", "B": "2"}
    assert (entry.settings.concurrency, entry.settings.queue) == (3, 7)
    assert entry.origin.layer == "explicit"
    assert entry.folder == str(place.workspace)


def test_a_workspace_is_found_upwards(place: Place) -> None:
    place.own.write_text('[mcp_servers.git]\ncommand = "x"\n')
    below = place.workspace / "a" / "b"
    below.mkdir(parents=True)
    loaded = load(place.home, below, None, place.environ)
    assert codes(loaded) == ["untrusted"]


def test_untrusted_files_grant_nothing_and_are_listed(place: Place) -> None:
    place.own.write_text(
        '[mcp_servers.git]\ncommand = "x"\nargs = ["s3cret"]\n[policy]\nask=["*"]\n'
    )
    place.shared.write_text('{"mcpServers": {"time": {"command": "y"}}}')
    loaded = place.load()
    assert list(loaded.settings.workers()) == ["agent:main", "core:basics"]
    assert loaded.settings.policy.ask == ()
    listed = {(problem.entry, problem.fix) for problem in loaded.problems}
    assert listed == {
        ("mcp:git", f"interlock trust {place.own}"),
        ("", f"interlock trust {place.own}"),
        ("mcp:time", f"interlock trust {place.shared}"),
    }
    assert not any("s3cret" in problem.message for problem in loaded.problems)


def test_an_entry_that_gets_a_mistake_goes_on_as_it_was(place: Place) -> None:
    place.user.write_text(
        '[mcp_servers.a]\ncommand = "x"\n[mcp_servers.b]\ncommand = "y"\n[agents.w]\n'
    )
    first = place.load()
    place.user.write_text(
        '[mcp_servers.a]\ncommand = 3\n[mcp_servers.c]\nurl = "gopher:"\n[agents.w]\ndeny = 1\n'
    )
    second = place.load(previous=first)
    third = place.load(previous=second)
    assert third.settings == second.settings
    assert list(second.settings.workers()) == ["agent:main", "agent:w", "mcp:a", "core:basics"]
    assert second.settings.mcp_servers["a"] == first.settings.mcp_servers["a"]
    told = {problem.entry: problem.message for problem in second.problems}
    assert all("as it was before" in told[name] for name in ("mcp:a", "agent:w"))
    assert "before" not in told["mcp:c"]
    assert list(place.load().settings.workers()) == ["agent:main", "core:basics"]


def test_what_lost_its_trust_does_not_go_on_through_a_mistake_elsewhere(place: Place) -> None:
    place.own.write_text('[mcp_servers.a]\ncommand = "x"\n')
    place.user.write_text("[mcp_servers.a]\nqueue = 7\n")
    place.trust(place.own)
    first = place.load()
    assert "a" in first.settings.mcp_servers
    write_trust(place.home / TRUST_FILE, {})
    place.user.write_text('[mcp_servers.a]\nqueue = "seven"\n')
    assert place.load(previous=first).settings.mcp_servers == {}


@pytest.mark.parametrize(
    ("entry", "where"),
    [
        ('command = "x"', "work"),
        ('command = "/bin/x"', "work"),
        ('command = "x"\ncwd = "."', "config/interlock"),
        ('command = "./x"', "config/interlock"),
    ],
)
def test_a_server_of_the_users_own_file_runs_where_up_was_called(
    place: Place, entry: str, where: str
) -> None:
    place.user.write_text(f"[mcp_servers.a]\n{entry}\n")
    folder = place.load().settings.mcp_servers["a"].folder
    assert folder == str(place.workspace.parent / where)


def test_an_untrusted_file_cannot_flood(place: Place) -> None:
    entries = ", ".join(f'"s{n}": {{"command": "y"}}' for n in range(60))
    place.shared.write_text(f'{{"mcpServers": {{{entries}}}}}')
    problems = place.load().problems
    assert len(problems) == 51
    assert "10 more entries" in problems[-1].message


def test_a_changed_file_asks_again_and_what_was_trusted_runs_on(place: Place) -> None:
    place.own.write_text('[mcp_servers.git]\ncommand = "x"\n')
    place.trust(place.own)
    first = place.load()
    assert "git" in first.settings.mcp_servers
    place.own.write_text('[mcp_servers.evil]\ncommand = "y"\n')
    assert list(place.load().settings.mcp_servers) == []
    running = place.load(previous=first)
    assert list(running.settings.mcp_servers) == ["git"]
    assert codes(running) == ["untrusted", "changed"]
    assert "goes on" in running.problems[-1].message
    write_trust(place.home / TRUST_FILE, {})
    assert list(place.load(previous=running).settings.mcp_servers) == []


@pytest.mark.parametrize("filling", ["", "# " + "x" * (64 << 10)])
def test_at_a_start_a_file_that_lost_its_trust_by_a_change_opens_no_door(
    place: Place, filling: str
) -> None:
    """What it forbade is not known any more, so everything asks, and somebody is told."""
    place.own.write_text('[policy]\nblock = ["mcp:git/push"]\n')
    place.trust(place.own)
    assert place.load().settings.policy.ask == ()
    place.own.write_text(f"[policy]\nblock = []\n{filling}")
    loaded = place.load()
    assert "*" in loaded.settings.policy.ask and loaded.settings.policy.block == ()
    told = loaded.problems[-1]
    assert told.code == "changed" and "every capability asks" in told.message and told.fix
    place.trust(place.own)
    assert place.load().settings.policy.ask == ()
    place.own.write_text("[policy]\n# another\n")
    write_trust(place.home / TRUST_FILE, {})
    assert place.load().settings.policy.ask == ()


def test_a_changed_list_of_servers_forbade_nothing(place: Place) -> None:
    place.shared.write_text("{}")
    place.trust(place.shared)
    place.shared.write_text('{"mcpServers": {"time": {"command": "y"}}}')
    assert place.load().settings.policy.ask == ()


def test_the_named_file_is_trusted_and_read_once(place: Place) -> None:
    place.own.write_text('[mcp_servers.git]\ncommand = "x"\ncomand = 1\n')
    loaded = place.load(place.own)
    assert loaded.settings.mcp_servers["git"].origin.layer == "explicit"
    assert codes(loaded) == ["unknown_key"]


def test_a_broken_file_keeps_what_runs(place: Place) -> None:
    place.user.write_text('[mcp_servers.git]\ncommand = "x"\n')
    first = place.load()
    place.user.write_text('[mcp_servers.git]\ncommand = "x\n')
    second = place.load(previous=first)
    assert second.settings == first.settings
    (problem,) = second.problems
    assert (problem.code, problem.line, problem.file) == ("syntax", 2, str(place.user))
    assert second.layers == first.layers
    place.user.unlink()
    assert list(place.load(previous=second).settings.mcp_servers) == []


def test_a_broken_named_file_raises_with_its_place(place: Place) -> None:
    explicit = place.workspace / "c.toml"
    with pytest.raises(ConfigError, match="no such file"):
        place.load(explicit)
    explicit.write_text("a = \n")
    with pytest.raises(ConfigError, match=r"c\.toml:1:5: this is not valid TOML"):
        place.load(explicit)


@pytest.mark.parametrize(
    ("content", "code", "line"),
    [
        (b"\xef\xbb\xbf[mcp_servers.git]\r\ncommand = 'x'\r\n", "", 0),
        ("[mcp_servers.git]\ncommand = 'x'\n".encode("utf-16"), "", 0),
        (b"[mcp_servers.git]\ncommand = '\xff'\n", "encoding", 2),
        (b"[mcp_servers.git]\n\n\0", "encoding", 3),
        (b"[mcp_servers.git]\na = 1\na = 2\n", "syntax", 3),
        (b"a = " + b"[" * 5000 + b"]" * 5000, "syntax", 0),
        (b"a = " + b"[" * 900 + b"]" * 900, "syntax", 0),
        (b"[" + b".".join([b"a"] * 900) + b"]", "syntax", 1),
        (b"b = 1\n" + b" . ".join([b"a", b'"b"', b"'c'"] * 20_000) + b" = 1", "syntax", 2),
        (b"a = " + b"9" * 5000, "syntax", 0),
        (b"#" * (1 << 20) + b"#", "too_large", 0),
    ],
)
def test_bytes(place: Place, content: bytes, code: str, line: int) -> None:
    place.user.write_bytes(content)
    loaded = place.load()
    if not code:
        assert loaded.problems == ()
        assert loaded.settings.mcp_servers["git"].settings.command == "x"
    else:
        assert [(problem.code, problem.line) for problem in loaded.problems] == [(code, line)]
        assert list(loaded.settings.workers()) == ["agent:main", "core:basics"]


@pytest.mark.parametrize(
    ("content", "code"),
    [
        ('{"a":' * 900 + "1" + "}" * 900, "syntax"),
        ('{"a":' * 900 + "1 //" + "}" * 900, "syntax"),
        ('{"mcpServers": {"\\ud800": {"command": "x"}}}', "untrusted"),
        ('{"mcpServers": {"x": {"command": "\\udfff"}}}', "untrusted"),
    ],
)
def test_hostile_json(place: Place, content: str, code: str) -> None:
    place.shared.write_text(content)
    assert codes(place.load()) == [code]


def test_a_pipe_or_folder_in_place_of_a_file_stops_nobody(place: Place) -> None:
    os.mkfifo(place.own)
    place.shared.mkdir()
    assert codes(place.load()) == ["unreadable", "unreadable"]


def test_a_damaged_record_of_trust_trusts_nothing(place: Place) -> None:
    place.own.write_text('[mcp_servers.git]\ncommand = "x"\n')
    place.trust(place.own)
    (place.home / TRUST_FILE).write_text("{")
    assert codes(place.load()) == ["trust_file", "untrusted"]


@given(st.binary(max_size=200))
@settings(max_examples=300, deadline=None)
def test_any_bytes_are_tables_or_a_coded_error(data: bytes) -> None:
    for name in ("x.toml", "x.json"):
        try:
            parse(Path("/x") / name, data)
        except BadFileError as error:
            assert error.code in {"encoding", "syntax", "wrong_type"}


def test_trust_shows_whose_values_a_server_would_get() -> None:
    entry = {
        "url": "https://e",
        "env": {"A": "x${GITHUB_TOKEN}y", "B": "${keyring:mail}", "C": "${D:-none}", "E": "plain"},
        "headers": {"Authorization": "Bearer ${AWS_KEY}"},
        "api_key_env": "OPENAI_API_KEY",
    }
    ((_, effect),) = effects({"mcp_servers": {"evil": entry}})
    assert effect.endswith(
        "with variables A, B, C, E with headers Authorization, "
        "which gets the value of AWS_KEY, D, GITHUB_TOKEN, OPENAI_API_KEY, keyring:mail"
    )
    assert "plain" not in effect


@pytest.mark.parametrize(
    ("entry", "shown"),
    [
        ({"command": "/opt/x/npx server --api-key s3cret"}, "start npx"),
        ({"command": ["npx", "--api-key", "s3cret"]}, "start a program"),
        ({"command": "TOKEN=s3cret npx"}, "start a program"),
        ({"command": " "}, "start a program"),
        ({"command": {"s3cret": 1}}, "start a program"),
        ({"url": "https://s3cret@x", "cwd": "/s3cret"}, "connect to a server (not supported yet)"),
        ({"args": ["s3cret"], "cwd": "/s3cret", "env": {"A": "s3cret"}}, "change args, cwd, env"),
    ],
)
def test_places_that_others_read_show_no_secret(entry: dict[str, object], shown: str) -> None:
    ((_, effect),) = effects({"mcp_servers": {"x": entry}}, brief=True)
    assert effect == shown


LOST = ["[[policy]]", "policy = ['x']", "[[agents]]", "agents = 3", "mcp_servers = []"]


@pytest.mark.parametrize("text", LOST)
def test_a_section_that_is_no_table_opens_no_door(place: Place, text: str) -> None:
    place.user.write_text("policy.block = ['mcp:x/rm']\npolicy.allow = ['*']\n")
    place.local.write_text(f"{text}\n")
    place.trust(place.local)
    loaded = place.load()
    assert codes(loaded)[:1] == ["wrong_type"]
    assert "until it is mended every capability asks" in loaded.problems[0].message
    assert (tier(loaded), tier(loaded, "mcp:x/rm")) == ("ask", "block")
    assert loaded.settings.policy.allow == ()
    assert ("main" in loaded.settings.agents) == ("agents" not in text)


@pytest.mark.parametrize("text", [*LOST, "[policy]\nblock = 3", "[[policy]]\nblock = []"])
def test_what_forbids_stays_until_a_new_mistake_is_mended(place: Place, text: str) -> None:
    sound = "policy.block = ['mcp:x/rm']\nagents.main.deny = ['mcp:x/*']\nmcp_servers.x.url = 'http://x'"
    place.user.write_text(f"{sound}\n")
    first = place.load()
    place.user.write_text(f"{text}\n")
    loaded = place.load(previous=first)
    assert tier(loaded) == "ask"
    if "policy" in text:
        assert tier(loaded, "mcp:x/rm") == "block"
    if "agents" in text:
        assert loaded.settings.agents == first.settings.agents
    if "mcp_servers" in text:
        assert loaded.settings.mcp_servers == first.settings.mcp_servers
    again = place.load(previous=loaded)
    assert again.settings == loaded.settings
    place.user.write_text("")
    mended = place.load(previous=again)
    assert tier(mended) == "safe" and mended.problems == ()


def test_while_a_whole_file_cannot_be_read_everything_asks(place: Place) -> None:
    place.user.write_text("[policy\nblock = ['mcp:x/rm']\n")
    assert tier(place.load()) == "ask"
    place.user.write_text("")
    assert tier(place.load()) == "safe"
    place.own.write_text("[policy]\n")
    place.trust(place.own)
    place.own.write_text("[policy\n")
    assert tier(place.load()) == "ask"
    (place.home / TRUST_FILE).write_text("{")
    place.own.write_text("[policy]\n")
    assert tier(place.load()) == "ask"


def test_a_broken_file_that_never_counted_changes_nothing(place: Place) -> None:
    place.own.write_text("[policy\n")
    place.shared.write_text("{")
    place.trust(place.shared)
    assert tier(place.load()) == "safe"
