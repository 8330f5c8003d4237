"""Resources and prompts of a server as capabilities: what they are called with and answer; pure.

A call of one is a request other than `tools/call`, and its answer becomes a tool result: a
resource's contents as embedded resources, a prompt's messages as their content, with the whole
answer as structured content.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any, Final, Literal, NamedTuple

import msgspec

from interlock.bus.limits import MAX_ARGUMENTS
from interlock.bus.names import local_name
from interlock.bus.records import CapabilityReport, DroppedTool
from interlock.workers.looks import MOST_ITEMS, beginning, items
from interlock.workers.mcp.drops import bounded
from interlock.workers.mcp.frames import json_string, mend_text
from interlock.workers.mcp.templates import TemplateError, expand, variables

MAX_ITEM: Final = 64 << 10
"""Bytes of the description of one resource or prompt."""
MAX_ROWS: Final = 160 << 10
"""Bytes of all reports; together with those of the tools they are reported in one header."""
SUMMARY: Final = 200
MAX_GIVEN: Final = 64 << 10
"""Bytes of the arguments that make a URI."""
_NONE: Final[dict[str, Any]] = {"type": "object", "properties": {}}


class Listing(NamedTuple):
    """One list that a server can have; `most` of its entries become capabilities."""

    method: str
    key: str
    kind: Literal["resource", "template", "prompt"]
    most: int


RESOURCES: Final = (
    Listing("resources/list", "resources", "resource", 500),
    Listing("resources/templates/list", "resourceTemplates", "template", 100),
)
PROMPTS: Final = (Listing("prompts/list", "prompts", "prompt", 200),)


class Extra(NamedTuple):
    """One resource, template or prompt that can be called."""

    kind: Literal["resource", "template", "prompt"]
    name: str
    """URI, template, or name of the prompt."""

    @property
    def method(self) -> str:
        """The request that a call of it is."""
        return "prompts/get" if self.kind == "prompt" else "resources/read"

    def params(self, arguments: bytes) -> bytes:
        """Return the members of the request's params. Raises ValueError, in words for a model."""
        try:
            most = MAX_ARGUMENTS if self.kind == "prompt" else MAX_GIVEN
            if len(arguments) > most:
                raise ValueError(f"the arguments are larger than {most >> 10} KiB")
            if self.kind == "prompt":
                return self._prompt(_TEXTS.decode(arguments or b"{}"))
            given = msgspec.json.decode(arguments or b"{}", type=dict[str, Any])
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            raise ValueError("the arguments are not a JSON object") from None
        if self.kind == "template":
            return b'"uri":%b' % json_string(expand(self.name, given))
        if given:
            raise ValueError("this resource takes no arguments")
        return b'"uri":%b' % json_string(self.name)

    def _prompt(self, given: dict[str, msgspec.Raw]) -> bytes:
        texts = {name: _text(value) for name, value in given.items() if bytes(value) != b"null"}
        return b'"name":%b,"arguments":%b' % (json_string(self.name), msgspec.json.encode(texts))

    def result(self, body: bytes) -> bytes:
        """Return the answer as a tool result. Raises ValueError if it is none of this request."""
        try:
            if self.kind == "prompt":
                messages = items(_PROMPT.decode(body).messages)
                parts = [bytes(_MESSAGE.decode(one).content) for one in messages]
            else:
                found = items(_CONTENTS.decode(body).contents)
                parts = [b'{"type":"resource","resource":%b}' % one for one in found]
        except (msgspec.MsgspecError, RecursionError) as error:
            raise ValueError("it is no answer to that request") from error
        if len(parts) > MOST_ITEMS:
            raise ValueError(f"it has more than {MOST_ITEMS} parts")
        if self.kind == "prompt":
            return b'{"content":[%b],"structuredContent":%b}' % (b",".join(parts), body)
        return b'{"content":[%b]}' % b",".join(parts)


class Extras(NamedTuple):
    """All that a server has besides tools, by local name, as a tool list has it."""

    rows: tuple[CapabilityReport, ...] = ()
    documents: dict[str, bytes] = {}  # noqa: RUF012 - never changed
    dropped: tuple[DroppedTool, ...] = ()
    by_name: dict[str, Extra] = {}  # noqa: RUF012 - never changed


class _Message(msgspec.Struct):
    content: msgspec.Raw
    role: str = "user"


_Parts: Any = beginning(MOST_ITEMS)


class _Prompt(msgspec.Struct):
    messages: _Parts


class _Contents(msgspec.Struct):
    contents: _Parts


def _page_of(listing: Listing) -> msgspec.json.Decoder[Any]:
    """Return what reads one page of a list, as far as its entries can become capabilities."""
    entries = msgspec.field(name=listing.key)
    cursor = msgspec.field(name="nextCursor", default=None)
    fields = [("entries", beginning(listing.most), entries), ("cursor", str | None, cursor)]
    return msgspec.json.Decoder(msgspec.defstruct("Page", fields))


