"""Pure: which capability of a turn's offer a written name means."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from interlock.bus.errors import UsageError
from interlock.bus.names import LONGEST, MAX_CANDIDATES, CapabilityName, resolve_spelling, spelled
from interlock.bus.records import OfferRow

HINTS: Final = 20
"""Names of one turn that mean nothing and for which close ones are looked for: that takes up to
0.2 s each, and a step may have a thousand of them."""


class Offer:
    """The rows that one turn may use, found by exact name, wire name or spelling.

    `rows` maps exact names to rows and is live: drivers may keep it.
    """

    def __init__(self, rows: Iterable[OfferRow] = ()) -> None:
        self.rows: dict[str, OfferRow] = {}
        self._wires: dict[str, str] = {}
        self._names: dict[CapabilityName, str] = {}
        self._hints = HINTS
        self.update(rows)

    def update(self, rows: Iterable[OfferRow] = (), removed: Iterable[str] = ()) -> None:
        """Take away the rows named in `removed`, then add or replace `rows`."""
        for name in removed:
            self.rows.pop(name, None)
        self.rows.update((row.name, row) for row in rows)
        self._wires = {row.wire: row.name for row in self.rows.values()}
        self._names = {}
        for name in self.rows:
            try:
                self._names[CapabilityName.parse(name)] = name
            except UsageError:
                # A name that no version of ours writes is still found exactly, only not folded.
                continue

    def find(self, text: str) -> OfferRow | tuple[str, ...]:
        """Return the one row that `text` means, or else the exact names it may have meant.

        A name with an explicit source never means a capability of another source. The first `HINTS`
        names that mean none get those that come close, too.
        """
        if (row := self.rows.get(text)) is not None:
            return row
        if (name := self._wires.get(text)) is not None:
            return self.rows[name]
        if len(text) > LONGEST:
            return ()
        found: CapabilityName | tuple[CapabilityName, ...]
        if self._hints > 0:
            found = resolve_spelling(text, self._names)
            self._hints -= isinstance(found, tuple)
        else:
            found = spelled(text, self._names)
            found = found[0] if len(found) == 1 else found[:MAX_CANDIDATES]
        if isinstance(found, CapabilityName):
            return self.rows[self._names[found]]
        return tuple(self._names[candidate] for candidate in found)
