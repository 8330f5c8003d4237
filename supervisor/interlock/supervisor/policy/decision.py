"""What policy says about one call: run it, show it, ask a person, or never; pure.

The order is block, argument rules, `ask`, `allow`, the capability's own tier. Whatever forbids
matches every spelling; what permits matches a name, and a value, only as they are written.
"""

from __future__ import annotations

import posixpath
import unicodedata
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Any, Final

import msgspec

from interlock.bus.names import QUIET_KINDS, CapabilityName, fold, matches, matches_folded
from interlock.bus.records import Tier
from interlock.bus.settings import ArgumentRule, PolicySettings

REMEMBERED: Final = 1 << 15
"""Answers of rules that are kept; folding 600 names for every turn would stall the supervisor."""
TIERS: Final[tuple[Tier, ...]] = ("safe", "monitor", "ask", "block")
"""From the least to the most careful."""
CAREFUL: Final[tuple[Tier, ...]] = ("ask", "block")
_FILE: Final = "file://"


class Ruling(msgspec.Struct, frozen=True, kw_only=True):
    """What holds for a call, and why in a few plain words."""

    tier: Tier
    reason: str = ""


@lru_cache(REMEMBERED)
def allows(pattern: str, name: str) -> bool:
    """Whether a pattern that permits means that capability: only as it is written."""
    return matches(pattern, CapabilityName.parse(name))


@lru_cache(REMEMBERED)
def forbids(pattern: str, name: str) -> bool:
    """Whether a pattern that forbids means that capability, in any spelling.

    One about the tools of a server means its resources and prompts, too.
    """
    parts = CapabilityName.parse(name)
    if matches_folded(pattern, parts):
        return True
    as_tool = CapabilityName("mcp", parts.source, parts.name)
    return parts.kind in QUIET_KINDS and matches_folded(pattern, as_tool)


def standing(name: str, tier: Tier, policy: PolicySettings) -> Ruling:
    """What holds for every call of a capability, argument rules left aside.

    `tier` is the capability's own.

    >>> standing("mcp:git/delete_tag", "monitor", PolicySettings(ask=("mcp:*/delete_*",))).tier
    'ask'
    """
    if tier == "block" or any(forbids(pattern, name) for pattern in policy.block):
        return Ruling(tier="block", reason="blocked by policy")
    return _listed(name, tier, policy)


def has_rules(name: str, policy: PolicySettings) -> bool:
    """Whether the arguments of a call of that capability have to be looked at."""
    return any(forbids(rule.capability, name) for rule in policy.rules)


def per_call(name: str, tier: Tier, policy: PolicySettings) -> bool:
    """Whether each call needs a ticket of its own: a person or a rule has a say in it."""
    return standing(name, tier, policy).tier == "ask" or has_rules(name, policy)


def decide(name: str, tier: Tier, policy: PolicySettings, arguments: Mapping[str, Any]) -> Ruling:
    """What holds for one call with these arguments."""
    ruling = standing(name, tier, policy)
    if ruling.tier == "block":
        return ruling
    matching = [rule for rule in policy.rules if _applies(rule, name, arguments)]
    if not matching:
        return ruling
    # The most careful of all that match: no order of rules, and no second value, opens a door.
    rule = max(matching, key=lambda each: TIERS.index(each.tier))
    reason = f"a rule about the argument {rule.argument}"
    return _in_mode(Ruling(tier=rule.tier, reason=reason), policy)


def _listed(name: str, tier: Tier, policy: PolicySettings) -> Ruling:
    if any(forbids(pattern, name) for pattern in policy.ask):
        return Ruling(tier="ask", reason="listed under ask")
    if tier == "ask" and any(allows(pattern, name) for pattern in policy.allow):
        tier = "monitor"
    reason = "its tier is ask" if tier == "ask" else ""
    return _in_mode(Ruling(tier=tier, reason=reason), policy)


def _in_mode(ruling: Ruling, policy: PolicySettings) -> Ruling:
    if policy.approval == "always" and ruling.tier == "monitor":
        return Ruling(tier="ask", reason="approval is always")
    return ruling


def _applies(rule: ArgumentRule, name: str, arguments: Mapping[str, Any]) -> bool:
    """Whether a rule is about that call.

    One that forbids needs one value that fits, in any spelling of the argument's name; one that
    permits needs all values to fit, and one at least.
    """
    if rule.tier in CAREFUL:
        if not forbids(rule.capability, name):
            return False
        found = _values(rule.argument, arguments, folded=True)
        return any(_may_mean(rule.matches, text) for text in found)
    if not allows(rule.capability, name):
        return False
    texts = list(_values(rule.argument, arguments, folded=False))
    return bool(texts) and all(_means(rule.matches, text) for text in texts)


def _values(argument: str, arguments: Mapping[str, Any], *, folded: bool) -> Iterator[str]:
    """The values of an argument as texts; `a.b` is `b` inside of `a`, `*` is every argument."""
    for key, value in arguments.items():
        same = fold(key) == fold(argument) if folded else key == argument
        if same or argument == "*":
            yield from _texts(value)
    head, dot, rest = argument.partition(".")
    if not dot:
        return
    for key, value in arguments.items():
        if not (fold(key) == fold(head) if folded else key == head):
            continue
        for inner in value if isinstance(value, list) else [value]:
            if isinstance(inner, Mapping):
                yield from _values(rest, inner, folded=folded)


def _texts(value: Any) -> Iterator[str]:
    """Every text inside a value; numbers, true, false and null as JSON writes them."""
    waiting = [value]
    while waiting:
        one = waiting.pop()
        if isinstance(one, str):
            yield one
        elif isinstance(one, Mapping):
            yield from map(str, one)
            waiting += one.values()
        elif isinstance(one, list):
            waiting += one
        else:
            yield msgspec.json.encode(one).decode()


def _may_mean(pattern: str, text: str) -> bool:
    """Whether a value fits a pattern in any of its spellings: case, `..` and `//` in paths."""
    wanted = _plain(pattern)
    return any(
        fnmatchcase(spelt, wanted)
        for written in (text, _plain(text))
        for spelt in (written, written.strip(), _path(written))
    ) or fnmatchcase(text, pattern)


def _means(pattern: str, text: str) -> bool:
    """Whether a value fits a pattern as it is written, and also where it leads as a path."""
    return fnmatchcase(text, pattern) and fnmatchcase(_path(text), pattern)


def _plain(text: str) -> str:
    return unicodedata.normalize("NFKC", text).casefold()


def _path(text: str) -> str:
    """A text as a path, or an address, without detours.

    >>> _path("file:///tmp/../etc//passwd"), _path("https://a.example/b/../c")
    ('/etc/passwd', 'https://a.example/c')
    """
    scheme, colon, rest = text.strip().removeprefix(_FILE).replace("\\", "/").partition("://")
    if colon:
        return f"{scheme}://{posixpath.normpath(rest)}"
    path = posixpath.normpath(scheme)
    return "/" + path.lstrip("/") if path.startswith("//") else path
