from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlock.bus.names import fold
from interlock.bus.records import Tier
from interlock.bus.settings import ArgumentRule, PolicySettings
from interlock.supervisor.policy.arguments import MARKS, MOST
from interlock.supervisor.policy.decision import TIERS, decide, has_rules, per_call, standing

WRITE = "mcp:files/write_file"
ETC = ArgumentRule(capability="mcp:files/*", argument="path", matches="/etc/*", tier="block")
TMP = ArgumentRule(capability=WRITE, argument="path", matches="/tmp/*", tier="monitor")
URL = ArgumentRule(capability=WRITE, argument="url", matches="https://a.example/*", tier="monitor")


def policy(**settings: Any) -> PolicySettings:
    return PolicySettings(**settings)


@pytest.mark.parametrize(
    ("tier", "settings", "expected"),
    [
        ("monitor", {}, "monitor"),
        ("safe", {}, "safe"),
        ("ask", {}, "ask"),
        ("block", {"allow": (WRITE,)}, "block"),
        ("safe", {"block": ("mcp:*/write_*",)}, "block"),
        ("safe", {"block": (WRITE,), "ask": (WRITE,), "allow": (WRITE,)}, "block"),
        ("safe", {"ask": (WRITE,), "allow": (WRITE,)}, "ask"),
        ("ask", {"allow": (WRITE,)}, "monitor"),
        ("safe", {"allow": (WRITE,)}, "safe"),
        ("monitor", {"approval": "always"}, "ask"),
        ("safe", {"approval": "always"}, "safe"),
        ("ask", {"approval": "always", "allow": (WRITE,)}, "ask"),
        ("ask", {"approval": "never"}, "ask"),
        # What forbids matches every spelling, what permits only the name.
        ("safe", {"ask": ("mcp:Files/write-file",)}, "ask"),
        ("safe", {"block": ("WriteFile",)}, "block"),
        ("ask", {"allow": ("mcp:files/write-file",)}, "ask"),
        ("ask", {"allow": ("mcp__files__write_file",)}, "monitor"),
    ],
)
def test_the_order_without_arguments(tier: Tier, settings: dict[str, Any], expected: str) -> None:
    found = standing(WRITE, tier, policy(**settings))
    assert found.tier == expected
    assert found.reason or expected in ("safe", "monitor")
    assert decide(WRITE, tier, policy(**settings), {}) == found


@pytest.mark.parametrize(
    ("tier", "rules", "arguments", "expected"),
    [
        ("monitor", [ETC], {"path": "/etc/passwd"}, "block"),
        ("safe", [ETC], {"path": "/etc"}, "block"),
        ("safe", [ETC], {"path": "/etc/"}, "block"),
        ("safe", [ETC], {"path": "file:///etc"}, "block"),
        ("safe", [ETC], {"path": "/etcetera"}, "safe"),
        ("ask", [TMP], {"path": "/tmp"}, "ask"),
        ("monitor", [ETC], {"path": "/home/x"}, "monitor"),
        ("monitor", [ETC], {}, "monitor"),
        ("ask", [TMP], {"path": "/tmp/x"}, "monitor"),
        ("ask", [TMP], {"path": "/home/x"}, "ask"),
        # The most careful of all that fit, in any order.
        ("safe", [TMP, ETC], {"path": ["/tmp/x", "/etc/x"]}, "block"),
        ("safe", [ETC, TMP], {"path": ["/tmp/x", "/etc/x"]}, "block"),
        # Spellings of what forbids.
        ("safe", [ETC], {"Path": "/etc/x"}, "block"),
        ("safe", [ETC], {"path": "/tmp/../etc/x"}, "block"),
        ("safe", [ETC], {"path": "//etc//x"}, "block"),
        ("safe", [ETC], {"path": " /etc/x"}, "block"),
        ("safe", [ETC], {"path": "/ETC/x"}, "block"),
        ("safe", [ETC], {"path": "file:///etc/x"}, "block"),
        ("safe", [ETC], {"path": "/./etc/./x"}, "block"),
        ("safe", [ETC], {"path": {"inner": ["/etc/x"]}}, "block"),
        # None of them helps what permits.
        ("ask", [TMP], {"Path": "/tmp/x"}, "ask"),
        ("ask", [TMP], {"path": "/tmp/../etc/x"}, "ask"),
        ("ask", [TMP], {"path": "/TMP/x"}, "ask"),
        ("ask", [TMP], {"path": ["/tmp/x", "/home/y"]}, "ask"),
        ("ask", [TMP], {"path": []}, "ask"),
        ("ask", [TMP], {}, "ask"),
        ("ask", [URL], {"url": "https://a.example/b"}, "monitor"),
        ("ask", [URL], {"url": "https://a.example/../b.example/"}, "ask"),
        ("ask", [URL], {"url": "https://a.example@b.example/"}, "ask"),
    ],
)
def test_rules_about_arguments(
    tier: Tier, rules: list[ArgumentRule], arguments: dict[str, Any], expected: str
) -> None:
    assert decide(WRITE, tier, policy(rules=tuple(rules)), arguments).tier == expected


