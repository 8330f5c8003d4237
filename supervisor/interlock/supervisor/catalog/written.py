"""Capabilities that a text names by their written form, as people and programs paste them; pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from interlock.bus.names import CapabilityName, fold, folded_leaves
from interlock.supervisor.catalog.rows import CatalogRow

LOOKED_AT: Final = 64 << 10
"""Characters of a text that are looked at; what stands behind is asked for when it is called."""
LONGEST: Final = 512
"""Characters of a call's name that is taken for a spelling; marks take quadratic time to fold."""
_FULL: Final = re.compile(r"(?<![\w:.])([a-z]{1,16}:[^\s/:\"'`(),;{}]+)")
_WIRE: Final = re.compile(r"(?<![\w-])[a-zA-Z0-9-]+__[a-zA-Z0-9_-]+")
_CALL: Final = re.compile(r"(?:^|&)[ \t]*([^\s&{#]\S*)[ \t]*(?=$|[{\[&\n])", re.MULTILINE)
_LEAF: Final = re.compile(r"__|[/:.]")


@dataclass(frozen=True, slots=True)
class _Part:
    """What one source adds: names by wire name, beginnings of full names, folded own names."""

    names: dict[str, str]
    full: set[str]
    leaves: set[str]


class WrittenNames:
    """Finds the sources that a text names, among the capabilities of a catalog.

    It is kept up source by source, so that one that changes all the time costs what it has itself.
    """

    def __init__(self, rows: Iterable[CatalogRow] = ()) -> None:
        self._parts: dict[str, _Part] = {}
        self._wires: dict[str, str] = {}
        self._full: dict[str, str] = {}
        self._own: dict[str, set[str]] = {}
        by_source: dict[str, list[CatalogRow]] = {}
        for row in rows:
            by_source.setdefault(row.source, []).append(row)
        for source, own in by_source.items():
            self.replace(source, own)

    def replace(self, source: str, rows: Iterable[CatalogRow]) -> None:
        """Put what a source serves in the place of what it served; nothing if it is the same."""
        names = {row.wire: row.name for row in rows}
        before = self._parts.pop(source, None)
        if before is not None and before.names == names:
            self._parts[source] = before
            return
        if before is not None:
            self._remove(source, before)
        if names:
            self._parts[source] = self._add(source, names)

    def _add(self, source: str, names: dict[str, str]) -> _Part:
        leaves = {
            leaf for name in names.values() for leaf in folded_leaves(CapabilityName.parse(name))
        }
        part = _Part(names, {name.partition("/")[0] for name in names.values()}, leaves)
        self._wires.update(dict.fromkeys(names, source))
        self._full.update(dict.fromkeys(part.full, source))
        for leaf in leaves:
            self._own.setdefault(leaf, set()).add(source)
        return part

    def _remove(self, source: str, part: _Part) -> None:
        for texts, known in ((part.names, self._wires), (part.full, self._full)):
            for text in texts:
                if known.get(text) == source:
                    del known[text]
        for leaf in part.leaves:
            having = self._own[leaf]
            having.discard(source)
            if not having:
                del self._own[leaf]

    def sources(self, text: str, *, calls: bool = False) -> Mapping[str, str]:
        """The sources that a text names, with the first words that did it.

        `mcp:git/git_log`, `mcp:git` and `mcp__git__git_log` name their source in every text. With
        `calls` the text is a program of tool calls, one a line: then a call's name counts in any
        spelling, and each source that has it is meant.
        """
        text = text[:LOOKED_AT]
        found: dict[str, str] = {}
        for match in _FULL.finditer(text):
            source = self._full.get(match[1]) or self._full.get(match[1].rstrip(".!?"))
            if source is not None:
                found.setdefault(source, match[1])
        for match in _WIRE.finditer(text):
            if (source := self._wires.get(match[0])) is not None:
                found.setdefault(source, match[0])
        for match in _CALL.finditer(text) if calls else ():
            if len(match[1]) > LONGEST:
                continue
            for source in self._own.get(fold(_LEAF.split(match[1])[-1]), ()):
                found.setdefault(source, match[1])
        return found
