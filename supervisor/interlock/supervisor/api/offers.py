"""Answers of the api on what agents are offered, and why."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import msgspec

from interlock.bus.codec import decode_as
from interlock.bus.errors import InterlockError, MalformedError, NotFoundError, UsageError
from interlock.bus.limits import MAX_TEXT
from interlock.bus.messages import ToolsGet, WhyGet
from interlock.bus.names import WorkerName, workers_meant
from interlock.bus.nearest import nearest_worker
from interlock.bus.settings import AgentSettings, PolicySettings
from interlock.supervisor.api.documents import Documents
from interlock.supervisor.catalog.gating import Verdict
from interlock.supervisor.catalog.offer import (
    By,
    Offer,
    Withheld,
    forbidden,
    in_focus,
    make_offer,
)
from interlock.supervisor.catalog.rows import CatalogRow, SourceView
from interlock.supervisor.events.ports import Workers
from interlock.supervisor.events.turnoffers import DIRECT
from interlock.supervisor.events.turns import TurnService
from interlock.supervisor.policy.decision import rules_about, standing

TOKEN: Final = 4
"""Bytes of a schema that are taken for one token."""
STEPS: Final[tuple[By, ...]] = (
    "limit",
    "disabled",
    "policy",
    "grant",
    "deny",
    "kind",
    "state",
    "gate",
)
"""What withholds a capability, in the order in which it is decided."""


class OfferApi:
    """The handlers; each takes `(identity, message, body)` and returns the document."""

    def __init__(self, turns: TurnService, documents: Documents | None = None) -> None:
        self._turns = turns
        self._documents = documents or Documents()

    async def tools(self, identity: bytes, message: ToolsGet, body: bytes | None) -> bytes:
        """The catalog, or the offer for a request.

        Without a request all rows that nothing forbids are listed, connected or not; with one, only
        what a turn sent now would be offered. `withheld` counts the rest by reason.
        """
        name, policy, shown, withheld = await self._documents.alone(lambda: self._shown(message))
        schemas = self._turns.schemas
        listed: Iterable[object]
        if message.name:
            shown, withheld = self._named(message.name, name, shown), ()
            listed = (
                _row_document(row, policy)
                | {"schema": schemas.arguments(row.digest)}
                | _why_tier(row, policy)
                for row in shown
            )
        else:
            listed = (_row_document(row, policy) for row in shown)
        return await self._documents.make(
            {"agent": name}, {"capabilities": listed, "withheld": withheld}
        )

    def _shown(
        self, message: ToolsGet
    ) -> tuple[str, PolicySettings, tuple[CatalogRow, ...], tuple[Withheld, ...]]:
        """The agent, the policy, the rows to list, and what is withheld."""
        turns = self._turns
        name, settings = self._agent(message.agent, needed=bool(message.agent or message.text))
        policy, rows = turns.workers.policy(), turns.catalog.rows()
        passed = None
        if message.text:
            calls = settings.model == DIRECT
            passed = turns.gating.passed(message.text, calls=calls)
        offer = make_offer(rows, turns.catalog.sources(), settings, policy, passed)
        withheld = offer.withheld
        shown = offer.rows
        if not message.text:
            shown = tuple(row for row in rows if forbidden(row, settings, policy) is None)
            # What is not usable now, or not put before an agent from the start, is among the rows.
            withheld = tuple(
                held for held in withheld if held.by not in ("state", "kind") or not held.count
            )
        return name, policy, shown, withheld

    async def why(self, identity: bytes, message: WhyGet, body: bytes | None) -> bytes:
        """What a turn sent now would be offered of each source, and what counted for it."""
        return await self._documents.alone(lambda: self._why(message, text_of(body)))

    def _why(self, message: WhyGet, text: str) -> bytes:
        turns = self._turns
        if not text.strip():
            raise UsageError("Say for which request: a text that is not empty.")
        name, settings = self._agent(message.agent, needed=True)
        recent = turns.offers.recent(name, message.session)
        calls = settings.model == DIRECT
        threshold, verdicts = turns.gating.explain(text, recent, calls=calls)
        passed = frozenset(source for source, verdict in verdicts.items() if verdict.passed)
        rows, sources = turns.catalog.rows(), turns.catalog.sources()
        policy = turns.workers.policy()
        offer = make_offer(rows, sources, settings, policy, passed)
        everything = make_offer(rows, sources, settings, policy)
        focus = {row.source for row in rows if in_focus(row, settings)}
        document = {
            "request": text,
            "agent": name,
            "threshold": threshold,
            "sources": [
                _source_document(
                    view,
                    verdicts.get(view.name),
                    offer,
                    gated=turns.gating.decides(view.name),
                    focus=view.name in focus,
                )
                for view in sources.values()
            ],
            "schema_tokens": {
                "offered": self._tokens(offer.rows),
                "all": self._tokens(everything.rows),
            },
        }
        return msgspec.json.encode(document)

    def _agent(self, name: str, *, needed: bool) -> tuple[str, AgentSettings]:
        """The agent that is meant, with its focus; one that is not needed may be missing."""
        turns = self._turns
        name = name or turns.workers.default_agent()
        if needed:
            name, settings = find_agent(turns.workers, name)
        else:
            settings = turns.workers.agents().get(name) or AgentSettings()
        return name, turns.gating.focused(name, settings)

    def _named(self, name: str, agent: str, rows: tuple[CatalogRow, ...]) -> tuple[CatalogRow, ...]:
        """Those of `rows` that `name` means: one by its name or wire name, or a source's.

        Raises InterlockError, code `denied`, for what is there but forbidden; NotFoundError with
        what is most like it.
        """
        one = tuple(row for row in rows if name in (row.name, row.wire))
        if one:
            return one
        sources = dict.fromkeys(row.source for row in rows)
        meant = workers_meant(name, sources)
        if len(meant) == 1:
            return tuple(row for row in rows if row.source == meant[0])
        self._refuse(name, agent)
        near = nearest_worker(name, [*sources, *(row.name for row in rows)])
        hint = f" did you mean {near}?" if near else " see `interlock tools`."
        raise NotFoundError(f"There is no capability or source {name[:200]!r} to show;{hint}")

    def _refuse(self, name: str, agent: str) -> None:
        """Raise InterlockError, code `denied`, if rules keep from that agent what `name` means."""
        turns = self._turns
        _, settings = self._agent(agent, needed=False)
        rows, policy = turns.catalog.rows(), turns.workers.policy()
        meant = workers_meant(name, dict.fromkeys(row.source for row in rows))
        for row in rows:
            if name in (row.name, row.wire) or [row.source] == list(meant):
                why = forbidden(row, settings, policy)
                if why is not None:
                    what = row.name if name in (row.name, row.wire) else f"All of {row.source}"
                    text = f"{what} is withheld from the agent {agent}: {why[1]}."
                    raise InterlockError(text, code="denied")

    def _tokens(self, rows: Iterable[CatalogRow]) -> int:
        return self._turns.schemas.size(row.digest for row in rows) // TOKEN


def text_of(body: bytes | None) -> str:
    """The text that the body of a request is. Raises MalformedError, with code too_large too."""
    if len(body or b"") > MAX_TEXT:
        raise MalformedError(f"A text has at most {MAX_TEXT} bytes as JSON.", code="too_large")
    return decode_as(body or b"null", str)


def find_agent(workers: Workers, name: str) -> tuple[str, AgentSettings]:
    """The name and the settings of an agent that is enabled; its worker's name means it, too.

    Raises NotFoundError.
    """
    agents = workers.agents()
    if name not in agents:
        by_worker = {str(WorkerName("agent", agent)): agent for agent in agents}
        found = workers_meant(name, by_worker)
        if len(found) != 1:
            known = ", ".join(sorted(agents)) or "none; add [agents.NAME] to interlock.toml"
            raise NotFoundError(f"There is no agent {name[:100]!r}. Agents: {known}.")
        name = by_worker[found[0]]
    return name, agents[name]


def _row_document(row: CatalogRow, policy: PolicySettings) -> dict[str, Any]:
    return {
        "name": row.name,
        "wire": row.wire,
        "kind": row.kind,
        "source": row.source,
        "tier": standing(row.name, row.tier, policy).tier,
        "connected": row.connected,
        "reason": row.reason,
        "summary": row.summary,
    }


def _why_tier(row: CatalogRow, policy: PolicySettings) -> dict[str, Any]:
    """Why a capability has its tier, and what else a call of it may have by its arguments."""
    return {
        "tier_reason": standing(row.name, row.tier, policy).reason,
        "rules": [
            {"argument": rule.argument, "matches": rule.matches, "tier": rule.tier}
            for rule in rules_about(row.name, policy)
        ],
    }


def _source_document(
    view: SourceView, verdict: Verdict | None, offer: Offer, *, gated: bool, focus: bool
) -> dict[str, Any]:
    """One source of `why`; `by` names the step that decided."""
    rows = [row for row in offer.rows if row.source == view.name]
    held = [one for one in offer.withheld if one.source == view.name]
    by, reason = ("gate" if gated else "grant"), ""
    if not rows:
        by, reason = _decided(held, by)
    verdict = verdict or Verdict(passed=False)
    return {
        "source": view.name,
        "offered": bool(rows),
        "score": verdict.score,
        "by": by,
        "reason": reason,
        "via": verdict.via,
        "focus": focus,
        "capabilities": {"offered": len(rows), "all": view.tools},
        "withheld": held,
        "evidence": verdict.evidence,
    }


def _decided(held: list[Withheld], by: str) -> tuple[str, str]:
    """What kept all of a source back: of the steps that took part of it, the last, and its reason.

    What that step refused had passed all before it, so a rule about a few tools of a source is
    never given as the reason for the others.
    """
    last = max(held, key=lambda one: (STEPS.index(one.by), one.count), default=None)
    return (last.by, last.reason) if last is not None else (by, "it serves nothing")