@pytest.mark.parametrize(
    ("argument", "matches", "arguments", "fits"),
    [
        ("a.b", "x", {"a": {"b": "x"}}, True),
        ("a.b", "x", {"a": [{"b": "y"}, {"b": "x"}]}, True),
        ("a.b", "x", {"a.b": "x"}, True),
        ("a.b", "x", {"a": {"c": "x"}}, False),
        ("a.b", "x", {"a": "x"}, False),
        ("*", "x", {"q": "x"}, True),
        ("*", "x", {"q": "y"}, False),
        ("n", "5", {"n": 5}, True),
        ("n", "true", {"n": True}, True),
        ("n", "null", {"n": None}, True),
        ("n", "*", {"n": ""}, True),
        ("n", "*", {}, False),
        # Other spellings of one number.
        ("n", "22", {"n": 22.0}, True),
        ("n", "22", {"n": 2.2e1}, True),
        ("n", "22", {"n": "22.0"}, True),
        ("n", "22", {"n": " +022"}, True),
        ("n", "22.0", {"n": 22}, True),
        ("n", "2?", {"n": 22.0}, True),
        ("n", "0", {"n": -0.0}, True),
        ("n", "0.5", {"n": 0.5}, True),
        ("n", "22", {"n": 22.5}, False),
        ("n", "22", {"n": 2**70}, False),
        # The rest of an argument's path, however deep the server may look for it.
        ("a.b", "x", {"a": [[{"b": "x"}]]}, True),
        ("a.b", "x", {"a": {"c": {"b": "x"}}}, True),
        ("a.b", "x", {"A": [{"c": [{"B": "X"}]}]}, True),
        ("a.b.c", "x", {"a": {"d": {"b": [[{"c": "x"}]]}}}, True),
        ("a.b", "x", {"c": {"b": "x"}}, False),
        ("a.b", "x", {"a": [[{"c": "x"}]]}, False),
        ("n", "?", {"n": "ab"}, False),
    ],
)
def test_where_a_rule_looks(
    argument: str, matches: str, arguments: dict[str, Any], fits: bool
) -> None:
    rule = ArgumentRule(capability=WRITE, argument=argument, matches=matches, tier="block")
    found = decide(WRITE, "safe", policy(rules=(rule,)), arguments)
    assert found.tier == ("block" if fits else "safe")


FILES = ArgumentRule(capability=WRITE, argument="f.path", matches="/tmp/*", tier="monitor")


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"f": [{"path": "/tmp/a"}]}, "monitor"),
        ({"f": [{"path": "/tmp/a"}, [{"path": "/etc/x"}]]}, "ask"),
        ({"f": {"path": "/tmp/a", "more": {"path": "/etc/x"}}}, "ask"),
        ({"f": {"path": "/tmp/a", "Path": "/etc/x"}}, "ask"),
        ({"f": [[{"path": "/tmp/a"}]]}, "ask"),
    ],
)
def test_what_permits_sees_all_that_a_value_may_mean(
    arguments: dict[str, Any], expected: str
) -> None:
    assert decide(WRITE, "ask", policy(rules=(FILES,)), arguments).tier == expected


@pytest.mark.parametrize(
    "arguments",
    [
        {"path": [1] * (MOST + 1)},
        {"path": {str(n): "" for n in range(MOST)}},
        {"path": "x" + "\u0301\u0316" * MARKS},
        {"\u0301" * (MARKS + 1): "x"},
        {str(n): "x" for n in range(MOST + 1)},
    ],
)
def test_what_holds_too_much_to_look_at_is_never_let_through(arguments: dict[str, Any]) -> None:
    found = decide(WRITE, "safe", policy(rules=(ETC, TMP)), arguments)
    assert found.tier == "block" and "too much" in found.reason
    if len(arguments.get("path", ())) >= MOST or len(arguments) > MOST:
        every = ArgumentRule(capability=WRITE, argument="*", matches="*", tier="safe")
        assert decide(WRITE, "ask", policy(rules=(every,)), arguments).tier == "ask"
    assert decide(WRITE, "safe", policy(), arguments).tier == "safe"


