"""Simpler methods, to set the gate beside: they see the same text, and count in the install."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

from tests.bench.gate_data import Folder
from tests.bench.gate_protocol import Offers

from interlock.supervisor.gate.words import english, parts, tokens

GENERIC = frozenset(
    "add all ask create data delete find get item list make new read report run search send set "
    "show start status stop text update use user write".split()
)
BM25_LEAST = 6.0
BM25_MARGIN = 0.5
COSINE_LEAST = 0.18


def _stems(text: str) -> list[str]:
    return [term for token in tokens(text) for word in parts(token) for term in english(word)]


def _documents(folder: Folder) -> dict[str, Counter[str]]:
    found = {}
    for source, text in folder.texts.items():
        tools = " ".join(f"{name} {said}" for name, said in text.tools)
        cards = " ".join(text.phrases())
        found[source] = Counter(_stems(f"{text.name} {text.description} {tools} {cards}"))
    return found


def name_or_card(folder: Folder) -> Offers:
    """Return the method of the first description: name, card, or a noun of a tool's name."""

    def offers(request: str, installed: Sequence[str]) -> set[str]:
        words = set(_stems(request))
        joined = "".join(token.lower() for token in tokens(request))
        offered = set()
        for source in installed:
            text = folder.texts[source]
            name = "".join(parts(text.name))
            nouns = {t for tool, _ in text.tools for t in _stems(tool) if t not in GENERIC}
            cards = {term for phrase in text.phrases() for term in _stems(phrase)}
            if (len(name) > 3 and name in joined) or words & (nouns | cards):
                offered.add(source)
        return offered

    return offers


def bm25(folder: Folder) -> Offers:
    """Return BM25 over whole servers: the best above a limit, and those within half of it."""
    documents = _documents(folder)

    def offers(request: str, installed: Sequence[str]) -> set[str]:
        df = Counter(term for source in installed for term in documents[source])
        sizes = {source: sum(documents[source].values()) for source in installed}
        mean = sum(sizes.values()) / len(sizes) or 1
        scores = {}
        for source in installed:
            got = 0.0
            for term in set(_stems(request)):
                count = documents[source][term]
                if count:
                    idf = math.log(1 + (len(installed) - df[term] + 0.5) / (df[term] + 0.5))
                    norm = 1.2 * (0.25 + 0.75 * sizes[source] / mean)
                    got += idf * count * 2.2 / (count + norm)
            scores[source] = got
        best = max(scores.values(), default=0.0)
        if best < BM25_LEAST:
            return set()
        return {source for source, got in scores.items() if got > best * (1 - BM25_MARGIN / 2)}

    return offers


def cosine(folder: Folder) -> Offers:
    """Return the cosine of TF-IDF vectors above a limit."""
    documents = _documents(folder)

    def offers(request: str, installed: Sequence[str]) -> set[str]:
        df = Counter(term for source in installed for term in documents[source])

        def vector(counts: Counter[str]) -> dict[str, float]:
            return {
                term: (1 + math.log(count)) * math.log((1 + len(installed)) / (0.5 + df[term]))
                for term, count in counts.items()
            }

        asked = vector(Counter(_stems(request)))
        length = math.sqrt(sum(x * x for x in asked.values())) or 1.0
        offered = set()
        for source in installed:
            other = vector(documents[source])
            whole = math.sqrt(sum(x * x for x in other.values())) or 1.0
            dot = sum(x * other[term] for term, x in asked.items() if term in other)
            if dot / (length * whole) >= COSINE_LEAST:
                offered.add(source)
        return offered

    return offers


BASELINES = {
    "name, card or tool noun": name_or_card,
    "BM25 with margin": bm25,
    "TF-IDF cosine": cosine,
}
