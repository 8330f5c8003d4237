"""The documents of the core tools, and what `core:time` answers; pure."""

from __future__ import annotations

import hashlib
from datetime import datetime, tzinfo
from typing import Any, Final

import msgspec

from interlock.bus.records import CapabilityReport

_NO_EXTRA: Final = {"additionalProperties": False}


def _tool(name: str, description: str, properties: dict[str, Any], *required: str) -> Any:
    schema = {"type": "object", "properties": properties, "required": list(required), **_NO_EXTRA}
    return {"name": name, "description": description, "inputSchema": schema}


DOCUMENTS: Final = (
    _tool(
        "find_tools",
        "Finds further tools by words when the ones you have do not fit. What it finds can be "
        "called in this turn, by its `wire` name.",
        {
            "query": {"type": "string", "description": "What the tool should do, in a few words."},
            "limit": {"type": "integer", "minimum": 1, "maximum": 20, "default": 8},
        },
        "query",
    ),
    _tool(
        "notes_read",
        "Reads one of your notes, or without a name lists them all.",
        {"name": {"type": "string", "description": "Of the note; leave it out for the list."}},
    ),
    _tool(
        "notes_write",
        "Writes a note that later turns can read. An empty text removes the note.",
        {
            "name": {"type": "string"},
            "text": {"type": "string"},
            "append": {
                "type": "boolean",
                "description": "Add the text to the end of the note instead of replacing it.",
                "default": False,
            },
        },
        "name",
        "text",
    ),
    _tool(
        "time",
        "Tells the date and time, the day of the week and the time zone.",
        {
            "zone": {
                "type": "string",
                "description": "A time zone such as Europe/Berlin; leave it out for the local one.",
            }
        },
    ),
)
READ_ONLY: Final = ("find_tools", "notes_read", "time")


def reports() -> tuple[tuple[CapabilityReport, ...], dict[str, msgspec.Raw]]:
    """Return a report for each tool, and their documents by digest."""
    rows, documents = [], {}
    for tool in DOCUMENTS:
        document = msgspec.json.encode(tool)
        digest = hashlib.sha256(document).hexdigest()
        documents[digest] = msgspec.Raw(document)
        reading = tool["name"] in READ_ONLY
        rows.append(
            CapabilityReport(
                name=tool["name"],
                digest=digest,
                summary=tool["description"],
                read_only=reading,
                idempotent=reading,
            )
        )
    return tuple(rows), documents


def told_time(now: datetime, zone: tzinfo | None) -> dict[str, Any]:
    """Return a moment as a model can use it; `zone` None: the local one of `now`.

    >>> from datetime import UTC
    >>> told_time(datetime(2026, 3, 1, 12, tzinfo=UTC), UTC)["weekday"]
    'Sunday'
    """
    local = now.astimezone(zone)
    return {
        "time": local.isoformat(timespec="seconds"),
        "weekday": f"{local:%A}",
        "zone": str(zone) if zone is not None else local.tzname() or "",
        "unix": int(local.timestamp()),
    }
