"""Makes a tool's input schema into one that model providers take, or says why that is impossible.

Pure, and never raises, whatever a server sent. A provider that gets one schema it does not take
refuses the whole request, so a tool that cannot be mended is dropped alone. What a mended schema
no longer says is still checked by the server, which gets the arguments as they are.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, Literal, NamedTuple
from urllib.parse import unquote

import msgspec

WRAPPER: Final = "arguments"
"""The one argument of a tool whose schema is a choice at its top; see `unwrap`."""
MAX_DEPTH: Final = 64
MAX_NODES: Final = 20_000
"""Schemas within one schema."""
MAX_INLINED: Final = 2_000
"""Schemas within one schema once references are replaced; what is beyond takes anything."""
MAX_NOTES: Final = 3
"""Repairs that are told of one by one."""
STANDARD_FORMATS: Final = frozenset(
    "date-time date time duration email idn-email hostname idn-hostname ipv4 ipv6 uri "
    "uri-reference iri iri-reference uuid uri-template json-pointer relative-json-pointer regex "
    "int8 int16 int32 int64 uint uint8 uint16 uint32 uint64 float double byte binary password "
    "decimal".split()
)
"""Of JSON Schema and OpenAPI."""
_TYPES: Final = frozenset("object array string number integer boolean null".split())
_MEANT: Final = {
    **dict.fromkeys(("int", "long", "uint", "int32", "int64"), "integer"),
    **dict.fromkeys(("float", "double", "decimal"), "number"),
    **dict.fromkeys(("str", "text", "date", "datetime", "uuid", "enum"), "string"),
    **dict.fromkeys(("bool",), "boolean"),
    **dict.fromkeys(("dict", "map", "record", "struct"), "object"),
    **dict.fromkeys(("list", "tuple", "set"), "array"),
    **dict.fromkeys(("none", "nil"), "null"),
}
"""What type names of programming languages mean."""
_TABLES: Final = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
_LISTS: Final = ("anyOf", "oneOf", "allOf", "prefixItems")
_SINGLE: Final = (
    *("not", "if", "then", "else", "contains", "propertyNames"),
    *("additionalProperties", "unevaluatedProperties", "unevaluatedItems", "additionalItems"),
)
_NUMBERS: Final = (
    *("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
    *("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"),
)
_DATA: Final = ("default", "const", "examples", "example")
"""Keywords that hold any data, null too."""
_CHOICES: Final = ("anyOf", "oneOf", "allOf", "not", "enum")
"""Keywords that providers refuse at the top of a schema."""
_SHARED: Final[tuple[str, ...]] = ("$defs", "definitions")


class Provider(msgspec.Struct, frozen=True, kw_only=True):
    """What one provider takes."""

    refs: Literal["keep", "inline"] = "keep"
    """Whether references stay, with what they refer to, or are replaced by it."""
    max_description: int = 16_384
    """Characters of a description, the tool's own too."""
    formats: frozenset[str] = STANDARD_FORMATS


GENERAL: Final = Provider()
"""What every provider takes at least; what status and `interlock validate` tell about."""


class Fitted(NamedTuple):
    """A schema that can be sent: an object with properties. `notes` say what was repaired."""

    schema: dict[str, Any]
    notes: tuple[str, ...] = ()
    wrapped: bool = False
    """The arguments that a model gives have to be taken out of their wrapper: `unwrap`."""


class Unfit(NamedTuple):
    """Why no model can be given this schema."""

    reason: str


class _UnfitError(Exception):
    """Ends the work on one schema."""


def fit(schema: Any, provider: Provider = GENERAL) -> Fitted | Unfit:
    """Return the schema as that provider takes it, or why it cannot be.

    >>> fit({"properties": {"n": {"type": "int"}}}).schema
    {'type': 'object', 'properties': {'n': {'type': 'integer'}}}
    >>> fit("string")
    Unfit(reason='its inputSchema is not an object')
    """
    if schema is True:
        schema = {}
    if not isinstance(schema, dict):
        return Unfit("its inputSchema is not an object")
    work = _Work(schema, provider)
    try:
        return work.run()
    except (_UnfitError, RecursionError) as error:
        text = str(error) if isinstance(error, _UnfitError) else _too_deep()
        return Unfit(text)


