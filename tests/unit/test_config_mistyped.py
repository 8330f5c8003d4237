"""Names and patterns that mean nothing: each kind of rule, and what is left alone."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from interlock.supervisor.config.content import parse
from interlock.supervisor.config.merge import merge
from interlock.supervisor.config.mistyped import Served, mistyped, written
from interlock.supervisor.config.validate import validate

SERVERS = "[mcp_servers.time]\ncommand='t'\n[mcp_servers.git]\ncommand='g'\n"
GIT = ("git_log", "git_commit", "git_checkout", "git_diff", "prompt\x1freview")
SERVED: Served = {"core:basics": ("find_tools",), "mcp:git": GIT, "mcp:time": ("convert_time",)}


def told(text: str, served: Served = SERVED, *others: str) -> list[tuple[str, str]]:
    layer, _ = parse(Path("/w/c.toml"), text.encode())
    merged = merge([layer])
    settings, problems = validate(merged, "/w")
    assert not [problem for problem in problems if problem.severity == "error"]
    found = mistyped(written(settings, merged), served, others)
    assert all(one.file == "/w/c.toml" and one.line and one.severity == "warning" for one in found)
    return [(one.message, one.fix) for one in found]


@pytest.mark.parametrize(
    ("rule", "message", "near"),
    [
        ("[agents.main]\ndeny=['mcp:tiem']", "that is configured", "mcp:time"),
        ("[agents.main]\ngrant=['mcp:gti/*']", "that is configured", "mcp:git/*"),
        ("[agents.main]\nfocus=['mcp:xyz/*']", "that is configured", "interlock tools"),
        ("[agents.main]\ngrant=['mcp:git']", "by itself", "mcp:git/*"),
        ("[agents.main]\ngrant=['git_log']", "that is served", "mcp:git/git_log"),
        ("[agents.main]\ndeny=['gitComit']", "that is served", "mcp:git/git_commit"),
        ("[agents.main]\ndeny=['mcp:*/git_comit*']", "that is served", "mcp:git/git_commit"),
        ("[agents.main]\ndeny=['prompt:git/reviw']", "mcp:git serves", "prompt:git/review"),
        ("[agents.main]\ndeny=['core:find_tols']", "core:basics serves", "core:find_tools"),
        ("[policy]\nask=['mcp:git/git_comit']", "mcp:git serves", "mcp:git/git_commit"),
        ("[policy]\nblock=['mcp:git/git_checkuot']", "mcp:git serves", "mcp:git/git_checkout"),
        ("[policy]\nallow=['mcp:git/Git-Log']", "mcp:git serves", "mcp:git/git_log"),
        ("[policy]\nask=['mcp:git/push']", "mcp:git serves", "interlock tools mcp:git"),
        (
            "[[policy.rules]]\ncapability='mcp:git/git_dif'\nargument='a'\nmatches='*'\ntier='ask'",
            "mcp:git serves",
            "mcp:git/git_diff",
        ),
        ("disabled_tools=['git_lgo']", "mcp:git serves", "git_log"),
        ("[mcp_servers.git.tools.git_lgo]\ntier='ask'", "mcp:git serves", "git_log"),
    ],
)
def test_each_kind_of_rule_that_means_nothing_is_told_of(
    rule: str, message: str, near: str
) -> None:
    [(found, fix)] = told(SERVERS + rule)
    assert message in found and near in fix


@pytest.mark.parametrize(
    "rule",
    [
        "[agents.main]\ngrant=['*', 'mcp:git/*', 'mcp:time/convert_time', 'mcp__git__git_log']",
        "[agents.main]\ndeny=['mcp:git', 'GitLog', 'mcp:Git/GIT-LOG', 'prompt:*']",
        "[agents.main]\ndeny=['spawn-worker', 'default:spawn_worker', 'shell_*']",
        "[policy]\nask=['mcp:*/delete_*', 'mcp:git/delete_*']\nblock=['mcp:git/git_checkout']",
        "[policy]\nallow=['mcp:git/git_log', 'mcp:*/read_*']",
    ],
)
def test_what_means_something_or_may_be_meant_for_later_is_left_alone(rule: str) -> None:
    assert told(SERVERS + rule) == []


def test_nothing_is_said_of_a_source_of_which_nobody_knows_what_it_serves() -> None:
    rules = "[policy]\nask=['mcp:git/git_comit', 'git_comit', 'mcp:git*/x', 'mcp__git__x']\n"
    rules += "block=['mcp:off/x']\n[agents.main]\ngrant=['mcp:git/x']\n"
    served = {**SERVED, "mcp:git": None}
    assert told(SERVERS + rules, served, "mcp:off", "agent:other") == []
    # An entry that is not there at all is a mistake whatever the others serve.
    assert [fix for _, fix in told(SERVERS + "[policy]\nask=['mcp:tme/x']", served)] == [
        "Did you mean mcp:time/x?"
    ]


def test_what_no_file_says_is_nobodys_mistake() -> None:
    assert told(SERVERS, {}) == []


def test_thousands_of_tools_and_patterns_take_no_time() -> None:
    patterns = ", ".join(f"'mcp:*/t{n}x'" for n in range(3_000))
    served = {f"mcp:s{n}": tuple(f"tool_{k}" for k in range(500)) for n in range(20)}
    began = time.process_time()
    assert told(SERVERS + f"[policy]\nask=[{patterns}]", served) == []
    assert time.process_time() - began < 5.0
