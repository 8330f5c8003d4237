"""The requests that the gate was first described with, on lists of tools from a file."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from tests.gate_texts import NOTHING, SEVEN

from interlock.supervisor.gate import GateIndex, SourceText, decide
from interlock.supervisor.shipped import tables


def servers(path: Path) -> list[SourceText]:
    """Read servers by name, each `{"tools": [{"name", "description"}], "usage_card"}`."""
    found = []
    for name, row in json.loads(path.read_text("utf-8")).items():
        tools = tuple((tool["name"], tool.get("description") or "") for tool in row["tools"])
        card = row.get("usage_card") or ()
        phrases = card if isinstance(card, dict) else {"": card}
        cards = {key: tuple(words) for key, words in phrases.items()}
        found.append(SourceText(f"mcp:{name}", name, row.get("description") or "", tools, cards))
    return found


def lines(path: Path) -> Iterator[str]:
    """Yield one line for each request: exact or not, the request, and what it was offered."""
    index = GateIndex.build(servers(path), tables())
    for text, right in {**SEVEN, **dict.fromkeys(NOTHING, ())}.items():
        offered = decide(index, text).offered
        verdict = "exact" if offered == right else "not exact"
        yield f"{verdict:10}{text:52}{', '.join(offered) or 'nothing'}"
