"""A server's tool list: reading pages, judging each tool alone, making capability reports.

Pure. A tool that cannot be offered is left out alone and named with the reason; a small fault is
mended and named. What a tool says beyond the fields read here stays in its document.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any, Final

import msgspec

from interlock.bus import modelschema
from interlock.bus.limits import MAX_DOCUMENTS
from interlock.bus.records import CapabilityReport, DroppedTool
from interlock.workers.looks import beginning
from interlock.workers.mcp.drops import bounded
from interlock.workers.mcp.frames import mend_text

MAX_TOOLS: Final = 2000
MAX_PAGES: Final = 200
MAX_TOOL: Final = 512 << 10
"""Bytes of one tool's document."""
MAX_PAGED: Final = 64 << 20
"""Bytes of all pages of a list."""
MAX_ROWS: Final = 768 << 10
"""Bytes of all reports; they are reported in one header."""
MAX_DEPTH: Final = 64
MAX_NAME: Final = 256
SUMMARY: Final = 200
"""Characters of a summary."""
_EMPTY_SCHEMA: Final[dict[str, Any]] = {"type": "object", "properties": {}}


_Tools: Any = beginning(MAX_TOOLS)


class Page(msgspec.Struct, rename="camel"):
    """One page of `tools/list`; the tools stay unread, and those beyond `MAX_TOOLS`, too."""

    tools: _Tools
    next_cursor: str | None = None


class Annotations(msgspec.Struct, frozen=True, rename="camel"):
    """What a tool says about itself; a hint, not a promise."""

    read_only_hint: bool | None = None
    destructive_hint: bool | None = None
    idempotent_hint: bool | None = None
    open_world_hint: bool | None = None


class ToolList(msgspec.Struct):
    """The tools of a server: reports in the server's order, documents by digest, what was wrong."""

    rows: tuple[CapabilityReport, ...]
    documents: dict[str, bytes]
    dropped: tuple[DroppedTool, ...]

    @property
    def names(self) -> frozenset[str]:
        """Names of all tools that may be called."""
        return frozenset(row.name for row in self.rows)


class _UnusableError(ValueError):
    """Why a tool cannot be offered."""


_PAGE = msgspec.json.Decoder(Page)
_ENCODER = msgspec.json.Encoder()


def read_page(result: bytes) -> Page:
    """Return a page of `tools/list`. Raises ValueError when the result is no such page."""
    try:
        return _PAGE.decode(result)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def read_tools(raw_tools: Iterable[bytes], cut: str = "") -> ToolList:
    """Judge every tool of a list alone; `cut`: why the list is not whole."""
    rows: dict[str, CapabilityReport] = {}
    documents: dict[str, bytes] = {}
    problems = [DroppedTool(name="further tools", reason=cut)] if cut else []
    room, header_room = MAX_DOCUMENTS, MAX_ROWS
    for position, raw in enumerate(raw_tools, 1):
        label = f"tool {position}"
        if len(rows) >= MAX_TOOLS:
            reason = f"the server lists more than {MAX_TOOLS} tools"
            problems.append(DroppedTool(name="further tools", reason=reason))
            break
        try:
            tool = _read_json(raw)
            label = _name(tool)
            if label in rows:
                raise _UnusableError("the server lists another tool with this name before it")
            mended = _mend(tool)
            document = _ENCODER.encode(tool)
            row = _report(tool, label, document)
        except _UnusableError as error:
            problems.append(DroppedTool(name=label, reason=str(error)))
            continue
        room -= len(document)
        header_room -= len(msgspec.msgpack.encode(row))
        if room < 0 or header_room < 0:
            reason = "the descriptions of the server's tools are too large together"
            problems.insert(0, DroppedTool(name=f"{label} and further tools", reason=reason))
            break
        if mended:
            problems.append(DroppedTool(name=label, reason=mended, mended=True))
        rows[label] = row
        documents[row.digest] = document
    return ToolList(tuple(rows.values()), documents, bounded(problems))


def _read_json(raw: bytes) -> dict[str, Any]:
    if len(raw) > MAX_TOOL:
        raise _UnusableError(f"its description is larger than {MAX_TOOL >> 10} KiB")
    try:
        tool = msgspec.json.decode(mend_text(raw))
    except (msgspec.MsgspecError, RecursionError) as error:
        raise _UnusableError("its description is not valid JSON") from error
    if not isinstance(tool, dict):
        raise _UnusableError("it is not an object")
    if _depth(tool) > MAX_DEPTH:
        raise _UnusableError(f"its description is nested deeper than {MAX_DEPTH} levels")
    return tool


def _name(tool: dict[str, Any]) -> str:
    name = tool.get("name")
    if not isinstance(name, str) or not name.strip():
        raise _UnusableError("it has no name")
    if len(name) > MAX_NAME or not name.isprintable():
        raise _UnusableError("its name is too long or holds control characters")
    return name


def _mend(tool: dict[str, Any]) -> str:
    """Repair what can be repaired in place; return what was done, or "" for nothing."""
    if tool.get("inputSchema") is None:
        tool["inputSchema"] = dict(_EMPTY_SCHEMA)
        return "it has no inputSchema; any arguments are passed on"
    found = modelschema.fit(tool["inputSchema"])
    if isinstance(found, modelschema.Unfit):
        raise _UnusableError(found.reason)
    notes = list(found.notes)
    schema = tool["inputSchema"]
    if not isinstance(schema, dict) or (schema.get("type") != "object" and "$ref" not in schema):
        tool["inputSchema"] = {**(schema if isinstance(schema, dict) else {}), "type": "object"}
    if tool.get("outputSchema") is not None:
        output, told = modelschema.fit_output(tool.pop("outputSchema"))
        notes += [told] if told else []
        if output is not None:
            tool["outputSchema"] = output
    if len(str(tool.get("description") or "")) > modelschema.GENERAL.max_description:
        notes.append("its description is too long for models, which get its beginning")
    return "; ".join(notes)


def _report(tool: dict[str, Any], name: str, document: bytes) -> CapabilityReport:
    try:
        notes = msgspec.convert(tool.get("annotations") or {}, Annotations)
    except msgspec.ValidationError:
        notes = Annotations()
    return CapabilityReport(
        name=name,
        digest=hashlib.sha256(document).hexdigest(),
        summary=_summary(tool),
        read_only=notes.read_only_hint,
        destructive=notes.destructive_hint,
        idempotent=notes.idempotent_hint,
        open_world=notes.open_world_hint,
    )


def _summary(tool: dict[str, Any]) -> str:
    text = tool.get("description") or tool.get("title") or ""
    if not isinstance(text, str) or not text.strip():
        return ""
    first = " ".join(text.strip().splitlines()[0].split())
    return first if len(first) <= SUMMARY else first[: SUMMARY - 1] + "…"


def _depth(value: Any) -> int:
    deepest, waiting = 0, [(value, 1)]
    while waiting:
        item, depth = waiting.pop()
        deepest = max(deepest, depth)
        if isinstance(item, dict):
            waiting.extend((child, depth + 1) for child in item.values())
        elif isinstance(item, list):
            waiting.extend((child, depth + 1) for child in item)
    return deepest