class _Argument(msgspec.Struct):
    name: str
    description: str | None = None
    required: bool | None = None


class _Item(msgspec.Struct, rename="camel"):
    name: str = ""
    title: str | None = None
    description: str | None = None
    uri: str = ""
    uri_template: str = ""
    mime_type: str | None = None
    arguments: list[_Argument] | None = None


_MESSAGE = msgspec.json.Decoder(_Message)
_TEXTS = msgspec.json.Decoder(dict[str, msgspec.Raw])
_PROMPT = msgspec.json.Decoder(_Prompt)
_CONTENTS = msgspec.json.Decoder(_Contents)
_ITEM = msgspec.json.Decoder(_Item)
_PAGES = {listing.key: _page_of(listing) for listing in (*RESOURCES, *PROMPTS)}


def read_items(result: bytes, key: str) -> tuple[list[bytes], str | None]:
    """Return the entries of one page and the cursor of the next. Raises ValueError."""
    try:
        page = _PAGES[key].decode(result)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise ValueError(f"it has no list {key}") from error
    return [bytes(item) for item in items(page.entries)], page.cursor


def read_extras(lists: Iterable[tuple[Listing, list[bytes], str]]) -> Extras:
    """Make capabilities of a server's lists; what cannot be one is left out and named.

    Each list comes with the reason why it is not whole, or an empty text.
    """
    rows: dict[str, CapabilityReport] = {}
    found: dict[str, Extra] = {}
    documents: dict[str, bytes] = {}
    dropped: list[DroppedTool] = []
    room = MAX_ROWS
    for listing, raws, cut in lists:
        if cut:
            dropped.append(DroppedTool(name=f"further {listing.key}", reason=cut))
        if len(raws) > listing.most:
            reason = f"the server lists more than {listing.most} of them"
            dropped.append(DroppedTool(name=f"further {listing.key}", reason=reason))
        for position, raw in enumerate(raws[: listing.most], 1):
            try:
                extra, row, document = _read(listing, raw)
            except ValueError as error:
                name = f"{listing.kind} {position}"
                dropped.append(DroppedTool(name=name, reason=str(error)))
                continue
            room -= len(msgspec.msgpack.encode(row))
            if room < 0:
                reason = "the descriptions of the server's resources are too large together"
                dropped.append(DroppedTool(name=f"further {listing.key}", reason=reason))
                break
            if row.name not in rows:
                rows[row.name], found[row.name] = row, extra
                documents[row.digest] = document
    return Extras(tuple(rows.values()), documents, bounded(dropped), found)


def _read(listing: Listing, raw: bytes) -> tuple[Extra, CapabilityReport, bytes]:
    if len(raw) > MAX_ITEM:
        raise ValueError(f"its description is larger than {MAX_ITEM >> 10} KiB")
    try:
        item = _ITEM.decode(mend_text(raw))
    except (msgspec.MsgspecError, RecursionError):
        raise ValueError("its description cannot be read") from None
    name, schema = _named(listing, item)
    if not name or not name.isprintable():
        raise ValueError("it has no name, or one with control characters")
    kind = "prompt" if listing.kind == "prompt" else "resource"
    texts = (item.title or (item.name if item.name != name else ""), item.description or "")
    about = ": ".join(" ".join(text.split()) for text in texts if text.strip())
    if kind == "resource":
        about = f"{about or 'A resource'} ({item.mime_type})" if item.mime_type else about
    local = local_name(kind, name)
    document = msgspec.json.encode({"name": name, "description": about, "inputSchema": schema})
    row = CapabilityReport(
        name=local,
        digest=hashlib.sha256(document).hexdigest(),
        summary=about[:SUMMARY],
        read_only=True,
        idempotent=True,
    )
    return Extra(listing.kind, name), row, document


def _named(listing: Listing, item: _Item) -> tuple[str, dict[str, Any]]:
    """The name of an entry and the schema of what it is called with."""
    if listing.kind == "resource":
        return item.uri, _NONE
    if listing.kind == "template":
        try:
            names = variables(item.uri_template)
        except TemplateError as error:
            raise ValueError(f"its uriTemplate cannot be read: {error}") from None
        properties = {name: {"type": "string"} for name in names}
        return item.uri_template, {"type": "object", "properties": properties}
    arguments = item.arguments or []
    schema: dict[str, Any] = {
        "type": "object",
        "properties": {
            one.name: {"type": "string"}
            | ({"description": one.description} if one.description else {})
            for one in arguments
        },
    }
    required = [one.name for one in arguments if one.required]
    return item.name, schema | ({"required": required} if required else {})


def _text(value: msgspec.Raw) -> str:
    """A prompt's arguments are texts; whatever else a model gives becomes one."""
    raw = bytes(value)
    return msgspec.json.decode(raw, type=str) if raw[:1] == b'"' else raw.decode()
