"""Capabilities that a text names by their written form, as people and programs paste them; pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final

from interlock.bus.names import fold, folded_leaves
from interlock.supervisor.catalog.rows import CatalogRow

LOOKED_AT: Final = 64 << 10
"""Characters of a text that are looked at; what stands behind is asked for when it is called."""
LONGEST: Final = 512
"""Characters of a call's name that is taken for a spelling; marks take quadratic time to fold."""
_FULL: Final = re.compile(r"(?<![\w:.])([a-z]{1,16}:[^\s/:\"'`(),;{}]+)")
_WIRE: Final = re.compile(r"(?<![\w-])[a-zA-Z0-9-]+__[a-zA-Z0-9_-]+")
_CALL: Final = re.compile(r"(?:^|&)[ \t]*([^\s&{#]\S*)[ \t]*(?=$|[{\[&\n])", re.MULTILINE)
_LEAF: Final = re.compile(r"__|[/:.]")


class WrittenNames:
    """Finds the sources that a text names, among the capabilities of a catalog."""

    def __init__(self, rows: Iterable[CatalogRow]) -> None:
        self._wires: dict[str, str] = {}
        self._full: dict[str, str] = {}
        self._own: dict[str, set[str]] = {}
        for row in rows:
            self._wires[row.wire] = row.source
            self._full[row.name.partition("/")[0]] = row.source
            for leaf in folded_leaves(row.capability):
                self._own.setdefault(leaf, set()).add(row.source)

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
