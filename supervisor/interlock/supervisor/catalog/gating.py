"""Which sources a request is about: the owner of the gate's index and of what agents focus on.

Pure but for its own state, which depends on nothing but what the sources last reported and how
they are configured: the order in which they came does not show.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from interlock.bus.names import QUIET_KINDS, WorkerName
from interlock.bus.settings import AgentSettings, UsageCard
from interlock.supervisor.catalog.offer import gated
from interlock.supervisor.catalog.rows import Catalog, CatalogRow, SourceSettings
from interlock.supervisor.catalog.schemas import Schemas
from interlock.supervisor.catalog.written import LOOKED_AT, WrittenNames
from interlock.supervisor.gate import (
    Context,
    FocusRow,
    GateIndex,
    SourceText,
    Tables,
    choose,
    decide,
    explain,
)

Recent = Sequence[tuple[str, ...]]
"""The gated sources of the last turns of a session, the newest first."""
SERVERS: Final = "mcp"
"""Kind of the sources that the gate always decides about."""


def has_phrases(card: UsageCard) -> bool:
    """Whether a usage card has a word or phrase in any language."""
    return any(card.values()) if isinstance(card, Mapping) else bool(card)


class Evidence(msgspec.Struct, frozen=True, kw_only=True, rename={"origin": "from"}):
    """A word of the request that counted for a source; `from` says where the source has it."""

    word: str
    origin: str
    weight: float


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """What the gate says of one source; `via` is what decided it."""

    passed: bool
    score: float = 0.0
    via: str = ""
    evidence: tuple[Evidence, ...] = ()


class Gating:
    """Follows the catalog source by source and answers for single requests."""

    def __init__(self, catalog: Catalog, schemas: Schemas, tables: Tables) -> None:
        self._catalog = catalog
        self._schemas = schemas
        self._index = GateIndex(tables)
        self._about: dict[str, tuple[str, UsageCard]] = {}
        """Description and card of each source, as its entry gives them."""
        self._rows: dict[str, tuple[CatalogRow, ...]] = {}
        """What each source served last, also while it is down."""
        self._read: dict[str, object] = {}
        """What the index has of each source, as something that changes with it."""
        self.changes = 0
        """Grows with everything that may change a decision."""
        self._changed_at: dict[str, int] = {}
        self._focus: dict[tuple[str, str], tuple[str, ...]] = {}
        self._written = WrittenNames()

    # --- following the catalog ---

    def configure(self, source: str, settings: SourceSettings) -> None:
        """A source came, or its entry changed; call it after the catalog has it."""
        self._about[source] = (settings.description, settings.usage_card)
        if rows := self._catalog.rows_of(source):
            self._rows[source] = rows
        self._refresh(source)

    def reported(self, source: str) -> None:
        """A source reported what it serves; what it served is remembered while it is down."""
        if source in self._about:
            self._rows[source] = self._catalog.rows_of(source)
            self._refresh(source)

    def remove(self, source: str) -> None:
        """A source left the configuration."""
        self._rows.pop(source, None)
        if self._about.pop(source, None) is not None:
            del self._read[source]
            self._written.replace(source, ())
            self._index.remove(source)
            self._changed(source)

    def _refresh(self, source: str) -> None:
        # The order of the sources does not show: a name belongs to one, or to all that have it.
        known_now = self._rows.get(source, ()) if self.decides(source) else ()
        self._written.replace(source, known_now)
        rows = [
            row
            for row in self._rows.get(source, ())
            if not row.disabled and row.kind not in QUIET_KINDS
        ]
        known = [self._schemas.knows(row.digest) for row in rows]
        key = (
            self._about[source],
            [(row.local, row.summary, row.digest) for row in rows],
            known,
        )
        if self._read.get(source) == key:
            return
        self._read[source] = key
        if not self.decides(source):
            self._index.remove(source)
        else:
            description, card = self._about[source]
            told = self._schemas.descriptions(row.digest for row in rows)
            tools = sorted((row.local, told.get(row.digest) or row.summary) for row in rows)
            name = WorkerName.parse(source).id
            self._index.replace(SourceText(source, name, description, tuple(tools), card))
        self._changed(source)

    def _changed(self, source: str) -> None:
        self.changes += 1
        self._changed_at[source] = self.changes
        self._focus.clear()

    def changed_since(self, source: str, changes: int) -> bool:
        """Whether the gate knows something else of a source than when `changes` had that value."""
        return self._changed_at.get(source, 0) > changes

    def decides(self, source: str) -> bool:
        """Whether the gate decides about a source: a server, or a CLI tool with a usage card.

        Without a card there is nothing that tells when a program is wanted, so it is not withheld.
        """
        if not gated(source) or source not in self._about:
            return False
        return WorkerName.parse(source).kind == SERVERS or has_phrases(self._about[source][1])

    def _open(self) -> frozenset[str]:
        """The sources that the gate could keep back but has no say about."""
        return frozenset(one for one in self._about if gated(one) and not self.decides(one))

    # --- requests ---

    def passed(self, text: str, recent: Recent = (), *, calls: bool = False) -> frozenset[str]:
        """The gated sources that a request may have: what it is about and CLI tools

        `calls`: the text is a program of calls.
        """
        decision = decide(self._index, text[:LOOKED_AT], Context(tuple(recent)))
        return self._open() | frozenset(decision.offered) | self._named(text, calls).keys()

    def explain(
        self, text: str, recent: Recent = (), *, calls: bool = False
    ) -> tuple[float, dict[str, Verdict]]:
        """The threshold, and the same decision for every gated source with all evidence."""
        decision = explain(self._index, text[:LOOKED_AT], Context(tuple(recent)))
        named = self._named(text, calls)
        verdicts = {source: Verdict(passed=True) for source in self._open()}
        for row in decision.sources:
            evidence = [
                Evidence(word=one.word, origin=one.origin, weight=round(one.weight, 4))
                for one in row.evidence
            ]
            score, via = row.score, row.by
            if row.source in named:
                evidence.insert(0, Evidence(word=named[row.source], origin="name", weight=1.0))
                score, via = 1.0, "name"
            verdicts[row.source] = Verdict(
                passed=row.offered or row.source in named,
                score=round(score, 4),
                via=via if row.offered or row.source in named else "",
                evidence=tuple(evidence),
            )
        return decision.threshold, verdicts

    def _named(self, text: str, calls: bool) -> Mapping[str, str]:
        return self._written.sources(text, calls=calls)

    # --- agents ---

    def focused(self, agent: str, settings: AgentSettings) -> AgentSettings:
        """The settings with what the agent works with: its own `focus`, else one that is found.

        It is found once, from the agent's name and description, and stays until a source changes
        what it is or serves; at most six patterns.
        """
        if settings.focus:
            return settings
        key = (agent, settings.description)
        found = self._focus.get(key)
        if found is None:
            found = self._focus[key] = choose(
                agent, settings.description, self._focus_rows(), self._index.frequencies
            )
        return msgspec.structs.replace(settings, focus=found) if found else settings

    def _focus_rows(self) -> list[FocusRow]:
        found = []
        for source, (description, card) in sorted(self._about.items()):
            rows = self._rows.get(source, ())
            if WorkerName.parse(source).kind == SERVERS:
                name = WorkerName.parse(source).id
                phrases = SourceText(source, name, cards=card).phrases()
                words = " ".join((description, *(row.local for row in rows)))
                # What people call a source counts like its name.
                found.append(FocusRow(f"{source}/*", " ".join((name, *phrases)), words))
            else:
                found += [FocusRow(row.name, row.local, row.summary) for row in rows]
        return found
