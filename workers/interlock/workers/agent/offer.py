"""Pure: which capability of a turn's offer a written name means."""

from __future__ import annotations

from collections.abc import Iterable

from interlock.bus.errors import UsageError
from interlock.bus.names import CapabilityName, resolve_spelling
from interlock.bus.records import OfferRow


class Offer:
    """The rows that one turn may use, found by exact name, wire name or spelling.

    `rows` maps exact names to rows and is live: drivers may keep it.
    """

    def __init__(self, rows: Iterable[OfferRow] = ()) -> None:
        self.rows: dict[str, OfferRow] = {}
        self._wires: dict[str, str] = {}
        self._names: dict[CapabilityName, str] = {}
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

        A name with an explicit source never means a capability of another source.
        """
        if (row := self.rows.get(text)) is not None:
            return row
        if (name := self._wires.get(text)) is not None:
            return self.rows[name]
        found = resolve_spelling(text, self._names)
        if isinstance(found, CapabilityName):
            return self.rows[self._names[found]]
        return tuple(self._names[candidate] for candidate in found)
