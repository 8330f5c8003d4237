"""The decision for one request: which sources are offered, and why."""

from __future__ import annotations

from typing import Final

from interlock.supervisor.gate.context import followed
from interlock.supervisor.gate.entry import SERVER_NAME, TOOL_NAME
from interlock.supervisor.gate.gather import Hit, gather
from interlock.supervisor.gate.index import GateIndex
from interlock.supervisor.gate.named import Calls, calls
from interlock.supervisor.gate.records import By, Context, Decision, Evidence, From, SourceDecision
from interlock.supervisor.gate.request import Request, read
from interlock.supervisor.gate.score import points
from interlock.supervisor.gate.vectors import near

_ORIGINS: Final[dict[int, From]] = {SERVER_NAME: "server_name", TOOL_NAME: "tool_name"}
_NOTHING: Final = Context()


def decide(index: GateIndex, text: str, context: Context = _NOTHING) -> Decision:
    """Return which sources a request is offered, in the order of their ids.

    The same sources, request and context always give the same decision.
    """
    request = read(index, text)
    called = calls(index, request)
    scores = points(index, gather(index, request), called, index.least)
    offered = _offered(index, request, called, scores, context)
    rows = [SourceDecision(source, True, *offered[source]) for source in sorted(offered)]
    return Decision(index.numbers.threshold, tuple(rows))


def explain(index: GateIndex, text: str, context: Context = _NOTHING) -> Decision:
    """Return the same decision with a row for every source and all evidence, strongest first."""
    request = read(index, text)
    called = calls(index, request)
    gathered = gather(index, request)
    scores = points(index, gathered, called)
    offered = _offered(index, request, called, scores, context)
    rows = []
    for source in sorted(index.entries):
        score, by = offered.get(source, (scores.get(source, 0.0), "gate"))
        evidence = list(called.words.get(source, ()))
        for hit in gathered.hits(source):
            evidence.append(_evidence(index, request, source, hit))
        nearness = near(gathered.pointing, index.entries[source].direction)
        if source in gathered.sums and nearness > 0:
            evidence.append(Evidence("meaning", "meaning", nearness))
        if by == "context":
            evidence.append(Evidence(text.strip(), "context", 1.0))
        evidence.sort(key=lambda item: (-item.weight, item.origin, item.word))
        rows.append(SourceDecision(source, source in offered, score, by, tuple(evidence)))
    return Decision(index.numbers.threshold, tuple(rows))


def _evidence(index: GateIndex, request: Request, source: str, hit: Hit) -> Evidence:
    at, term, weight = hit
    origin = _ORIGINS.get(index.postings[term][source], "description")
    return Evidence(request.terms[at][0], origin, weight)


def _offered(
    index: GateIndex, request: Request, called: Calls, scores: dict[str, float], context: Context
) -> dict[str, tuple[float, By]]:
    """Return score and reason by offered source; a name goes before a card before evidence."""
    threshold = index.numbers.threshold
    offered: dict[str, tuple[float, By]] = {
        source: (score, "evidence") for source, score in scores.items() if score >= threshold
    }
    for source in called.by_card:
        offered[source] = (1.0, "usage_card")
    for source in called.by_name:
        offered[source] = (1.0, "name")
    if context.recent:
        kept = followed(index, request, context)
        if kept and offered.keys() <= set(kept):
            for source in kept:
                offered.setdefault(source, (1.0, "context"))
    return offered
