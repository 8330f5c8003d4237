"""What the demonstration shows: a turn as it streams, and the process table."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

_COLUMNS: Final = ("NAME", "STATE", "PID", "RESTARTS", "MEMORY", "TOOLS", "REASON")
_WIDTH: Final = 100


class Screen:
    """Writes the demonstration's text, line by line, through `write`."""

    def __init__(self, write: Callable[[str], None]) -> None:
        self.say = write

    def head(self, text: str) -> None:
        """Write the heading of a part."""
        self.say(f"\n== {text}")

    def turn(
        self,
        stream: Iterable[Mapping[str, Any]],
        on_item: Callable[[Mapping[str, Any]], None] | None = None,
        brief: bool = False,
    ) -> Mapping[str, Any]:
        """Show a turn's items as they come and return the last one.

        `on_item` is called with each item after it was shown. With `brief` each piece of text is
        shown as one line, cut to the width, and one that comes again is only counted.
        """
        last: Mapping[str, Any] = {}
        before, repeated = "", 0
        for item in stream:
            if brief and item["type"] == "text.delta":
                item = {**item, "text": " ".join(item["text"].split())}
                if before and item["text"] == before:
                    repeated += 1
                    continue
                before = item["text"]
            if repeated and item["type"] not in ("tool.call", "tool.result"):
                self.say(f"  | (and {repeated} more of the same)")
                repeated = 0
            for line in item_lines(item):
                self.say(line)
            if on_item is not None:
                on_item(item)
            last = item
        return last

    def table(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Show the process table."""
        for line in table_lines(rows):
            self.say(line)


def item_lines(item: Mapping[str, Any]) -> list[str]:
    """Return the lines that show one item of a turn; none for an item that shows nothing.

    >>> item_lines({"type": "turn.failed", "code": "deadline", "message": "Too late."})
    ['  failed (deadline): Too late.']
    """
    match item["type"]:
        case "turn.started":
            model = item["model"] or "no model"
            return [f"  agent {item['agent']} ({model}), {item['offered']} tools offered"]
        case "tool.call":
            return [f"  -> {item['capability']}"]
        case "tool.result":
            return [f"  <- {item['id']}: {item['outcome']}, {item['duration_ms']:.0f} ms"]
        case "text.delta":
            return [f"  | {_cut(line)}" for line in item["text"].strip("\n").splitlines()]
        case "turn.completed":
            return ["  completed"]
        case "turn.failed":
            return [f"  failed ({item['code']}): {item['message']}"]
        case "turn.cancelled":
            return ["  cancelled"]
    return []


def table_lines(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return the process table as aligned lines."""
    cells = [_COLUMNS]
    for row in rows:
        memory = f"{row['rss_bytes'] / 2**20:.0f} MB" if row.get("rss_bytes") else ""
        cells.append(
            (
                row["name"],
                row["state"],
                str(row.get("pid") or ""),
                str(row["restarts"]),
                memory,
                str(row.get("tools") or ""),
                row.get("reason") or "",
            )
        )
    widths = [max(len(line[column]) for line in cells) for column in range(len(_COLUMNS))]
    return [
        _cut("  " + "  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)))
        for line in cells
    ]


def _cut(line: str) -> str:
    line = line.rstrip()
    return line if len(line) <= _WIDTH else line[: _WIDTH - 1] + "…"