def test_what_no_rule_is_about_may_be_as_large_as_it_likes() -> None:
    arguments = {"path": "/home/x", "text": [1] * MOST * 2, "marks": "\u0301" * 1_000}
    assert decide(WRITE, "safe", policy(rules=(ETC,)), arguments).tier == "safe"
    assert decide(WRITE, "ask", policy(rules=(TMP,)), arguments | {"path": "/tmp/x"}).tier != "ask"


def test_shared_and_nested_values_are_walked_once() -> None:
    """JSON has no shared values; nesting is what would make the walk quadratic."""
    deep: dict[str, Any] = {"b": "x"}
    for _ in range(900):
        deep = {"a": deep, "b": deep["b"]}
    rule = ArgumentRule(capability=WRITE, argument="a.a.b", matches="y", tier="block")
    assert decide(WRITE, "safe", policy(rules=(rule,)), deep).tier == "block"


def test_order_of_rules_and_lists() -> None:
    asks = policy(ask=(WRITE,), allow=(WRITE,), rules=(TMP,))
    assert decide(WRITE, "safe", asks, {"path": "/tmp/x"}).tier == "monitor"
    blocks = policy(block=(WRITE,), rules=(TMP,))
    assert decide(WRITE, "safe", blocks, {"path": "/tmp/x"}).tier == "block"
    always = policy(approval="always", rules=(TMP,))
    assert decide(WRITE, "safe", always, {"path": "/tmp/x"}).tier == "ask"


def test_what_needs_a_ticket_for_each_call() -> None:
    assert per_call(WRITE, "ask", policy())
    assert per_call(WRITE, "safe", policy(rules=(ETC,)))
    assert not per_call("mcp:git/log", "safe", policy(rules=(ETC,)))
    assert not per_call(WRITE, "monitor", policy())
    assert has_rules("mcp:files/write-file", policy(rules=(TMP,)))


def test_rules_about_a_server_mean_its_resources_and_prompts() -> None:
    assert standing("resource:files/x", "safe", policy(block=("mcp:files/*",))).tier == "block"
    assert standing("prompt:files/x", "ask", policy(allow=("mcp:files/*",))).tier == "ask"


TIER = st.sampled_from(TIERS)
PATTERN = st.sampled_from(("*", "mcp:files/*", WRITE, "mcp:git/*", "write-file", "mcp:*/write*"))
PATTERNS = st.lists(PATTERN, max_size=3).map(tuple)
VALUE = st.sampled_from(("/etc/x", "/tmp/x", "/tmp/../etc/x", "", "x"))
ARGUMENTS = st.dictionaries(st.sampled_from(("path", "Path", "other")), VALUE, max_size=3)
RULE = st.builds(
    ArgumentRule,
    capability=PATTERN,
    argument=st.sampled_from(("path", "*", "other")),
    matches=st.sampled_from(("/etc/*", "/tmp/*", "*")),
    tier=TIER,
)
POLICY = st.builds(
    PolicySettings,
    approval=st.sampled_from(("never", "on_request", "always")),
    block=PATTERNS,
    allow=PATTERNS,
    ask=PATTERNS,
    rules=st.lists(RULE, max_size=3).map(tuple),
)


@given(TIER, POLICY, ARGUMENTS)
def test_properties_of_every_decision(
    tier: Tier, rules: PolicySettings, arguments: dict[str, str]
) -> None:
    found = decide(WRITE, tier, rules, arguments).tier
    base = standing(WRITE, tier, rules).tier
    if tier == "block" or base == "block":
        assert found == "block"
    if rules.approval == "always":
        assert found != "monitor"
    if not has_rules(WRITE, rules):
        assert found == base
    # Only what always needs a ticket of its own can come out otherwise than it stands.
    if found != base or found == "ask":
        assert found == "block" == base or per_call(WRITE, tier, rules)
    # A further block or ask never makes a decision less careful.
    more = PolicySettings(
        approval=rules.approval,
        block=(*rules.block, "mcp:x/y"),
        allow=rules.allow,
        ask=(*rules.ask, WRITE),
        rules=rules.rules,
    )
    if not has_rules(WRITE, rules):
        assert TIERS.index(decide(WRITE, tier, more, arguments).tier) >= TIERS.index(found)


@given(st.text("aeF_-. /", min_size=1, max_size=12), TIER)
def test_no_spelling_of_a_name_gets_past_what_forbids(name: str, tier: Tier) -> None:
    if not any(char.isalnum() for char in name):
        return
    from interlock.bus.names import CapabilityName

    written = str(CapabilityName("mcp", "files", name))
    assert standing(written, tier, policy(block=(fold(name),))).tier == "block"
