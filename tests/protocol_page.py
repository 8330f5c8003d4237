"""How docs/reference/protocol.md writes a message: shared by the tests of that page."""

from __future__ import annotations

import types
import typing
from typing import Any

import msgspec
from msgspec.structs import NODEFAULT

from interlock.bus import records

_PLAIN = {str: "string", int: "integer", float: "number", bool: "boolean", bytes: "bytes"}
RECORDS = ("Child", "CapabilityReport", "DroppedTool", "Target", "OfferRow", "CallReport")


def type_name(kind: Any) -> str:
    """Return the page's word for the type of a field."""
    if kind in _PLAIN:
        return _PLAIN[kind]
    if kind is Any:
        return "any"
    origin = typing.get_origin(kind)
    if origin is tuple:
        return f"list of {type_name(typing.get_args(kind)[0])}"
    if origin is typing.Literal:
        return "one of " + ", ".join(f"`{value}`" for value in typing.get_args(kind))
    if origin in (typing.Union, types.UnionType):
        parts = [each for each in typing.get_args(kind) if each is not type(None)]
        return f"{type_name(parts[0])} or null"
    if getattr(kind, "__name__", "") in RECORDS:
        return f"[{kind.__name__}](#{kind.__name__.lower()})"
    raise AssertionError(f"no word for {kind}")


def default_text(field: msgspec.structs.FieldInfo) -> str:
    """Return the page's form of a field's default; empty for a field that is required."""
    if field.default is NODEFAULT:
        return "" if field.default_factory is NODEFAULT else "`[]`"
    if field.default == ():
        return "`[]`"
    return f"`{msgspec.json.encode(field.default).decode()}`"


def rows(kind: type[msgspec.Struct], skip: tuple[str, ...] = ()) -> list[tuple[str, str, str]]:
    """Return name, type and default of each field, as the page has them."""
    return [
        (field.name, type_name(field.type), default_text(field))
        for field in msgspec.structs.fields(kind)
        if field.name not in skip
    ]


def record(name: str) -> type[msgspec.Struct]:
    """Return a record by its name."""
    found: type[msgspec.Struct] = getattr(records, name)
    return found
