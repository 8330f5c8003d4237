"""What to write in place of a key that nobody reads and that may forbid something; pure."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from interlock.bus.errors import UsageError
from interlock.bus.settings import (
    AgentSettings,
    CliToolSettings,
    McpServerSettings,
    PolicySettings,
    ToolSettings,
)
from interlock.supervisor.config.lines import Path
from interlock.supervisor.config.model import KINDS, worker_name
from interlock.supervisor.config.verdicts import DEEDS, PLACES, verdict, words

_OFF: Final = frozenset({"disabled", "disable", "isdisabled", "active", "isactive", "isenabled"})
_SCOPES: Final = frozenset("tools servers mcpservers clitools capabilities commands".split())
NO_LIST: Final = (
    'there is no list of allowed tools: write tier = "block" here, and tools.TOOL.tier = "monitor" '
    "for each tool that is allowed"
)


def instead(type_: type[msgspec.Struct], key: str, path: Path) -> str:
    """Return what says the same where it is read; "" if nothing is known that does.

    `path` is that of the key: section, name of the entry, keys below it.

    >>> instead(McpServerSettings, "disabled", ("mcp_servers", "git", "disabled"))
    'write enabled = false'
    """
    named, said = words(key), verdict(key)
    joined = "".join(named)
    if joined in _OFF and type_ is not ToolSettings:
        return "write enabled = false"
    if not DEEDS.isdisjoint(named):
        return ""
    about_arguments = said is not None and not PLACES.isdisjoint(named)
    if about_arguments or joined in ("rule", "rules"):
        return f'write a table [[policy.rules]] with capability = "{_pattern(path)}"'
    if said == "blocks":
        return _blocked(type_, path)
    if said == "asks" or "prompt" in named:
        return _asked(type_, path)
    return _only(type_) if said == "only" or joined in _SCOPES else ""


def below_policy(key: str) -> str:
    """Return where a restriction belongs that stands in no section, or in `[supervisor]`.

    >>> below_policy("ask")
    'write ask below [policy]'
    """
    if key in PolicySettings.__struct_fields__:
        return f"write {key} below [policy]"
    if key in ("grant", "deny"):
        return f"write {key} below [agents.NAME]"
    return "write what is meant below [policy]: approval, block, ask, allow or rules"


def in_place_of_list(path: Path, value: Any) -> str:
    """Return the advice for a list where a server's `tools` are a table; "" for anything else."""
    listed = isinstance(value, list) and len(path) == 3 and path[::2] == ("mcp_servers", "tools")
    return NO_LIST if listed else ""


def _pattern(path: Path) -> str:
    """A pattern of what the entry serves, for `[policy]`."""
    if path[0] not in ("mcp_servers", "cli_tools"):
        return "mcp:SERVER/TOOL"
    try:
        name = worker_name(*path[:2])
    except UsageError:
        name = f"{KINDS[path[0]]}:NAME"
    if path[0] == "cli_tools":
        return name
    return f"{name}/{path[3] if len(path) > 4 else 'TOOL'}"


def _blocked(type_: type[msgspec.Struct], path: Path) -> str:
    if type_ is McpServerSettings:
        return f'write disabled_tools = ["TOOL"], or block = ["{_pattern(path)}"] below [policy]'
    if type_ is AgentSettings:
        return 'write deny = ["mcp:SERVER/TOOL"]; block = [...] below [policy] is for every agent'
    if type_ is PolicySettings:
        return 'write block = ["mcp:SERVER/TOOL"]'
    return 'write tier = "block"' if type_ in (ToolSettings, CliToolSettings) else ""


def _asked(type_: type[msgspec.Struct], path: Path) -> str:
    if type_ is McpServerSettings:
        return (
            f'write ask = ["{_pattern(path)}"] below [policy]; or here tier = "ask" for all tools, '
            'tools.TOOL.tier = "ask" for one'
        )
    if type_ is AgentSettings:
        return 'write ask = ["mcp:SERVER/TOOL"] below [policy]: it holds for every agent'
    if type_ is PolicySettings:
        return 'write ask = ["mcp:SERVER/TOOL"]'
    return 'write tier = "ask"' if type_ in (ToolSettings, CliToolSettings) else ""


def _only(type_: type[msgspec.Struct]) -> str:
    if type_ is McpServerSettings:
        return NO_LIST
    if type_ is ToolSettings:
        return 'write tier = "block" for a tool that is not allowed'
    if type_ is CliToolSettings:
        return "write the only commands that may be run as subcommands"
    if type_ is AgentSettings:
        return 'write all that it may use as grant = ["mcp:SERVER/TOOL", "cli:NAME"]'
    return ""
