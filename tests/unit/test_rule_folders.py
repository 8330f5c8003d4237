"""A rule about all that is in a folder is about the folder, in every way to write it."""

from __future__ import annotations

from fnmatch import fnmatchcase

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlock.bus.records import Tier
from interlock.bus.settings import ArgumentRule, PolicySettings
from interlock.supervisor.policy.decision import decide
from interlock.supervisor.policy.patterns import spellings


def found(matches: str, value: str, tier: Tier = "block", own: Tier = "safe") -> str:
    """The tier of a call with that value under one rule about it."""
    rule = ArgumentRule(capability="mcp:x/*", argument="at", matches=matches, tier=tier)
    return decide("mcp:x/read", own, PolicySettings(rules=(rule,)), {"at": value}).tier


@pytest.mark.parametrize(
    ("matches", "value"),
    [
        ("/etc/*", "/etc"),
        ("/etc/*", "/etc/"),
        ("/etc/**", "/etc"),
        ("/etc/**", "/etc/passwd"),
        ("/etc/**/*", "/etc"),
        ("/etc/**/*", "/etc/passwd"),
        ("/etc/?*", "/etc"),
        ("/etc/*?", "/etc/"),
        ("/etc/***", "/etc"),
        ("/etc/*/", "/etc/ssl"),
        ("/etc/", "/etc"),
        ("/etc//*", "/etc/passwd"),
        ("/etc/./*", "/etc"),
        ("./secret/*", "secret"),
        ("/home/*/*", "/home/me"),
        ("/home/*/*", "/home"),
        ("/home/*/.ssh/**", "/home/me/.ssh"),
        ("/home/me*/*", "/home/me"),
        ("**/.ssh/*", ".ssh"),
        ("**/.ssh/*", "/home/me/.ssh/id"),
        ("/srv/**/keys/**/*", "/srv/keys"),
        ("/srv/**/keys/**/*", "/srv/a/b/keys/c"),
        ("**/*", "passwd"),
        ("C:\\Windows\\*", "C:\\Windows"),
        ("C:\\Windows\\**", "C:/Windows/system.ini"),
        ("C:\\Windows\\**\\*", "c:/windows"),
        ("C:/Windows/*", "C:\\Windows"),
        ("file:///etc/**", "file:/etc"),
        ("https://evil.example/x/**", "https://evil.example/x"),
        ("https://evil.example/**", "https://evil.example"),
        ("refs/heads/**", "refs/heads"),
    ],
)
def test_all_in_a_folder_is_the_folder(matches: str, value: str) -> None:
    assert found(matches, value) == "block"


@pytest.mark.parametrize(
    ("matches", "value"),
    [
        ("/etc/**", "/etcetera"),
        ("/etc/**", "/"),
        ("/etc/?", "/etc"),  # names of one letter are not all
        ("/etc/*.conf", "/etc"),
        ("/etc/*.conf", "/etc/passwd"),
        ("/home/*/.ssh/**", "/home/me"),
        ("/home/me*/*", "/home/you"),
        ("*/*", "name"),  # what has a folder, not everything
        ("*/", "name"),
        ("*/../*", "a/b"),
        ("/*", "name"),
        ("/**", "name"),
        ("./*", "/etc"),
        ("file:///*", "/etc"),
        ("https://*", "http://a.example"),
        ("C:\\Windows\\*", "C:\\Users"),
        ("", "name"),
    ],
)
def test_what_is_beside_the_folder_is_let_through(matches: str, value: str) -> None:
    assert found(matches, value) == "safe"


def test_a_rule_that_permits_fits_what_is_written_only() -> None:
    assert found("/tmp/**", "/tmp", "monitor", "ask") == "ask"
    assert found("/tmp/**/*", "/tmp/a", "monitor", "ask") == "ask"
    assert found("/tmp/**", "/tmp/a", "monitor", "ask") == "monitor"


def test_a_pattern_of_many_parts_has_few_spellings() -> None:
    assert len(spellings("/etc" + "/**" * 30_000)) < 600
    assert len(spellings("/**/a" * 30_000)) < 600
    assert found("/etc" + "/**" * 30, "/etc") == "block"


NAMES = st.lists(st.sampled_from(("etc", "home", "a.b", "x y", "ä")), min_size=1, max_size=3)
EVERYTHING = st.lists(
    st.sampled_from(("*", "**", "?*", "*?", "*?*", "***")), min_size=1, max_size=3
)
SEPARATOR = st.sampled_from(("/", "\\"))


@given(names=NAMES, root=st.booleans(), tail=EVERYTHING, separator=SEPARATOR, written=SEPARATOR)
def test_last_parts_that_fit_everything_mean_the_folder(
    names: list[str], root: bool, tail: list[str], separator: str, written: str
) -> None:
    def path(parts: list[str], between: str) -> str:
        return between.join([""] * root + parts)

    matches = path([*names, *tail], separator)
    folder = path(names, written)
    below = path([*names, *["ab"] * len(tail)], written)
    assert found(matches, folder) == "block"
    assert found(matches, folder + written) == "block"
    assert found(matches, below) == "block"
    assert found(matches, f"{folder}x") == "safe"
    assert found(matches, path([*names[:-1], "other"], written)) == "safe"


@given(
    matches=st.text("*?/\\.ab", max_size=8),
    value=st.text("/\\.ab", max_size=8),
)
def test_nothing_that_is_fitted_letter_by_letter_is_lost(matches: str, value: str) -> None:
    assert found(matches, value) == "block" or not fnmatchcase(value, matches)