def fit_output(schema: Any) -> tuple[dict[str, Any] | None, str]:
    """Return an outputSchema that clients take, or None, and what was repaired ("" for nothing)."""
    if not isinstance(schema, dict):
        return None, "its outputSchema is not an object; it was left out"
    if schema.get("type") == "object":
        return schema, ""
    if schema.get("type") is None:
        return {**schema, "type": "object"}, 'its outputSchema says no type; "object" was added'
    return None, "its outputSchema has another type than object; it was left out"


def shorten(description: Any, provider: Provider = GENERAL) -> str:
    """Return a description that the provider takes; anything but text becomes empty.

    >>> shorten("a long story", Provider(max_description=7))
    'a long…'
    """
    if not isinstance(description, str):
        return ""
    limit = provider.max_description
    return description if len(description) <= limit else description[: limit - 1] + "…"


def unwrap(arguments: Any) -> Any:
    """Return the arguments for the server from those that a model gave to a wrapped schema.

    >>> unwrap({"arguments": {"a": 1}}), unwrap({"a": 1})
    ({'a': 1}, {'a': 1})
    """
    if isinstance(arguments, dict) and arguments.keys() == {WRAPPER}:
        return arguments[WRAPPER]
    return arguments


class _Work:
    """One schema on its way."""

    def __init__(self, root: dict[str, Any], provider: Provider) -> None:
        self.root, self.provider = root, provider
        self.notes: dict[str, None] = {}
        self.nodes = 0
        self.open: list[str] = []
        """References that are being replaced now."""

    def run(self) -> Fitted:
        inline = self.provider.refs == "inline"
        top = self._resolve_top()
        _check_top(top)
        found = self._schema(top, "its inputSchema", 0)
        if inline:
            for key in _SHARED:
                found.pop(key, None)
        wrapped = self._top(found)
        if wrapped:
            found = _wrap(found)
        elif "properties" not in found:
            found["properties"] = {}
        if not inline:
            self._settle(found, found)
        ordered = {"type": "object", "properties": found.pop("properties")}
        found.pop("type", None)
        return Fitted({**ordered, **found}, self._told(), wrapped)

    def note(self, text: str) -> None:
        self.notes.setdefault(text)

    def _told(self) -> tuple[str, ...]:
        told = list(self.notes)
        more = len(told) - MAX_NOTES
        return tuple(told[:MAX_NOTES] + ([f"and {more} further repairs"] if more > 0 else []))

    def _resolve_top(self) -> dict[str, Any]:
        """The schema that the top stands for: it may be nothing but a reference."""
        top, seen = self.root, set[str]()
        while isinstance(ref := top.get("$ref"), str) and ref not in seen:
            seen.add(ref)
            target = _point(self.root, ref)
            if not isinstance(target, dict):
                break
            shared = {key: self.root[key] for key in _SHARED if key in self.root}
            rest = {key: value for key, value in top.items() if key != "$ref"}
            top = {**shared, **target, **rest}
        if seen:
            top = {key: value for key, value in top.items() if key != "$ref"}
        return top

    def _top(self, found: dict[str, Any]) -> bool:
        """Mend the top of a schema in place; whether it has to be wrapped."""
        kind = found.get("type")
        if kind is None:
            self.note('its inputSchema says no type; "object" was added')
        elif kind != "object":
            self.note('its inputSchema allows other types than object; "object" was taken')
        found["type"] = "object"
        for key in ("anyOf", "oneOf"):
            branches = found.get(key)
            if branches and all(branch.keys() <= {"required"} for branch in branches):
                del found[key]
                self.note(f"which arguments belong together ({key}) is left to the server")
        choices = [key for key in _CHOICES if key in found]
        if choices:
            self.note(
                f"its inputSchema is a choice at its top ({choices[0]}); "
                f"models get it as one argument, {WRAPPER}"
            )
        return bool(choices)

    def _schema(self, node: Any, where: str, depth: int) -> dict[str, Any]:
        self.nodes += 1
        if depth > MAX_DEPTH:
            raise _UnfitError(_too_deep())
        if self.nodes > MAX_NODES:
            raise _UnfitError(f"its inputSchema holds more than {MAX_NODES} schemas")
        if isinstance(node, bool):
            return {} if node else {"not": {}}
        if not isinstance(node, dict):
            raise _UnfitError(f"{where} is not a schema")
        if isinstance(node.get("$ref"), str) and self.provider.refs == "inline":
            return self._inlined(node, where, depth)
        found: dict[str, Any] = {}
        for key, value in node.items():
            if not isinstance(key, str):
                continue
            self._keyword(found, key, value, where, depth)
        _old_bounds(found, node)
        if _is(found, "array") and "items" not in found and "prefixItems" not in found:
            found["items"] = {}
        return found

    def _keyword(self, found: dict[str, Any], key: str, value: Any, where: str, depth: int) -> None:
        """Take one keyword over, as it is, mended or not at all."""
        kept: Any = None
        if key in _TABLES:
            kept = self._table(key, value, where, depth)
        elif key in _LISTS and isinstance(value, list) and value:
            kept = [self._schema(one, f"a part of {key}", depth + 1) for one in value]
        elif key == "items" and isinstance(value, list):
            kept = {"anyOf": [self._schema(one, "an item", depth + 1) for one in value]}
            kept = kept if value else {}
        elif key in _SINGLE and isinstance(value, bool):
            kept = value
        elif (key in _SINGLE or key == "items") and isinstance(value, (dict, bool)):
            kept = self._schema(value, key, depth + 1)
        elif key in (*_LISTS, *_SINGLE, "items"):
            self.note(f"{key} with nothing usable in it was left out")
            return
        else:
            kept = self._plain(key, value)
        if kept is not None or key in _DATA:
            found[key] = kept

    def _table(self, key: str, value: Any, where: str, depth: int) -> dict[str, Any] | None:
        if not isinstance(value, dict):
            if key == "properties":
                raise _UnfitError(f"the properties of {where} are not an object")
            self.note(f"{key} that is no object was left out")
            return None
        label = "property" if key == "properties" else "schema"
        return {
            str(name): self._schema(one, f"the {label} {str(name)[:40]!r} of {where}", depth + 1)
            for name, one in value.items()
        }

    def _plain(self, key: str, value: Any) -> Any:
        """A keyword that holds no schema; None leaves it out."""
        match key:
            case "type":
                return self._type(value)
            case "description":
                if isinstance(value, str) and len(value) > self.provider.max_description:
                    self.note("a description was shortened")
                return shorten(value, self.provider) or None
            case "format":
                if not isinstance(value, str) or value not in STANDARD_FORMATS:
                    self.note(f"the format {str(value)[:40]!r} is unknown and was left out")
                    return None
                return value if value in self.provider.formats else None
            case "enum":
                if isinstance(value, list) and value:
                    return value
                self.note("an enum without values was left out")
                return None
            case "required":
                return self._required(value)
            case "$ref":
                return value if isinstance(value, str) else None
            case "pattern" | "title" | "$id" | "$schema" | "$anchor":
                # An address of its own would change what every reference means.
                return None if key == "$id" or not isinstance(value, str) else value
            case _ if key in _NUMBERS:
                good = isinstance(value, (int, float)) and not isinstance(value, bool)
                if not good and not isinstance(value, bool):
                    self.note(f"{key} that is no number was left out")
                return value if good else None
            case _:
                return value

    def _type(self, value: Any) -> Any:
        names = value if isinstance(value, list) else [value]
        kinds: list[str] = []
        for name in names:
            kind = _kind(name)
            if kind is None:
                self.note(f"the type {str(name)[:40]!r} is unknown and was left out")
            elif kind != name:
                self.note(f"the type {name!r} was taken as {kind}")
            if kind is not None and kind not in kinds:
                kinds.append(kind)
        if not kinds:
            return None
        return kinds[0] if len(kinds) == 1 else kinds

    def _required(self, value: Any) -> list[str] | None:
        names = [name for name in value if isinstance(name, str)] if isinstance(value, list) else []
        if not isinstance(value, list) or len(names) < len(value):
            self.note("`required` that is no list of names was left out or shortened")
        return list(dict.fromkeys(names)) or None

    def _inlined(self, node: dict[str, Any], where: str, depth: int) -> dict[str, Any]:
        """What a reference means, in its place; where it would go on for ever, anything."""
        ref = node["$ref"]
        rest = {key: value for key, value in node.items() if key != "$ref"}
        target = _point(self.root, ref)
        if target is None:
            self.note(f"the reference {ref[:60]!r} leads nowhere; it takes anything now")
            return self._schema(rest, where, depth + 1)
        if ref in self.open or self.nodes > MAX_INLINED or depth > MAX_DEPTH // 2:
            return self._schema(rest, where, depth + 1)
        self.open.append(ref)
        try:
            found = self._schema(target, where, depth + 1)
        finally:
            self.open.pop()
        for key in _SHARED:
            found.pop(key, None)
        return {**found, **self._schema(rest, where, depth + 1)}

    def _settle(self, node: dict[str, Any], root: dict[str, Any]) -> None:
        """Take away every reference that leads nowhere in the schema as it is now."""
        ref = node.get("$ref")
        if isinstance(ref, str) and not isinstance(_point(root, ref), dict):
            del node["$ref"]
            self.note(f"the reference {ref[:60]!r} leads nowhere; it takes anything now")
        for one in _below(node):
            self._settle(one, root)


