"""What each kind of mistake in tables leads to."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from interlock.bus.settings import ArgumentRule
from interlock.supervisor.config.content import parse
from interlock.supervisor.config.lines import json_lines, toml_lines
from interlock.supervisor.config.merge import merge
from interlock.supervisor.config.model import LayerFile, Problem, Settings
from interlock.supervisor.config.validate import validate


def read(text: str, name: str = "c.toml") -> tuple[Settings, list[Problem]]:
    layer, notes = parse(Path("/w") / name, text.encode())
    found, problems = validate(merge([layer]), "/w")
    return found, notes + [problem for problem in problems if problem.code != "unknown_agent"]


def server(text: str) -> tuple[Settings, list[Problem]]:
    return read(f"[mcp_servers.git]\n{text}\n[mcp_servers.other]\ncommand = 'o'\n")


@pytest.mark.parametrize(
    ("text", "code", "line", "message"),
    [
        ("command = 3", "wrong_type", 2, "command must be text in quotes, not a number"),
        ("command='x'\nargs = 'y'", "wrong_type", 3, "args must be a list of texts"),
        ("command='x'\nenabled = 'no'", "wrong_type", 3, "enabled must be true or false, not text"),
        ("command='x'\nenv = {A = 1}", "wrong_type", 3, "env.A must be text in quotes"),
        ("command='x'\ncall_timeout = 0", "wrong_type", 3, "a number above 0"),
        ("command='x'\ncall_timeout = nan", "wrong_type", 3, "not the number nan"),
        ("command='x'\nconcurrency = 1.5", "wrong_type", 3, "a whole number of at least 1"),
        ("command='x'\nusage_card = 3", "wrong_type", 3, "or a table of such lists"),
        ("command='x'\nusage_card = {de = 'x'}", "wrong_type", 3, "usage_card.de must be a list"),
        ("command='x'\ntier = 'asks'", "wrong_type", 3, '"safe", not "asks"'),
        ("command='x'\ntier = 'hunter2'", "wrong_type", 3, '"safe", not another text'),
        ("command='x'\ntier = 2", "wrong_type", 3, '"safe", not a number'),
        ("command='x'\ntype = 'web socket'", "wrong_type", 3, 'not "web socket"'),
        ("command='x'\nmax_result = 'big'", "wrong_value", 3, "8MiB"),
        ("command='x'\nlimits = {memory = '1XB'}", "wrong_value", 3, "memory"),
        ("command='x'\nurl='http://y'", "wrong_value", 1, "both command and url"),
        ("args=['x']", "missing_key", 1, "command or url is missing"),
        ("type='sse'", "missing_key", 1, "needs a url"),
        ("url='ftp://y'", "wrong_value", 2, "http://"),
        ("command='x'\nargs=['<your key>']", "not_configured", 3, "placeholder"),
        ("url='https://y'\nheaders={A='Bearer YOUR_TOKEN'}", "not_configured", 3, "headers.A"),
        ("url='https://y'\nheaders={A=\"a\\nb\"}", "wrong_value", 3, "line break"),
        ('command="a\\u0000"', "wrong_value", 2, "cannot be passed on"),
        ("command='x'\ncall_timeout=9\ncall_timeout_max=8", "wrong_value", 3, "larger"),
    ],
)
def test_a_mistake_disables_its_entry_alone(text: str, code: str, line: int, message: str) -> None:
    found, problems = server(text)
    assert list(found.mcp_servers) == ["other"]
    (problem,) = problems
    assert (problem.code, problem.line, problem.severity) == (code, line, "error")
    assert message in problem.message
    assert problem.entry == "mcp:git"
    assert problem.file == "/w/c.toml"


@pytest.mark.parametrize(
    "text",
    [
        "command='x'\nenv = {PIN = 48151623}",
        "command='x'\nenv = {PIN = 4815.1623}",
        "url='https://y'\nheaders = {X-Api-Key = 48151623}",
        "command='x'\nenv = 48151623",
        "command='x'\nargs = 48151623",
        "command = 48151623",
        "command='x'\napi_key_env = 48151623",
        "command='x'\nenv = {'PIN=48151623' = 'x'}",
        "command='x'\nenv = {'PIN=48151623' = 1}",
        "command='x'\nenv = {'INTERLOCK_PIN=48151623' = 'x'}",
        "url='https://y'\nheaders = {\"Bearer 48151623\\n\" = 'x'}",
        "url='https://y'\nheaders = {'Bearer 48151623' = 1}",
    ],
)
def test_what_may_be_a_secret_is_not_told(text: str) -> None:
    found, problems = server(text)
    assert list(found.mcp_servers) == ["other"] and problems
    for problem in problems:
        assert "4815" not in f"{problem.message} {problem.key} {problem.fix}"


def test_a_number_where_a_number_belongs_is_told() -> None:
    _, (problem,) = server("command='x'\ncall_timeout = -3")
    assert "not the number -3" in problem.message


def test_unknown_keys_are_warnings_with_the_nearest_name() -> None:
    found, problems = read(
        "[supervisors.x]\n[mcp_servers.git]\ncommand='x'\nargz=[]\n[supervisor.timing]\nhelo=1"
    )
    assert list(found.mcp_servers) == ["git"]
    assert [(problem.line, problem.severity) for problem in problems] == [
        (1, "warning"),
        (6, "warning"),
        (4, "warning"),
    ]
    suggestions = ["supervisor?", "hello?", "args?"]
    assert all(
        problem.message.endswith(near) for problem, near in zip(problems, suggestions, strict=True)
    )


def test_sections_keep_what_is_right() -> None:
    found, problems = read("[supervisor]\nconsole = 1\ntiming = {ping = 1, hello = 'x'}\n")
    assert found.supervisor.timing.ping == 1
    assert found.supervisor.timing.hello == 10
    assert [problem.key for problem in problems] == [
        "supervisor.console",
        "supervisor.timing.hello",
    ]


def test_an_unreadable_rule_opens_no_door() -> None:
    found, problems = read("[policy]\nblock = 'mcp:x'\nallow = ['*']\n")
    assert (found.policy.ask, found.policy.allow) == (("*",), ())
    assert [problem.code for problem in problems] == ["wrong_type"]


def test_sizes_are_bytes() -> None:
    found, _ = server("command='x'\nlimits={memory='2GiB', nice=3}")
    assert found.mcp_servers["git"].settings.limits.memory == 2 << 30
    assert found.mcp_servers["git"].settings.max_result == 8 << 20


def test_a_long_timeout_moves_its_own_cap() -> None:
    found, problems = server("command='x'\ncall_timeout=900")
    assert found.mcp_servers["git"].settings.call_timeout_max == 900
    assert problems == []


def test_names_of_any_text_are_accepted_but_not_the_empty_one() -> None:
    found, problems = read("[mcp_servers.'a b/c']\ncommand='x'\n[mcp_servers.'']\ncommand='x'\n")
    assert list(found.workers()) == ["mcp:a%20b%2Fc", "core:basics"]
    assert [problem.line for problem in problems] == [3]


SHARED = """{
  // servers of this project
  "mcpServers": {
    "http": {"type": "http", "url": "https://x"},
    "sse": {"transport": "sse", "url": "https://x"},
    "url": {"serverUrl": "https://x"},
    "list": {"command": ["npx", "-y", "s"], "environment": {"K": ""}},
    "off": {"command": "x", "disabled": true, "autoApprove": ["*"]},
    "bad": 3,
  },
}
"""


def test_shared_files_of_other_programs() -> None:
    found, every = read(SHARED, ".mcp.json")
    problems = [problem for problem in every if problem.code != "not_supported"]
    assert len(every) - len(problems) == 3  # the servers at a url
    entries = {name: entry.settings for name, entry in found.mcp_servers.items()}
    assert list(entries) == ["http", "sse", "url", "list", "off"]
    assert (entries["http"].type, entries["sse"].type) == ("streamable_http", "sse")
    assert entries["url"].url == "https://x"
    assert (entries["list"].command, entries["list"].args) == ("npx", ("-y", "s"))
    assert entries["list"].env == {"K": "${K:-}"}
    assert not entries["off"].enabled
    assert [(problem.code, problem.line) for problem in problems] == [
        ("comments", 0),
        ("unknown_key", 8),
        ("wrong_type", 9),
    ]


@pytest.mark.parametrize(
    "entry",
    [
        r'"bad": {"command": "x", "env": {"A": "\ud800"}}',
        r'"bad": {"command": "x", "env": {"\uDC00": "a"}}',
        r'"bad": {"command": "x", "args": ["a\ud83d"]}',
        r'"b\ud800d": {"command": "x"}',
    ],
)
def test_half_a_character_disables_its_entry_alone(entry: str) -> None:
    whole = r'"\ud83d\ude00": {"command": "x"}'
    text = '{"mcpServers": {"good": {"command": "x"}, ' + f"{entry}, {whole}}}}}"
    found, problems = read(text, ".mcp.json")
    assert list(found.mcp_servers) == ["good", "\U0001f600"]
    assert [problem.code for problem in problems] == ["wrong_value"]
    assert problems[0].message.encode()


@pytest.mark.parametrize("text", ["[]", "3", '"x"', '{"mcpServers": []}'])
def test_shared_files_without_servers_say_so(text: str) -> None:
    with pytest.raises(Exception, match="must be an object"):
        read(text, ".mcp.json")


def test_a_shared_file_approves_nothing() -> None:
    """Promise: no file that other programs share says how carefully tools are called."""
    found, problems = read(
        """{"mcpServers": {
        "a": {"command": "x", "tier": "safe", "tools": {
            "rm": {"tier": "safe", "timeout": 5}, "odd": {"tier": 3}}},
        "b": {"url": "http://x", "tier": "ask", "tools": 3}}}""",
        ".mcp.json",
    )
    settings = found.mcp_servers["a"].settings
    assert settings.tier == "monitor"
    assert [(tool.tier, tool.timeout) for tool in settings.tools.values()] == [
        (None, 5),
        (None, None),
    ]
    told = [(problem.severity, problem.key, problem.line) for problem in problems]
    assert told == [
        ("warning", "mcp_servers.a.tier", 2),
        ("warning", "mcp_servers.a.tools.rm.tier", 3),
        ("warning", "mcp_servers.a.tools.odd.tier", 3),
        ("warning", "mcp_servers.b.tier", 4),
        ("error", "mcp_servers.b.tools", 4),
    ]
    many = ", ".join(f'"t{n}": {{"tier": "safe"}}' for n in range(99))
    _, problems = read(f'{{"a": {{"command": "x", "tools": {{{many}}}}}}}', ".mcp.json")
    assert len(problems) == 51 and "99 times" in problems[-1].message


def test_a_bare_map_is_accepted() -> None:
    found, _ = read('{"git": {"command": "x"}, "$schema": "y"}', ".mcp.json")
    assert list(found.mcp_servers) == ["git"]


def test_our_entry_replaces_a_shared_one_unless_it_only_adjusts_it() -> None:
    shared, _ = parse(Path("/w/.mcp.json"), b'{"a": {"url": "http://x"}, "b": {"url": "http://x"}}')
    shared = LayerFile(layer="mcp.json", file=shared.file, digest="", tables=shared.tables)
    own, _ = parse(Path("/w/c.toml"), b"[mcp_servers.a]\ncommand='y'\n[mcp_servers.b]\nqueue=1\n")
    found, problems = validate(merge([shared, own]), "/w")
    assert found.mcp_servers["a"].settings.url == ""
    assert found.mcp_servers["b"].settings.url == "http://x"
    assert [problem.code for problem in problems if problem.code == "shadowed"] == ["shadowed"]


RULE = """
[[policy.rules]]
capability = "mcp:files/*"
argument = "path"
matches = "/etc/*"
tier = "block"
"""
GOOD = ArgumentRule(capability="mcp:files/*", argument="path", matches="/etc/*", tier="block")


def test_rules_about_arguments_are_read() -> None:
    found, problems = read(RULE)
    assert (found.policy.rules, found.policy.ask, problems) == ((GOOD,), (), [])
    inline = """[policy]
