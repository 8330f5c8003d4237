"""Schemas for models: what is mended, what is dropped, and that nothing else can happen."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from interlock.bus.modelschema import (
    MAX_DEPTH,
    MAX_INLINED,
    Fitted,
    Provider,
    Unfit,
    fit,
    fit_output,
    unwrap,
)

INLINE = Provider(refs="inline")


def fitted(schema: Any, provider: Provider = Provider()) -> Fitted:  # noqa: B008
    found = fit(schema, provider)
    assert isinstance(found, Fitted), found
    return found


TREE = {
    "type": "object",
    "properties": {"root": {"$ref": "#/$defs/node"}},
    "$defs": {
        "node": {
            "type": "object",
            "properties": {"kids": {"type": "array", "items": {"$ref": "#/$defs/node"}}},
        }
    },
}


def test_a_good_schema_stays_as_it_is() -> None:
    assert fitted(TREE) == Fitted(TREE)


def test_references_are_replaced_where_a_provider_wants_it() -> None:
    found = fitted(TREE, INLINE).schema
    assert "$ref" not in json.dumps(found) and "$defs" not in found
    node = found["properties"]["root"]
    assert node["properties"]["kids"] == {"type": "array", "items": {}}


@pytest.mark.parametrize(
    ("schema", "note"),
    [
        ({}, "no type"),
        (True, "no type"),
        ({"type": ["object", "null"]}, "other types"),
        ({"type": "object", "properties": {"a": {"type": "int"}}}, "'int' was taken as integer"),
        ({"type": "object", "properties": {"a": {"type": "any"}}}, "'any' is unknown"),
        ({"type": "object", "properties": {"a": {"type": 7}}}, "'7' is unknown"),
        ({"type": "object", "properties": {"a": {"format": "shoe-size"}}}, "shoe-size"),
        ({"type": "object", "properties": {"a": {"format": 5}}}, "format '5'"),
        ({"type": "object", "properties": {"a": {"enum": []}}}, "enum"),
        ({"type": "object", "properties": {"a": {"anyOf": []}}}, "anyOf"),
        ({"type": "object", "properties": {"a": {"anyOf": {}}}}, "anyOf"),
        ({"type": "object", "properties": {"a": {"items": 5}}}, "items"),
        ({"type": "object", "properties": {"a": {"minimum": "1"}}}, "minimum"),
        ({"type": "object", "properties": {"a": {"required": True}}}, "required"),
        ({"type": "object", "properties": {"a": {"$ref": "#/$defs/no"}}}, "leads nowhere"),
        ({"type": "object", "properties": {"a": {"$ref": "https://x/y"}}}, "leads nowhere"),
        ({"type": "object", "$defs": []}, "$defs"),
        ({"type": "object", "properties": {"a": {"description": "x" * 20_000}}}, "shortened"),
        ({"type": "object", "anyOf": [{"required": ["a"]}, {"required": ["b"]}]}, "left to the"),
    ],
)
def test_what_is_mended_is_told(schema: Any, note: str) -> None:
    found = fitted(schema)
    assert len(found.notes) == 1 and note in found.notes[0], found
    again = fitted(found.schema)
    assert again == Fitted(found.schema)


@pytest.mark.parametrize(
    "schema",
    [
        None,
        False,
        "string",
        [],
        7,
        {"type": "array"},
        {"type": ["string", "null"]},
        {"type": "object", "properties": []},
        {"type": "object", "properties": {"a": "string"}},
        {"type": "object", "required": "a"},
        {"type": "object", "properties": {"a": {"properties": 5}}},
    ],
)
def test_impossible_schemas(schema: Any) -> None:
    assert isinstance(fit(schema), Unfit)


@pytest.mark.parametrize("key", ["anyOf", "oneOf", "allOf"])
def test_a_choice_at_the_top_is_wrapped(key: str) -> None:
    branches = [
        {"type": "object", "properties": {"a": {"$ref": "#/$defs/x"}}},
        {"type": "object", "properties": {"b": {"$ref": f"#/{key}/0/properties/a"}}},
    ]
    found = fitted({key: branches, "$defs": {"x": {"type": "string"}}})
    assert found.wrapped and key not in found.schema
    assert found.schema["required"] == ["arguments"]
    inner = found.schema["properties"]["arguments"]
    assert inner[key][0] == branches[0]
    moved = f"#/properties/arguments/{key}/0/properties/a"
    assert inner[key][1]["properties"]["b"] == {"$ref": moved}
    assert unwrap({"arguments": {"a": "x"}}) == {"a": "x"}


def test_a_top_that_is_a_reference_is_what_it_refers_to() -> None:
    schema = {"$ref": "#/definitions/in", "definitions": {"in": {"type": "object", "title": "t"}}}
    for provider in (Provider(), INLINE):
        assert fitted(schema, provider).schema["title"] == "t"
    assert isinstance(fit({"$ref": "#"}), Fitted)
    assert fitted({"properties": {"again": {"$ref": "#"}}}).schema["properties"]["again"] == {
        "$ref": "#"
    }


def test_providers_differ() -> None:
    schema = {"type": "object", "properties": {"a": {"format": "uri", "description": "abcdef"}}}
    narrow = Provider(formats=frozenset({"date-time"}), max_description=4)
    assert fitted(schema, narrow).schema["properties"] == {"a": {"description": "abc…"}}


def test_references_that_multiply_stay_bounded() -> None:
    defs: dict[str, Any] = {
        f"d{n}": {"properties": {k: {"$ref": f"#/$defs/d{n + 1}"} for k in "abcd"}}
        for n in range(20)
    }
    defs["d20"] = {"type": "string"}
    schema = {"type": "object", "properties": {"x": {"$ref": "#/$defs/d0"}}, "$defs": defs}
    assert fitted(schema).notes == ()
    size = len(json.dumps(fitted(schema, INLINE).schema))
    assert size < 100 * MAX_INLINED


def test_depth_is_bounded() -> None:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(MAX_DEPTH + 1):
        schema = {"type": "object", "properties": {"a": schema}}
    found = fit(schema)
    assert isinstance(found, Unfit) and "deeper" in found.reason


@pytest.mark.parametrize(
    ("schema", "kept", "note"),
    [
        ({"type": "object"}, {"type": "object"}, ""),
        ({"properties": {}}, {"properties": {}, "type": "object"}, "no type"),
        ({"type": "array"}, None, "left out"),
        ("x", None, "left out"),
    ],
)
def test_output_schemas(schema: Any, kept: Any, note: str) -> None:
    found, told = fit_output(schema)
    assert found == kept and note in told and bool(note) == bool(told)


_KEYWORDS = st.sampled_from(
    "type properties items anyOf oneOf allOf not $ref $defs definitions enum required format "
    "description additionalProperties minimum exclusiveMinimum const default if $id pattern "
    "patternProperties prefixItems x-own".split()
)
_TYPES = st.sampled_from(["object", "array", "string", "int", "any", "null", ["object", "null"]])
_REFS = st.sampled_from(
    ["#", "#/$defs/a", "#/$defs/b", "#/definitions/a", "#/properties/a", "#/anyOf/0", "x", "#/"]
)
_LEAVES = st.one_of(st.none(), st.booleans(), st.integers(), st.text(max_size=5), _TYPES, _REFS)
_ANYTHING = st.recursive(
    _LEAVES,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(_KEYWORDS | st.sampled_from("ab"), inner, max_size=5),
    ),
    max_leaves=40,
)
_SCHEMAS = st.dictionaries(_KEYWORDS, _ANYTHING, max_size=8)


def references(node: Any) -> Iterator[str]:
    """All references of a fitted schema, where they are references."""
    if isinstance(node.get("$ref"), str):
        yield node["$ref"]
    for key, value in node.items():
        if key in ("properties", "patternProperties", "$defs", "definitions"):
            for one in value.values():
                yield from references(one)
        elif key in ("anyOf", "oneOf", "allOf", "prefixItems"):
            for one in value:
                yield from references(one)
        elif key in ("items", "not", "if", "additionalProperties") and isinstance(value, dict):
            yield from references(value)


def leads_somewhere(root: Any, ref: str) -> bool:
    found = root
    for part in ref.split("/")[1:]:
        found = found[int(part)] if isinstance(found, list) else found[part]
    return isinstance(found, dict)


@settings(max_examples=400, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(_SCHEMAS | _ANYTHING, st.sampled_from([Provider(), INLINE, Provider(max_description=2)]))
def test_the_result_is_an_object_schema_or_a_reason(schema: Any, provider: Provider) -> None:
    before = json.dumps(schema)
    found = fit(schema, provider)
    assert json.dumps(schema) == before
    if isinstance(found, Unfit):
        assert found.reason
        return
    assert found.schema["type"] == "object"
    assert isinstance(found.schema["properties"], dict)
    assert not {"anyOf", "oneOf", "allOf", "not", "enum"} & found.schema.keys()
    json.dumps(found.schema)
    refs = list(references(found.schema))
    if provider.refs == "inline":
        assert refs == []
    assert all(leads_somewhere(found.schema, ref) for ref in refs)


@settings(max_examples=200, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(_SCHEMAS)
def test_mending_is_done_after_one_pass(schema: Any) -> None:
    found = fit(schema)
    if isinstance(found, Fitted) and not found.wrapped:
        assert fitted(found.schema).schema == found.schema