def _below(node: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The schemas directly within a schema that was taken over."""
    for key, value in node.items():
        if key in _TABLES:
            yield from value.values()
        elif key in _LISTS:
            yield from value
        elif (key in _SINGLE or key == "items") and isinstance(value, dict):
            yield value


def _check_top(top: dict[str, Any]) -> None:
    """Raise for what MCP does not allow at the top of an inputSchema and no repair can mean."""
    kind = top.get("type")
    kinds = kind if isinstance(kind, list) else [kind]
    if kind is not None and "object" not in [_kind(one) for one in kinds]:
        raise _UnfitError(f"its inputSchema has the type {str(kind)[:40]!r} where MCP wants object")
    required = top.get("required", [])
    if not isinstance(required, list) or not all(isinstance(key, str) for key in required):
        raise _UnfitError("`required` of its inputSchema is not a list of names")


def _wrap(found: dict[str, Any]) -> dict[str, Any]:
    """Put a schema below one argument; what it shares stays at the top, references follow."""
    shared = {key: found.pop(key) for key in _SHARED if key in found}
    outer = {"type": "object", "properties": {WRAPPER: found}, "required": [WRAPPER], **shared}
    _move_refs(outer)
    return outer


def _move_refs(node: dict[str, Any]) -> None:
    ref = node.get("$ref")
    own = isinstance(ref, str) and (ref == "#" or ref.startswith("#/"))
    if own and not str(ref).startswith(tuple(f"#/{key}/" for key in _SHARED)):
        node["$ref"] = f"#/properties/{WRAPPER}{str(ref)[1:]}"
    for one in _below(node):
        _move_refs(one)


def _point(root: dict[str, Any], ref: str) -> Any:
    """What a reference within the document refers to; None for any other, and for none."""
    if ref == "#":
        return root
    if not ref.startswith("#/"):
        return None
    found: Any = root
    for part in ref[2:].split("/"):
        key = unquote(part).replace("~1", "/").replace("~0", "~")
        if isinstance(found, dict) and key in found:
            found = found[key]
        elif isinstance(found, list) and key.isascii() and key.isdigit() and int(key) < len(found):
            found = found[int(key)]
        else:
            return None
    return found if isinstance(found, (dict, bool)) else None


def _old_bounds(found: dict[str, Any], node: dict[str, Any]) -> None:
    """Write the exclusive bounds of draft 4, which are flags, as later drafts do."""
    for flag, bound in (("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")):
        if node.get(flag) is True and bound in found:
            found[flag] = found.pop(bound)


def _is(found: dict[str, Any], kind: str) -> bool:
    own = found.get("type")
    return own == kind or (isinstance(own, list) and kind in own)


def _kind(name: Any) -> str | None:
    """The JSON type that a type name means, if any."""
    if not isinstance(name, str):
        return None
    return name if name in _TYPES else _MEANT.get(name.strip().lower())


def _too_deep() -> str:
    return f"its inputSchema is nested deeper than {MAX_DEPTH} levels"
