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
    "URL:file:///etc/passwd",
    "url: file:///etc/passwd",
    "<file:///etc/passwd>",
    " <URL:file:///etc/passwd> ",
    "view-source:file:///etc/passwd",
    "jar:file:///etc/passwd!/x",
    "git+file:///etc/passwd",
    "\u3000\ufefffile:///etc/passwd\xa0",
    "f" + "\t" * 300 + "ile:///etc/passwd",
    "file://x\\@localhost/etc/passwd",
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
    "https://evil\u3002example/a",
    "https://evil\uff0eexample/a",
    "https://evil\uff61example\u3002/a",
    "https://e\xadvil.exa\u200bmp\ufe0fle/a",
    "https://\u2060evil.ex%C2%ADample/a",
    "https://\uff45\U0001d42f\u24d8l.example/a",
    "https://x\\@evil.example/a",
    "https://evil.example\\@x/../a",
    "https://u%2Fv@evil%2Eexample/%61",
    "https://x\uff0f@EVIL.example/a",
    "https://x\uff0f@evil.example/a",
    "URL:https://evil.example/a",
    "<https://evil.example/a>",
    "<url:https:evil.example/a>",
    "view-source:https://evil.example/a",
    "jar:https://evil.example/a!/b",
    "git+https://evil.example/a",
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
        ("https://evil.example/*", "<p>see https://evil.example/a</p>"),
        ("https://evil.example/*", "https://evil\xe9.example/a"),
        ("git+https://evil.example/*", "https://evil.example/a"),
        ("view-source:https://evil.example/*", "https://evil.example/a"),
        ("/etc/*", "note: see /etc/x"),
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


@pytest.mark.parametrize(
    ("matches", "value"),
    [
        ("https://b\xfccher.example/*", "https://xn--bcher-kva.example/a"),
        ("https://xn--bcher-kva.example/*", "https://B\xdcCHER\u3002example/a"),
        ("https://xn--bcher-kva.example/*", "https://me@xn--bcher-kva.example./a"),
        ("evil.example", "evil\u3002exam\xadple"),
        ("*.example", "evil\uff61example"),
    ],
)
def test_a_host_is_forbidden_in_all_letters_of_it(matches: str, value: str) -> None:
    assert found(matches, value) == "block"


@pytest.mark.parametrize(
    "value",
    [
        "\ufdfa" * 340_000,
        "https:" + "\u0390" * 500_000,
        "https://a.example/" + "\u3300" * 340_000,
        "https://a" + "\xad" * 500_000 + ".example",
        "<URL:view-source:jar:https://x\\y@" + "Ab\xe4" * 250_000,
    ],
)
def test_letters_that_stand_for_many_are_bounded_as_they_are_read(value: str) -> None:
    """What is spelled for a call is bounded, not only what it holds; more is not let through.

    A megabyte of such letters was six, and all its spellings took a second for each of the rules.
    """
    rules = tuple(
        ArgumentRule(capability="mcp:x/*", argument="*", matches=f"/{n}/*", tier="block")
        for n in range(200)
    )
    before = time.process_time()
    decided = decide(NAME, "safe", PolicySettings(rules=rules), {"at": value})
    assert time.process_time() - before < 2.0
    assert decided.tier == "block"
    assert "too much to look at" in decided.reason


def test_long_texts_of_all_languages_are_decided() -> None:
    for text in (
        "Die Straße ist heute für alle Gäste offen; bitte fragen Sie im Büro nach… ",
        "\u4f60\u597d\u4e16\u754c\u6211\u4eec\uff0c",
        "\u0915\u093f\u094d",
        "e\u0301a ",
    ):
        value = text * (900_000 // len(text.encode()))
        assert found("/etc/*", value) == "safe"


@given(st.text(st.sampled_from("file:htps/\\@%41.[]?#\t <>URL+xn-\u3002\xad\xe4")))
def test_any_text_has_meanings(text: str) -> None:
    assert is_address(text) or not meanings(text)
    assert all(isinstance(each, str) for each in meanings(unescaped(text)))
