"""Keys that nobody reads, and whether their writer meant to forbid something with them; pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable
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
from interlock.supervisor.config.dotmcp import RENAMED
from interlock.supervisor.config.verdicts import verdict, words

SECTIONS: Final = ("supervisor", "mcp_servers", "cli_tools", "agents", "policy")
_MISPLACED: Final = frozenset({"block", "ask", "approval", "rules", "tier", "grant", "deny"})
"""Keys that forbid in one table, and are written into others that do not read them."""
_TABLES: Final = ("permission", "permissions")
"""Tables in which other programs forbid."""
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
_ON: Final = ("active", "isactive", "isenabled")
"""What is off if it is false, beside `enabled`, which is known."""
_EXACT: Final[dict[type[msgspec.Struct], frozenset[str]]] = {
    McpServerSettings: frozenset(_ON),
    CliToolSettings: frozenset({*_ON, "commands"}),
    CliArgument: frozenset("enum values options pattern const".split()),
    AgentSettings: frozenset(
        {*_ON, *"tools servers mcpservers clitools capabilities commands".split()}
    ),
}
"""Words for all that is allowed, or for what is on, as other programs and people write them."""
_LOOSENING: Final = "allow"
"""The one key of policy that forbids nothing: whoever misspells it has less, not more."""
_ORDINARY: Final = frozenset(
    "author comment description homepage icon id label metadata name note notes role roles tags "
    "title url version".split()
)
"""What entries of any program tell of themselves; never a misspelt restriction."""
_SHORT: Final = 4
"""Letters up to which any other slip than two in the wrong order makes another word."""
_LONG: Final = 6
"""Letters from which the first one may be the slip: `lock` is not `block`."""
_ELSEWHERE: Final = {**RENAMED, "timeout": "call_timeout"}
"""Keys that other programs have for ours."""


MOST_UNKNOWN: Final = 1_000
"""Unknown keys of one file that are looked at; each takes half a millisecond."""
TOO_MANY: Final = "remove the keys that are not known"
"""What to do about more of them."""


def may_forbid(type_: type[msgspec.Struct], key: str, value: object = ()) -> bool:
    """Whether an unknown key of such a table may have been written to forbid something.

    `value` is what it has: `disabled = false` forbids nothing.

    >>> [may_forbid(AgentSettings, key) for key in ("denied", "ask", "autoApprove", "colour")]
    [True, True, False, False]
    """
    if _letters(key) in _ORDINARY:
        return False
    if type_ is PolicySettings:  # nearly all that a policy says forbids something
        return not _is_near(key, (_LOOSENING,))
    restricting = RESTRICTING_KEYS.get(type_)
    if restricting is None or _switches_nothing_off(key, value):
        return False
    if type_ is SupervisorSettings:  # the costs of an error are every capability's
        return _is_one_of(key, restricting)
    if _is_near(key, restricting) or _letters(key) in _EXACT.get(type_, ()):
        return True
    # The prompt of an agent is what its model is told; elsewhere it is a question to a person.
    asks = type_ is not AgentSettings and words(key) == ["prompt"]
    return asks or verdict(key) is not None


def _switches_nothing_off(key: str, value: object) -> bool:
    if _is_near(key, ("enabled", *_ON)):
        return value is True
    said = "asks" if words(key) == ["prompt"] else verdict(key)
    if said == "only":
        return value is True and "only" not in words(key)
    return value is False and said in ("blocks", "asks")


def section_meant(key: str) -> str:
    """Return the section that an unknown top-level key was meant as, or to stand in; else "".

    >>> section_meant("Policy"), section_meant("agent"), section_meant("block"), section_meant("x")
    ('policy', 'agents', 'policy', '')
    """
    for section in SECTIONS:
        if _is_near(key, (section,)):
            return section
    inside = _MISPLACED.union(PolicySettings.__struct_fields__, _TABLES) - {_LOOSENING, "tier"}
    return "policy" if _is_one_of(key, inside) or verdict(key, of_things=True) else ""


def unknown_message(key: str, known: Iterable[str]) -> str:
    """Return the sentence about a key that nobody reads, with the nearest name that somebody does.

    >>> unknown_message("comand", ["command", "args"])
    'the key comand is not known; did you mean command?'
    >>> unknown_message("timeout", ["init_timeout", "call_timeout"])
    'the key timeout is not known; did you mean call_timeout, in seconds?'
    """
    names = list(known)
    elsewhere = _ELSEWHERE.get(key, "")
    near = [elsewhere] if elsewhere in names else get_close_matches(key.lower(), names, 1, 0.6)
    if not near:
        return f"the key {key} is not known; it is ignored"
    unit = ", in seconds" if elsewhere.endswith("_timeout") else ""
    return f"the key {key} is not known; did you mean {near[0]}{unit}?"


def forbidding_message(key: str, known: Iterable[str]) -> str:
    """Return the same sentence for a key that may have been written to forbid something.

    >>> forbidding_message("denied", ["deny", "grant"])
    'the key denied (did you mean deny?) is not known and may forbid something'
    """
    near = get_close_matches(key.lower(), list(known), 1, 0.6)
    meant = f" (did you mean {near[0]}?)" if near else ""
    return f"the key {key}{meant} is not known and may forbid something"


def too_many(more: int) -> str:
    """Return the sentence about keys that nobody reads and that are too many to be looked at.

    >>> too_many(1)
    '1 more key that is not known is not looked at, and may forbid something'
    """
    keys = "1 more key that is" if more == 1 else f"{more} more keys that are"
    verb = "is" if more == 1 else "are"
    return f"{keys} not known {verb} not looked at, and may forbid something"


def misplaced_message(key: str) -> str:
    """Return that sentence for a key that is right, or would say something, in another place."""
    return f"the key {key} is not known here and may forbid something"


def is_misspelt(type_: type[msgspec.Struct], key: str) -> bool:
    """Whether a key that may forbid is one of that very table with a typing mistake."""
    own = RESTRICTING_KEYS.get(type_, frozenset()) & set(type_.__struct_fields__)
    return _is_near(key, type_.__struct_fields__ if type_ is PolicySettings else own)


def _is_one_of(key: str, names: Collection[str]) -> bool:
    """Whether a key is one of the names but for case, `_` and a plural."""
    written = _one(_letters(key))
    return any(written == _one(_letters(name)) for name in names)


def _is_near(key: str, names: Collection[str]) -> bool:
    """Whether a key is one of the names but for case, `_`, a plural, or one slip."""
    if _is_one_of(key, names):
        return True
    written = _letters(key)
    return any(
        _is_slip(written, meant) or _is_slip(_one(written), _one(meant))
        for meant in map(_letters, names)
    )


def _is_slip(written: str, meant: str) -> bool:
    if len(meant) <= _SHORT:
        near = sorted(written) == sorted(meant)
    else:
        near = len(meant) >= _LONG or written[:1] == meant[:1]
    return near and abs(len(written) - len(meant)) <= 1 and _slips(written, meant) <= 1


def _one(letters: str) -> str:
    """The letters of a word without those of a plural."""
    return letters[:-3] + "y" if letters.endswith("ies") else letters.removesuffix("s")


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
