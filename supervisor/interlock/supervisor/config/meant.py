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
    CliToolSettings,
    McpServerSettings,
    PolicySettings,
    ToolSettings,
)

SECTIONS: Final = ("supervisor", "mcp_servers", "cli_tools", "agents", "policy")
_RESTRICTING: Final[dict[type[msgspec.Struct], frozenset[str]]] = {
    McpServerSettings: frozenset({"tier", "tools", "disabled_tools", "enabled"}),
    ToolSettings: frozenset({"tier"}),
    CliToolSettings: frozenset({"tier", "enabled", "subcommands", "arguments"}),
    AgentSettings: frozenset({"grant", "deny", "enabled"}),
    ArgumentRule: frozenset(),  # all its keys are needed: one that is misspelt is missing
}
"""By table, the keys of which a default permits more than what somebody wrote."""
_LOOSENING: Final = "allow"
"""The one key of policy that forbids nothing: whoever misspells it has less, not more."""
_STEMS: Final = (
    *("block", "deny", "denie", "forbid", "disallow", "disable", "exclud", "restrict"),
    *("grant", "tier", "polic", "enable", "include", "allowed", "permi"),
)
"""How words begin with which people and other programs forbid, or allow nothing but this."""
_WORDS: Final = re.compile(r"[A-Z]?[a-z]+|[A-Z]+")
_SHORT: Final = 5
"""Letters up to which one slip makes another word already."""


def may_forbid(type_: type[msgspec.Struct], key: str) -> bool:
    """Whether an unknown key of such a table may have been written to forbid something.

    >>> [may_forbid(AgentSettings, key) for key in ("denied", "grants", "colour")]
    [True, True, False]
    """
    if type_ is PolicySettings:  # nearly all that a policy says forbids something
        return not _is_near(key, (_LOOSENING,))
    restricting = _RESTRICTING.get(type_)
    if restricting is None:
        return False
    # A grant is what is allowed, and an agent without one may use everything.
    more = (_LOOSENING,) if type_ is AgentSettings else ()
    return _is_near(key, (*restricting, *more)) or _says_so(key)


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


def _says_so(key: str) -> bool:
    return any(word.lower().startswith(_STEMS) for word in _WORDS.findall(key))


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
