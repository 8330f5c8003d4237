"""Turns the `.mcp.json` that other programs share into tables of our own form; pure."""

from __future__ import annotations

import re
from typing import Any, Final

from interlock.supervisor.config.text import BadFileError

WRAPPERS: Final = ("mcpServers", "mcp_servers", "servers", "context_servers")
"""Keys that hold the servers; without one of them the whole document is the map of servers."""

_CONNECTION: Final = frozenset({"command", "url", "httpUrl", "serverUrl", "uri", "type"})
_TYPES: Final = {
    "stdio": "stdio",
    "local": "stdio",
    "http": "streamable_http",
    "streamable-http": "streamable_http",
    "streamable_http": "streamable_http",
    "streamableHttp": "streamable_http",
    "remote": "streamable_http",
    "sse": "sse",
}
RENAMED: Final[dict[str, str]] = {
    "transport": "type",
    "transportType": "type",
    "environment": "env",
    "envs": "env",
    "httpUrl": "url",
    "serverUrl": "url",
    "uri": "url",
    "http_headers": "headers",
    "bearer_token_env_var": "api_key_env",
    "startup_timeout_sec": "init_timeout",
    "tool_timeout_sec": "call_timeout",
    "disabledTools": "disabled_tools",
    "excludeTools": "disabled_tools",
}
"""Keys of other programs, and ours that say the same."""
_VARIABLE: Final = re.compile(r"(?<!\$)\$\{env:(?=[A-Za-z_][A-Za-z0-9_]*(?::-[^{}]*)?\})")
"""How editors write a variable."""
_LABELS: Final = frozenset({"name", "title", "category", "complexity", "note", "notes", "icon"})
"""Keys that only describe; dropped without a word."""


def servers(document: Any) -> dict[str, Any]:
    """Return the entries of a document by name, not yet looked into.

    Raises BadFileError if the document cannot hold any.
    """
    if not isinstance(document, dict):
        raise BadFileError("wrong_type", "the document must be an object that holds mcpServers")
    for wrapper in WRAPPERS:
        if wrapper in document:
            inside = document[wrapper]
            if not isinstance(inside, dict):
                raise BadFileError("wrong_type", f"{wrapper} must be an object, one key a server")
            return inside
    return {
        name: entry
        for name, entry in document.items()
        if isinstance(entry, dict) and not _CONNECTION.isdisjoint(entry)
    }


def wrapper_of(document: Any) -> tuple[str, ...]:
    """Return the key path at which the servers of a document stand."""
    if isinstance(document, dict):
        for wrapper in WRAPPERS:
            if wrapper in document:
                return (wrapper,)
    return ()


def approvals(entry: Any) -> list[tuple[str, ...]]:
    """Return the key paths of an entry that would say how carefully its tools are called."""
    if not isinstance(entry, dict):
        return []
    found: list[tuple[str, ...]] = [("tier",)] if "tier" in entry else []
    tools = entry.get("tools")
    for name, tool in tools.items() if isinstance(tools, dict) else ():
        if isinstance(tool, dict) and "tier" in tool:
            found.append(("tools", name, "tier"))
    return found


def _without_approvals(entry: dict[str, Any]) -> dict[str, Any]:
    kept = {key: value for key, value in entry.items() if key != "tier"}
    if isinstance(kept.get("tools"), dict):
        kept["tools"] = {
            name: {key: value for key, value in tool.items() if key != "tier"}
            if isinstance(tool, dict)
            else tool
            for name, tool in kept["tools"].items()
        }
    return kept


def _own_variables(value: Any) -> Any:
    """Return a value with the variables in its texts as we write them."""
    if isinstance(value, str):
        return _VARIABLE.sub("${", value)
    if isinstance(value, list):
        return [_own_variables(one) for one in value]
    if isinstance(value, dict):
        return {key: _own_variables(one) for key, one in value.items()}
    return value


def entry_table(entry: Any) -> Any:
    """Return one server's entry under our key names; what is not an object comes back as it is.

    An entry may only describe a server: keys that would approve its tools are left out, see
    `approvals`, or stay unknown keys.
    """
    if not isinstance(entry, dict):
        return entry
    table: dict[str, Any] = {}
    for key, value in _without_approvals(entry).items():
        if key == "disabled" and isinstance(value, bool):
            table["enabled"] = not value
        elif key == "tools" and value == ["*"]:
            continue  # a list of what is allowed that allows everything
        elif key not in _LABELS:
            table[RENAMED[key] if key in RENAMED else key] = value
    kind = table.get("type")
    if isinstance(kind, str):
        table["type"] = _TYPES.get(kind, kind)
    command = table.get("command")
    if isinstance(command, list) and command:
        table["command"] = command[0]
        more = table.get("args", [])
        table["args"] = [*command[1:], *more] if isinstance(more, list) else more
    env = table.get("env")
    if isinstance(env, dict):
        # Here an empty value is allowed to stay empty; with us it asks for the variable itself.
        table["env"] = {
            name: f"${{{name}:-}}" if value == "" else value for name, value in env.items()
        }
    for key in ("command", "args", "env", "url", "headers", "cwd"):
        if key in table:
            table[key] = _own_variables(table[key])
    return table
