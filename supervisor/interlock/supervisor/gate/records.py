"""What goes into the gate and what comes out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

from interlock.supervisor.gate.frequencies import Frequencies
from interlock.supervisor.gate.vectors import Vectors

By = Literal["name", "usage_card", "evidence", "context", "gate"]
"""Why a source is offered; `gate`: it is not, because nothing was enough."""
From = Literal[
    "name", "usage_card", "server_name", "tool_name", "description", "context", "meaning"
]
"""Where a word of evidence stands; `meaning`: how near the whole request is to the source."""


class Tables(NamedTuple):
    """What the gate knows of words in general, whatever is installed."""

    frequencies: Frequencies
    vectors: Vectors


@dataclass(frozen=True, slots=True)
class SourceText:
    """All text of one source that the gate reads.

    `source` is the id in the catalog (`mcp:github`), `name` what people call it (`github`),
    `tools` holds pairs of name and description. `cards` holds the words and phrases that the
    user's configuration gives, for all languages or by language; the gate matches the phrases of
    every language, whatever the request's.
    """

    source: str
    name: str
    description: str = ""
    tools: tuple[tuple[str, str], ...] = ()
    cards: tuple[str, ...] | Mapping[str, tuple[str, ...]] = ()

    def phrases(self) -> tuple[str, ...]:
        """Return the card's words and phrases of all languages, each once, in a fixed order."""
        if isinstance(self.cards, Mapping):
            given = [phrase for key in sorted(self.cards) for phrase in self.cards[key]]
        else:
            given = list(self.cards)
        return tuple(dict.fromkeys(given))


@dataclass(frozen=True, slots=True)
class Context:
    """What the last turns of the same session were offered, newest first.

    Each inner tuple holds the sources of one turn. Only the first few count.
    """

    recent: tuple[tuple[str, ...], ...] = ()


class Evidence(NamedTuple):
    """One word or phrase of the request that counted for a source."""

    word: str
    origin: From
    weight: float


class SourceDecision(NamedTuple):
    """What was decided on one source. `score` is between 0 and 1, or 1 for a name or a card."""

    source: str
    offered: bool
    score: float
    by: By
    evidence: tuple[Evidence, ...] = ()


class Decision(NamedTuple):
    """The outcome for one request, sources in the order of their ids.

    Of `decide`, `sources` holds only what is offered, without evidence; of `explain` every source
    with all evidence.
    """

    threshold: float
    sources: tuple[SourceDecision, ...] = ()

    @property
    def offered(self) -> tuple[str, ...]:
        """The ids of the offered sources, in order."""
        return tuple(row.source for row in self.sources if row.offered)
