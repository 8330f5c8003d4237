"""One file, or one place, in all the ways in which an address can be written."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlock.bus.records import Tier
from interlock.bus.settings import ArgumentRule, PolicySettings
from interlock.supervisor.policy.addresses import is_address, meanings, unescaped
from interlock.supervisor.policy.arguments import ESCAPES
from interlock.supervisor.policy.decision import decide

NAME = "mcp:x/read"


def found(matches: str, value: str, tier: Tier = "block", own: Tier = "safe") -> str:
    """The tier of a call with that value under one rule about it."""
    rule = ArgumentRule(capability="mcp:x/*", argument="at", matches=matches, tier=tier)
    return decide(NAME, own, PolicySettings(rules=(rule,)), {"at": value}).tier


FILES = [
    "file:/etc/passwd",
    "File:/etc/passwd",
    "file:///etc/passwd",
    "file:////etc/passwd",
    "file://localhost/etc/passwd",
    "FILE://LocalHost//etc/passwd",
    "file://127.0.0.1/etc/passwd",
    "file:///%65tc/passwd",
    "file:%2Fetc/passwd",
    "file:///tmp/%2e%2e/etc/passwd",
    "file:/tmp/../etc/./passwd",
    "file:///tmp%2F..%2Fetc/passwd",
    "file:\\\\\\etc\\passwd",
    " fi\tle:///etc/pass\nwd",
    "\x00file:///etc/passwd",
    "file:///etc/passwd#x",
    "file:///etc/passwd?x",
    "file://etc/passwd/../../etc/passwd",
]


@pytest.mark.parametrize("value", FILES)
@pytest.mark.parametrize("matches", ["/etc/*", "/etc/passwd", "file:///etc/*", "file:/etc/passwd"])
def test_a_file_is_forbidden_in_every_address_of_it(matches: str, value: str) -> None:
    assert found(matches, value) == "block"


PLACES = [
    "https://evil.example/a",
    "HTTPS://Evil.example/a",
    "https://evil.example:443/a",
    "https://evil.example:0443/a",
    "https://evil.example:/a",
    "https://evil.example./a",
    "https://me@evil.example/a",
    "https://me:pass@evil.example:443/a",
    "https:/evil.example/a",
    "https:///evil.example/a",
    "https:\\\\evil.example\\a",
    "https://evil%2Eexample/a",
    "https://evil.example/b/%2e%2e/a",
    "https://evil.example/a#part",
    "ht\ntps://evil.exa\tmple/a",
]


@pytest.mark.parametrize("value", PLACES)
@pytest.mark.parametrize(
    "matches", ["https://evil.example/*", "https://evil.example/a", "https://evil.example:443/*"]
)
def test_a_place_is_forbidden_in_every_address_of_it(matches: str, value: str) -> None:
    assert found(matches, value) == "block"


@pytest.mark.parametrize("value", ["https://evil.example", "https://evil.example?q"])
def test_a_place_without_a_path_is_its_top(value: str) -> None:
    assert found("https://evil.example/*", value) == "block"


@pytest.mark.parametrize(
    ("matches", "value"),
    [
        ("/etc/*", "file:///home/x"),
        ("/etc/*", "/%65tc/passwd"),  # a path: there is nothing to read in it
        ("/etc/*", "https://a.example/etc/passwd"),
        ("file:*", "/etc/passwd"),
        ("file://*", "/etc/passwd"),
        ("file:///*", "/etc/passwd"),
        ("https://evil.example/*", "https://evil.example:8443/a"),
        ("https://evil.example/*", "https://good.example/a?https://evil.example/"),
        ("https://evil.example/*", "http://evil.example/a"),
    ],
)
def test_what_means_something_else_is_let_through(matches: str, value: str) -> None:
    assert found(matches, value) == "safe"


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("https://a.example/b", "monitor"),
        ("https://a.example/b%20c", "monitor"),
        ("https://a.example/%2e%2e/b.example/", "ask"),
        ("https://a.example:443/b", "ask"),
        ("https:/a.example/b", "ask"),
    ],
)
def test_what_permits_takes_an_address_as_it_is_written(value: str, expected: str) -> None:
    assert found("https://a.example/*", value, "monitor", "ask") == expected


@pytest.mark.parametrize(
    ("matches", "value", "fits"),
    [
        ("file[1].txt", "file[1].txt", True),
        ("file[1].txt", "file1.txt", False),
        ("http://[::1]*", "http://[::1]:80/x", True),
        ("*[!a]*", "b", False),
        ("[", "[", True),
        ("a?c*", "abcd", True),
    ],
)
@pytest.mark.parametrize("tier", ["block", "monitor"])
def test_brackets_are_characters_in_patterns(
    matches: str, value: str, fits: bool, tier: Tier
) -> None:
    own: Tier = "ask" if tier == "monitor" else "safe"
    assert found(matches, value, tier, own) == (tier if fits else own)


def test_an_address_with_more_escapes_than_are_read_is_never_let_through() -> None:
    value = "https://a.example/" + "\u00e9%41" * (ESCAPES + 1)
    before = time.process_time()
    assert found("/etc/*", value) == "block"
    assert found("https://a.example/*", value, "monitor", "ask") == "ask"
    assert found("https://a.example/*", value[: 3 * ESCAPES], "monitor", "ask") == "monitor"
    assert time.process_time() - before < 2.0
    # Only addresses hold any: a long text with as many signs is compared as it is.
    assert found("/etc/*", "100 %41 " * ESCAPES) == "safe"


def test_the_rules_of_a_call_hold_the_loop_for_a_bounded_time() -> None:
    """A megabyte is compared with some rules; of hundreds, what is not compared is not let through.

    It took a second for each twenty.
    """
    arguments = {"at": "xyzw" * 250_000}

    def decided(count: int, tier: Tier, own: Tier) -> str:
        rules = tuple(
            ArgumentRule(capability="mcp:x/*", argument="*", matches=f"*x*y{n}*z*w*", tier=tier)
            for n in range(count)
        )
        return decide(NAME, own, PolicySettings(rules=rules), arguments).tier

    before = time.process_time()
    assert decided(5, "block", "safe") == "safe"
    assert decided(400, "block", "safe") == "block"
    assert decided(400, "monitor", "ask") == "ask"
    assert time.process_time() - before < 4.0


@given(st.text(st.sampled_from("file:htps/\\@%41.[]?#\t ")))
def test_any_text_has_meanings(text: str) -> None:
    assert is_address(text) or not meanings(text)
    assert all(isinstance(each, str) for each in meanings(unescaped(text)))
