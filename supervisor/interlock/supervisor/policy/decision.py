"""What policy says about one call: run it, show it, ask a person, or never; pure.

The order is block, argument rules, `ask`, `allow`, the capability's own tier. Whatever forbids
matches every spelling; what permits matches a name, and a value, only as they are written.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

import msgspec

from interlock.bus.names import QUIET_KINDS, CapabilityName, matches, matches_folded
from interlock.bus.records import Tier
from interlock.bus.settings import ArgumentRule, PolicySettings
from interlock.supervisor.policy.arguments import UndecidedError, Values

REMEMBERED: Final = 1 << 15
"""Answers of rules that are kept; folding 600 names for every turn would stall the supervisor."""
TIERS: Final[tuple[Tier, ...]] = ("safe", "monitor", "ask", "block")
"""From the least to the most careful."""
CAREFUL: Final[tuple[Tier, ...]] = ("ask", "block")


class Ruling(msgspec.Struct, frozen=True, kw_only=True):
    """What holds for a call, and why in a few plain words."""

    tier: Tier
    reason: str = ""


class CarefulPolicy(PolicySettings, frozen=True, kw_only=True):
    """A policy that asks for everything, as what it was to forbid cannot be read."""

    because: str
    """Why, in a few plain words for whoever is asked."""

    @classmethod
    def of(cls, policy: PolicySettings, because: str) -> CarefulPolicy:
        """Return what of a policy forbids, and asks for all else."""
        careful = tuple(rule for rule in policy.rules if rule.tier in CAREFUL)
        return cls(
            approval=policy.approval,
            block=policy.block,
            ask=(*policy.ask, "*"),
            rules=careful,
            because=because,
        )


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


def rules_about(name: str, policy: PolicySettings) -> tuple[ArgumentRule, ...]:
    """The argument rules that may decide about calls of that capability."""
    return tuple(
        rule
        for rule in policy.rules
        if (forbids if rule.tier in CAREFUL else allows)(rule.capability, name)
    )


def per_call(name: str, tier: Tier, policy: PolicySettings) -> bool:
    """Whether each call needs a ticket of its own: a person or a rule has a say in it."""
    return standing(name, tier, policy).tier == "ask" or has_rules(name, policy)


def decide(name: str, tier: Tier, policy: PolicySettings, arguments: Mapping[str, Any]) -> Ruling:
    """What holds for one call with these arguments."""
    ruling = standing(name, tier, policy)
    if ruling.tier == "block":
        return ruling
    values = Values(arguments)
    matching: list[Ruling] = []
    for rule in rules_about(name, policy):
        why = _applies(rule, values)
        if why is not None:
            matching.append(Ruling(tier=rule.tier, reason=why))
    if not matching:
        return ruling
    # The most careful of all that match: no order of rules, and no second value, opens a door.
    return _in_mode(max(matching, key=lambda each: TIERS.index(each.tier)), policy)


def _listed(name: str, tier: Tier, policy: PolicySettings) -> Ruling:
    if any(forbids(pattern, name) for pattern in policy.ask):
        because = policy.because if isinstance(policy, CarefulPolicy) else "listed under ask"
        return Ruling(tier="ask", reason=because)
    if tier == "ask" and any(allows(pattern, name) for pattern in policy.allow):
        tier = "monitor"
    reason = "its tier is ask" if tier == "ask" else ""
    return _in_mode(Ruling(tier=tier, reason=reason), policy)


def _in_mode(ruling: Ruling, policy: PolicySettings) -> Ruling:
    if policy.approval == "always" and ruling.tier == "monitor":
        return Ruling(tier="ask", reason="approval is always")
    return ruling


def _applies(rule: ArgumentRule, values: Values) -> str | None:
    """Why a rule is about a call with these values, None if it is not.

    One that forbids needs one value that fits, in any spelling; one that permits needs all values
    to fit, and one at least. Values that cannot all be looked at fit the one and not the other.
    """
    reason = f"a rule about the argument {rule.argument}"
    try:
        if rule.tier in CAREFUL:
            fits = values.may_fit(rule.argument, rule.matches)
        else:
            fits = values.all_fit(rule.argument, rule.matches)
    except UndecidedError:
        return f"{reason}, which holds too much to look at" if rule.tier in CAREFUL else None
    return reason if fits else None
