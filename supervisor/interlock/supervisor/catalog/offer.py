"""What one agent may use now, and what is withheld from it and why; pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Final, Literal

import msgspec

from interlock.bus.names import QUIET_KINDS
from interlock.bus.records import OfferRow
from interlock.bus.settings import AgentSettings, PolicySettings
from interlock.supervisor.catalog.never import never_for_agents
from interlock.supervisor.catalog.rows import CatalogRow, SourceView
from interlock.supervisor.policy.decision import allows, forbids, per_call, standing

GATED: Final = frozenset({"mcp", "cli"})
"""Kinds of sources with so many capabilities that each has to be what the request is about."""
By = Literal["disabled", "policy", "grant", "deny", "state", "limit", "kind", "gate"]
RULES: Final = ("disabled", "policy", "deny")
"""What withholds single capabilities by a pattern that somebody wrote."""
NAMED: Final = 5
"""Capabilities that are named of those that one rule withholds."""
NOT_ABOUT: Final = "nothing in the request is about it"
LEFT: Final = "the agent is not in the configuration any more"


class Person(Enum):
    """Who calls without an agent; not None, so that no missing agent is taken for a person."""

    PERSON = "person"


PERSON: Final = Person.PERSON
Caller = AgentSettings | Literal[Person.PERSON] | None
"""For whom something is decided; None: an agent that is not configured (any more)."""


class Withheld(msgspec.Struct, frozen=True, kw_only=True):
    """Capabilities of one source that an offer leaves out, for one reason."""

    source: str
    count: int
    by: By
    reason: str
    names: tuple[str, ...] = ()
    """The first of them, where a rule names them: what a pattern of the configuration covers."""


class Offer(msgspec.Struct, frozen=True, kw_only=True):
    """Usable rows in order, and what is withheld."""

    rows: tuple[CatalogRow, ...]
    withheld: tuple[Withheld, ...]


def forbidden(row: CatalogRow, agent: Caller, policy: PolicySettings) -> tuple[By, str] | None:
    """Why a capability is not for that caller, whatever its source's state; None if it is.

    For a person's direct call grants and denials of agents do not count; for an agent that is not
    configured any more nothing is. Rules that forbid match every spelling, a grant only the name
    itself.
    """
    if agent is None:
        return "grant", LEFT
    if row.disabled:
        return "disabled", "disabled in the server's entry (disabled_tools)"
    ruling = standing(row.name, row.tier, policy)
    if ruling.tier == "block":
        return "policy", ruling.reason
    if agent is PERSON:
        return None
    if not any(allows(pattern, row.name) for pattern in agent.grant):
        return "grant", "not in the agent's grant"
    if any(forbids(pattern, row.name) for pattern in agent.deny):
        return "deny", "denied to the agent"
    if never_for_agents(row.name):
        return "deny", "never for agents: it would start, change or control what runs them"
    return None


def listed(row: CatalogRow, agent: AgentSettings) -> bool:
    """Whether a permitted row is put before the agent from the start of a turn.

    Resources and prompts would drown the tools, so they are listed only where the agent's grant or
    focus names their kind; until then they are found by `core:find_tools` and called by name.
    """
    if row.kind not in QUIET_KINDS:
        return True
    start = f"{row.kind}:"
    return any(
        rule.startswith(start) and allows(rule, row.name) for rule in (*agent.grant, *agent.focus)
    )


def permitted(
    rows: Sequence[CatalogRow], agent: AgentSettings, policy: PolicySettings
) -> tuple[CatalogRow, ...]:
    """The rows that the agent may use as soon as their source is usable, its focus first."""
    kept = [row for row in rows if forbidden(row, agent, policy) is None]
    if agent.focus:
        # A stable sort: within and outside the focus the catalog's order stays.
        kept.sort(key=lambda row: not in_focus(row, agent))
    return tuple(kept)


def in_focus(row: CatalogRow, agent: AgentSettings) -> bool:
    """Whether a row is one of those that the agent mostly works with."""
    return any(allows(rule, row.name) for rule in agent.focus)


def make_offer(
    rows: Sequence[CatalogRow],
    sources: Mapping[str, SourceView],
    agent: AgentSettings,
    policy: PolicySettings,
    passed: frozenset[str] | None = None,
) -> Offer:
    """The offer of an agent: connected rows that nothing forbids, and the rest by reason.

    `passed` are the sources that the gate lets through, None where there is no request.
    """
    counts: dict[tuple[str, By, str], int] = {}
    names: dict[tuple[str, By, str], list[str]] = {}
    for source in sources.values():
        if not source.connected and not source.tools:
            counts[source.name, "state", source.reason] = 0
        if source.over:
            counts[source.name, "limit", "more tools, or longer names, than a source may have"] = (
                source.over
            )
    for row in rows:
        why = forbidden(row, agent, policy)
        if why is None and not row.connected:
            why = ("state", row.reason)
        if why is None and not admitted(row, passed):
            why = ("gate", NOT_ABOUT)
        if why is None and not listed(row, agent):
            why = ("kind", f"{row.kind}s are offered where the agent's grant names them")
        if why is not None:
            key = (row.source, *why)
            counts[key] = counts.get(key, 0) + 1
            if why[0] in RULES and counts[key] <= NAMED:
                names.setdefault(key, []).append(row.name)
    return Offer(
        rows=tuple(
            row
            for row in permitted(rows, agent, policy)
            if row.connected and admitted(row, passed) and listed(row, agent)
        ),
        withheld=tuple(
            Withheld(
                source=key[0],
                count=count,
                by=key[1],
                reason=key[2],
                names=tuple(names.get(key, ())),
            )
            for key, count in sorted(counts.items())
        ),
    )


def gated(source: str) -> bool:
    """Whether the gate may keep a source back; the others are offered within an agent's grant."""
    return source.partition(":")[0] in GATED


def admitted(row: CatalogRow, passed: frozenset[str] | None) -> bool:
    """Whether the gate lets a row through; `passed` None: there is no request, so no gate."""
    return passed is None or not gated(row.source) or row.source in passed


def offer_row(row: CatalogRow, policy: PolicySettings) -> OfferRow:
    """A row as an agent gets it, with the tier that policy gives it."""
    return OfferRow(
        name=row.name,
        wire=row.wire,
        worker=row.source,
        local=row.local,
        summary=row.summary,
        tier=standing(row.name, row.tier, policy).tier,
        digest=row.digest,
        timeout=row.timeout,
        timeout_max=row.timeout_max,
        idempotent=row.idempotent,
        per_call=per_call(row.name, row.tier, policy),
    )
