"""Keys that nobody reads, and whether their writer meant to forbid something with them; pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from difflib import get_close_matches
from typing import Final

import msgspec

from interlock.bus.settings import (
    AgentSettings,
    ArgumentRule,
    CliArgument,
    CliToolSettings,
    McpServerSettings,
    PolicySettings,
    SupervisorSettings,
    ToolSettings,
)

SECTIONS: Final = ("supervisor", "mcp_servers", "cli_tools", "agents", "policy")
_MISPLACED: Final = frozenset({"block", "ask", "approval", "rules", "tier", "grant", "deny"})
"""Keys that forbid in one table, and are written into others that do not read them."""
_ENTRY: Final = _MISPLACED | {"enabled", "disabled_tools", "subcommands", "allow"}
"""What forbids, or is a list of all that is allowed, in an entry; its own keys are none unknown."""
RESTRICTING_KEYS: Final[dict[type[msgspec.Struct], frozenset[str]]] = {
    McpServerSettings: _ENTRY | {"tools"},
    ToolSettings: _ENTRY,
    CliToolSettings: _ENTRY | {"arguments"},
    CliArgument: frozenset({"choices"}),
    AgentSettings: _ENTRY,
    ArgumentRule: frozenset(),  # all its keys are needed: one that is misspelt is missing
    SupervisorSettings: _MISPLACED,
}
"""By table, the keys of which a default permits more than what somebody wrote."""
_EXACT: Final[dict[type[msgspec.Struct], frozenset[str]]] = {
    McpServerSettings: frozenset({"active"}),
    CliToolSettings: frozenset({"active", "commands"}),
    CliArgument: frozenset("enum values options pattern const".split()),
    AgentSettings: frozenset(
        "active tools servers mcpservers clitools capabilities commands".split()
    ),
}
"""Words for all that is allowed, or for what is on, as other programs and people write them."""
_LOOSENING: Final = "allow"
"""The one key of policy that forbids nothing: whoever misspells it has less, not more."""
_PERMITS: Final = ("allow", "approv", "enable", "permi")
_STEMS: Final = (
    *("block", "black", "deny", "denie", "forbid", "disallow", "disable", "exclud", "restrict"),
    *("grant", "tier", "polic", "includ", "whitel", "availab", "readonly", "sandbox", "prohib"),
    *("confirm", "hidden", "filter"),
)
"""How words begin with which people and other programs forbid, or allow nothing but this."""
_UNASKED: Final = frozenset({"auto", "always", "automatically", "yolo"})
"""Beside one of them a word that permits opens a door: `alwaysAllow`, `autoApprove`."""
_WORDS: Final = re.compile(r"[A-Z]?[a-z]+|[A-Z]+")
_SHORT: Final = 5
"""Letters up to which one slip makes another word already."""


def may_forbid(type_: type[msgspec.Struct], key: str) -> bool:
    """Whether an unknown key of such a table may have been written to forbid something.

    >>> [may_forbid(AgentSettings, key) for key in ("denied", "ask", "autoApprove", "colour")]
    [True, True, False, False]
    """
    if type_ is PolicySettings:  # nearly all that a policy says forbids something
        return not _is_near(key, (_LOOSENING,))
    restricting = RESTRICTING_KEYS.get(type_)
    if restricting is None:
        return False
    if _is_near(key, restricting) or _letters(key) in _EXACT.get(type_, ()):
        return True
    if type_ is SupervisorSettings:  # the costs of an error are every capability's
        return False
    # The prompt of an agent is what its model is told; elsewhere it is a question to a person.
    asks = type_ is not AgentSettings and _letters(key).startswith("prompt")
    return asks or _says_so(key)


def section_meant(key: str) -> str:
    """Return the section that an unknown top-level key was meant as, or to stand in; else "".

    >>> section_meant("Policy"), section_meant("agent"), section_meant("block"), section_meant("x")
    ('policy', 'agents', 'policy', '')
    """
    for section in SECTIONS:
        if _is_near(key, (section,)):
            return section
    inside = set(PolicySettings.__struct_fields__) - {_LOOSENING}
    return "policy" if _is_near(key, inside) or _says_so(key) else ""


def unknown_message(key: str, known: Iterable[str]) -> str:
    """Return the sentence about a key that nobody reads, with the nearest name that somebody does.

    >>> unknown_message("comand", ["command", "args"])
    'the key comand is not known; did you mean command?'
    """
    near = get_close_matches(key.lower(), list(known), 1, 0.6)
    return f"the key {key} is not known; " + (
        f"did you mean {near[0]}?" if near else "it is ignored"
    )


def forbidding_message(key: str, known: Iterable[str]) -> str:
    """Return the same sentence for a key that may have been written to forbid something.

    >>> forbidding_message("denied", ["deny", "grant"])
    'the key denied (did you mean deny?) is not known and may forbid something'
    """
    near = get_close_matches(key.lower(), list(known), 1, 0.6)
    meant = f" (did you mean {near[0]}?)" if near else ""
    return f"the key {key}{meant} is not known and may forbid something"


def misplaced_message(key: str) -> str:
    """Return that sentence for a key that is right, or would say something, in another place."""
    return f"the key {key} is not known here and may forbid something"


def is_misspelt(type_: type[msgspec.Struct], key: str) -> bool:
    """Whether a key that may forbid is one of that very table with a typing mistake."""
    own = RESTRICTING_KEYS.get(type_, frozenset()) & set(type_.__struct_fields__)
    return _is_near(key, type_.__struct_fields__ if type_ is PolicySettings else own)


def _says_so(key: str) -> bool:
    words = [word.lower() for word in _WORDS.findall(key)]
    unasked = not _UNASKED.isdisjoint(words)
    stems = _STEMS if unasked else (*_STEMS, *_PERMITS)
    return (
        any(word.startswith(stems) for word in words)
        or "only" in words
        or "readonly" in "".join(words)
    )


def _is_near(key: str, names: Iterable[str]) -> bool:
    written = _letters(key)
    for name in names:
        meant = _letters(name)
        slips = 1 if len(meant) <= _SHORT else 2
        if abs(len(written) - len(meant)) <= slips and _slips(written, meant) <= slips:
            return True
    return False


def _letters(key: str) -> str:
    return "".join(char for char in key.casefold() if char.isalnum())


def _slips(one: str, other: str) -> int:
    """How many letters are missing, too many, wrong, or in the order of their neighbours."""
    before: list[int] = []
    row = list(range(len(other) + 1))
    for n, char in enumerate(one):
        before, last, row = row, before, [n + 1]
        for k, against in enumerate(other):
            cost = min(before[k + 1] + 1, row[k] + 1, before[k] + (char != against))
            if n and k and char == other[k - 1] and one[n - 1] == against:
                cost = min(cost, last[k - 1] + 1)
            row.append(cost)
    return row[-1]