rules = [
  { capability = "mcp:files/*", argument = "path", matches = "/etc/*", tier = "block" },
]
"""
    assert read(inline)[0].policy.rules == (GOOD,)


@pytest.mark.parametrize(
    ("text", "line", "key", "message"),
    [
        (RULE + RULE.replace("block", "never"), 12, "policy.rules.2.tier", "rules.2.tier must be"),
        (RULE.replace("matches", "match"), 2, "policy.rules.1", "matches is missing"),
        (RULE.replace('"path"', "3"), 4, "policy.rules.1.argument", "must be text in quotes"),
        (RULE.replace('"path"', '""'), 4, "policy.rules.1.argument", "argument is empty"),
        ("[policy]\nrules = 3\n", 2, "policy.rules", "must be a list of tables, not a number"),
        ("[policy]\nrules = [\n3]\n", 2, "policy.rules.1", "must be a table"),
    ],
)
def test_a_mistake_in_a_rule_makes_everything_ask(
    text: str, line: int, key: str, message: str
) -> None:
    found, problems = read(text)
    errors = [problem for problem in problems if problem.severity == "error"]
    (error,) = errors
    assert (error.line, error.key) == (line, key)
    assert message in error.message
    assert "*" in found.policy.ask and found.policy.allow == ()


def test_after_a_mistake_no_rule_permits() -> None:
    permits = RULE.replace("block", "monitor")
    found, _ = read("[policy]\nblock = 3\n" + permits + RULE)
    assert found.policy.rules == (GOOD,)


def test_lines_of_keys() -> None:
    text = (
        "# c\na.b = '''\n[not]\n'''\n[[t]]\n\"q.r\" = [ # ]\n  '#',\n  {x = 1, y = \"]\"},\n]\n"
        "['u v'.w]\nz=2020-01-01T00:00:00\n"
    )
    assert toml_lines(text) == {
        ("a",): 2,
        ("a", "b"): 2,
        ("t",): 5,
        ("t", "1"): 5,
        ("t", "1", "q.r"): 6,
        ("t", "1", "q.r", "2", "x"): 8,
        ("t", "1", "q.r", "2", "y"): 8,
        ("u v",): 10,
        ("u v", "w"): 10,
        ("u v", "w", "z"): 11,
    }
    assert json_lines('{"a": {\n"b": [1,\n{"c": "}"}]},\n"d": 1}') == {
        ("a",): 1,
        ("a", "b"): 2,
        ("a", "b", "c"): 3,
        ("d",): 4,
    }


_SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)
_KEYS = st.sampled_from(
    ["command", "args", "env", "url", "type", "limits", "memory", "timing", "tools", "x", ""]
) | st.text(max_size=4)
_VALUES = st.recursive(
    _SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_KEYS, inner, max_size=4),
    max_leaves=12,
)
_SECTIONS = st.dictionaries(
    st.sampled_from(["mcp_servers", "agents", "policy", "supervisor", "odd"]),
    st.dictionaries(_KEYS, _VALUES, max_size=4) | _VALUES,
    max_size=4,
)


@pytest.mark.parametrize(
    ("text", "code", "line", "message"),
    [
        ("command='x'\nidle_stop = 60", "not_supported", 3, "runs all the time"),
        ("command='x'\nenv = {INTERLOCK_HOME = '/x'}", "own_variable", 3, "not passed on"),
        ("command='x'\napi_key_env = 'INTERLOCK_KEY'", "own_variable", 3, "not passed on"),
    ],
)
def test_what_has_no_effect_is_said_and_stops_nothing(
    text: str, code: str, line: int, message: str
) -> None:
    found, problems = server(text)
    assert list(found.mcp_servers) == ["git", "other"]
    (problem,) = problems
    assert (problem.code, problem.severity) == (code, "warning")
    assert problem.line == line and message in problem.message and problem.fix


@given(_SECTIONS, _SECTIONS)
@settings(max_examples=300, deadline=None)
def test_any_tables_give_settings_and_problems(
    first: dict[str, Any], second: dict[str, Any]
) -> None:
    layers = [
        LayerFile(layer="user", file="/a", digest="", tables=first),
        LayerFile(layer="explicit", file="/b", digest="", tables=second),
    ]
    found, problems = validate(merge(layers), "/")
    for entry in found.mcp_servers.values():
        assert entry.settings.command or entry.settings.url
        assert math.isfinite(entry.settings.call_timeout)
    for problem in problems:
        assert problem.message
        assert problem.file in {"/a", "/b", ""}
