"""Everything that needs a person's attention: the only owner of these rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Final

import msgspec

from interlock.bus.events import AttentionChanged, Event
from interlock.bus.names import workers_meant

MAX_TEXT: Final = 1000
"""Characters of one text; longer ones, which a worker may send, are cut."""
MAX_ROWS: Final = 100
"""Rows of one name that its process is the source of; more are dropped and counted."""
TOO_MANY: Final = "too_many_reports"
MEMORY_SOFT: Final = "memory_soft"
REFUSED_LIST: Final = "list_refused"
OWN_CODES: Final = frozenset({TOO_MANY, MEMORY_SOFT, REFUSED_LIST})
"""Codes of what the supervisor itself says of a process; there is always room for these."""
STATE: Final = "state"
"""Subject of the row about a worker's own state."""


class Row(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One row. `name` is a worker, `supervisor` or `configuration`."""

    name: str
    code: str
    message: str
    fix: str
    file: str = ""
    line: int = 0
    subject: str = ""
    """What tells rows of the same name and code apart, such as a tool."""

    @property
    def from_process(self) -> bool:
        """Whether a worker's process is its source, not configuration or the supervisor itself."""
        return not self.file and self.subject != STATE and ":" in self.name


Key = tuple[str, str, str]


def unused_text(name: str, message: str, fix: str) -> str:
    """Say why an entry does not run, and what to do."""
    todo = fix or "mend the entry, it is read again at once"
    return f"{name} does not run: {message.rstrip('.')}. What to do: {todo}."


class Attention:
    """Rows by name, code and subject; `publish` hears of each that comes, changes or goes."""

    def __init__(self, publish: Callable[[Event], object]) -> None:
        self._publish = publish
        self._rows: dict[Key, Row] = {}
        self._from_process: Counter[str] = Counter()
        self.dropped = 0

    def rows(self) -> tuple[Row, ...]:
        """All rows, those of one name together, oldest first."""
        return tuple(sorted(self._rows.values(), key=lambda row: row.name))

    def set(self, row: Row) -> None:
        """Add a row, or replace the one with the same name, code and subject."""
        row = _cut(row)
        key = (row.name, row.code, row.subject)
        before = self._rows.get(key)
        if before == row:
            return
        new = before is None or not before.from_process
        full = self._from_process[row.name] >= MAX_ROWS and row.code not in OWN_CODES
        if row.from_process and new and full:
            self.dropped += 1
            return
        self._count(before, -1)
        self._count(row, 1)
        self._rows[key] = row
        self._publish(
            AttentionChanged(name=row.name, code=row.code, message=row.message, fix=row.fix)
        )

    def unused(self, typed: str) -> str:
        """Why the entry that a person means by `typed` does not run, and what to do; else empty.

        For entries that no worker stands for: with a mistake, or in a file that is not trusted.
        """
        rows = {row.name: row for row in self._rows.values() if row.file and ":" in row.name}
        found = workers_meant(typed, rows)
        return unused_text(found[0], rows[found[0]].message, rows[found[0]].fix) if found else ""

    def entries(self) -> tuple[str, ...]:
        """The names of entries with a row that comes from a file; some of them do not run."""
        found = (row.name for row in self._rows.values() if row.file and ":" in row.name)
        return tuple(dict.fromkeys(found))

    def has(self, name: str, code: str, subject: str = "") -> bool:
        """Whether there is such a row; cheaper than to set the same one again."""
        return (name, code, subject) in self._rows

    def clear(self, name: str, code: str, subject: str = "") -> None:
        """Take a row away, if it is there."""
        gone = self._rows.pop((name, code[:MAX_TEXT], subject[:MAX_TEXT]), None)
        if gone is not None:
            self._count(gone, -1)
            self._publish(AttentionChanged(name=name, code=gone.code, clear=True))

    def _count(self, row: Row | None, sign: int) -> None:
        if row is not None and row.from_process:
            self._from_process[row.name] += sign
            if not self._from_process[row.name]:
                del self._from_process[row.name]

    def replace(self, rows: Iterable[Row], kept: Callable[[Row], bool]) -> None:
        """Exchange all rows that `kept` refuses for `rows`; what stays the same stays silent."""
        fresh = {(row.name, row.code, row.subject): row for row in map(_cut, rows)}
        for key, row in list(self._rows.items()):
            if key not in fresh and not kept(row):
                self.clear(*key)
        for row in fresh.values():
            self.set(row)


def _cut(row: Row) -> Row:
    texts = {
        "code": row.code[:MAX_TEXT],
        "message": row.message[:MAX_TEXT],
        "fix": row.fix[:MAX_TEXT],
        "subject": row.subject[:MAX_TEXT],
    }
    return msgspec.structs.replace(row, **texts)
