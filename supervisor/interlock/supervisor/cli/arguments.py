"""What a capability takes, as people read it: its arguments, and a call to begin with; pure."""

from __future__ import annotations

import json
import shlex
from typing import Any, Final

from interlock.supervisor.cli.output import clean, cut, one_line

_ABOUT: Final = 200
"""Characters of the description of one argument."""
_CHOICES: Final = 10
_EXAMPLES: Final[dict[str, Any]] = {
    "string": "...",
    "integer": 1,
    "number": 1.0,
    "boolean": True,
    "array": [],
    "object": {},
}


_TIERS = {
    "safe": "it runs",
    "monitor": "it runs and is shown",
    "ask": "a person is asked",
    "block": "it is never called",
}


def described(row: dict[str, Any]) -> list[str]:
    """Return the lines about one capability; its schema comes from a server and may be anything."""
    schema = row.get("schema")
    schema = schema if isinstance(schema, dict) else {}
    properties = schema.get("properties")
    properties = properties if isinstance(properties, dict) else {}
    required = schema.get("required")
    required = required if isinstance(required, list) else []
    required = [name for name in required if isinstance(name, str)]
    lines = [f"{clean(row['name'])} ({row['tier']})", f"  {one_line(row['summary'])}".rstrip()]
    if not row["connected"]:
        lines.append(f"  not usable now: {one_line(row['reason'])}")
    lines += _asked(row)
    for name, about in properties.items():
        need = "required" if name in required else "optional"
        lines.append(f"  {one_line(name)}: {_kind(about)}, {need}{_more(about)}")
    if not schema:
        lines.append("  What arguments it takes is not known.")
    elif not properties:
        lines.append("  It names no arguments.")
    given = {name: _example(properties.get(name)) for name in required}
    text = shlex.quote(json.dumps(given, ensure_ascii=False))
    call = f"interlock call {shlex.quote(row['name'])}" + (f" {text}" if given else "")
    return [line for line in [*lines, f"  {one_line(call)}"] if line]


def _asked(row: dict[str, Any]) -> list[str]:
    """Return what holds for its calls besides its tier's name, and why."""
    lines = []
    if row["tier"] == "ask":
        why = one_line(row.get("tier_reason") or "its tier is ask")
        lines.append(f"  A person is asked before each call: {why}.")
    for rule in row.get("rules", ()):
        where = f"{one_line(rule['argument'])} fits {one_line(json.dumps(rule['matches']))}"
        lines.append(f"  Where {where}: {_TIERS.get(rule['tier'], one_line(rule['tier']))}.")
    return lines


def _kind(about: object) -> str:
    """Return the type of an argument in a word or a few."""
    if not isinstance(about, dict):
        return "any"
    if isinstance(about.get("enum"), list):
        choices = about["enum"]
        shown = " | ".join(one_line(json.dumps(one)) for one in choices[:_CHOICES])
        return shown + (" | …" if len(choices) > _CHOICES else "")
    found = about.get("type")
    if isinstance(found, list):
        return " or ".join(one_line(one) for one in found)
    if isinstance(found, str):
        return one_line(found)
    for key in ("anyOf", "oneOf"):
        if isinstance(about.get(key), list):
            return " or ".join(dict.fromkeys(_kind(one) for one in about[key][:_CHOICES]))
    return "any"


def _more(about: object) -> str:
    if not isinstance(about, dict):
        return ""
    default = f", else {cut(json.dumps(about['default']), 60)}" if "default" in about else ""
    text = about.get("description") or ""
    return default + (f": {cut(text, _ABOUT)}" if text else "")


def _example(about: object) -> Any:
    if not isinstance(about, dict):
        return "..."
    choices = about.get("enum")
    if isinstance(choices, list) and choices:
        return choices[0]
    kind = about.get("type")
    return _EXAMPLES.get(kind, "...") if isinstance(kind, str) else "..."
