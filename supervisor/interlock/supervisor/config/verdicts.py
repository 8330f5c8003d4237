"""What the words of a key say that somebody made up, or knows from another program; pure."""

from __future__ import annotations

import re
from typing import Final, Literal

Says = Literal["blocks", "asks", "only", "unsaid"]
"""Forbids what it lists; has a person asked; allows nothing but this; or it is not known which."""

_VERDICTS: Final[dict[str, Says]] = {
    r"block(s|ed|lists?|listed)?|black(list|lists|listed)?|den(y|ied|ylists?)": "blocks",
    r"forbid(s|den)?|disallow(s|ed)?|disabl(e|es|ed)|exclu(de|des|ded|sion|sions)": "blocks",
    r"restrict(s|ed|ion|ions)?|prohibit(s|ed)?": "blocks",
    r"asks?|approv(e|es|al|als|ed)|confirm(s|ed|ation|ations)?|readonly": "asks",
    r"allow(s|ed|lists?|listed)?|whitelist(s|ed)?|permit(s|ted)?|only": "only",
    r"grant(s|ed)?|permissions?|polic(y|ies)|tiers?|sandbox(ed)?": "unsaid",
}
"""Words that say so by themselves."""
_WITH_THINGS: Final[dict[str, Says]] = {
    r"hid(e|es|den)": "blocks",
    r"enabl(e|es|ed)|includ(e|es|ed)|available|availability|filter(s|ed)?": "only",
}
"""Words of any configuration: they say so beside what is served, as in `enabled_tools`."""
_OPENS: Final = re.compile(
    r"allow(s|ed|lists?)?|approv(e|es|al|ed)|enabl(e|es|ed)|permit(s)?|permissions?"
)
_UNASKED: Final = frozenset({"auto", "always", "automatically", "yolo"})
"""Beside one of them a word that permits opens a door: `alwaysAllow`, `autoApprove`."""
_THINGS: Final = re.compile(
    r"(tool|server|subcommand|command|function|action|operation|method|call|skill|agent)s?"
    r"|mcp|cli|capabilit(y|ies)"
)
"""What is served."""
PLACES: Final = frozenset(
    "path paths dir dirs directory directories folder folders file files url urls domain domains "
    "host hosts".split()
)
"""What arguments of calls name, of which rules about arguments tell."""
DEEDS: Final = frozenset(
    "read reads write writes edit edits run execute delete change changes network internet web "
    "shell access destructive".split()
)
"""What a tool does, of which no key tells."""
_BESIDE: Final = frozenset(
    "list lists mode default defaults is by for all to use user before level set name names any "
    "every each other others pattern patterns never require requires required need needs rule "
    "rules".split()
).union(PLACES, DEEDS)
"""Words beside which a verdict stays one. Beside any other, as in `block_size`, it is none."""
_ORDER: Final[tuple[Says, ...]] = ("blocks", "asks", "only", "unsaid")
"""Which of two verdicts in a key counts."""
_WORDS: Final = re.compile(r"[A-Z]?[a-z]+|[A-Z]+")
_READ_ONLY: Final = re.compile(r"read[^a-z]?only", re.IGNORECASE)
_JOINED: Final = re.compile(r"(?<=[a-z])(tools?|servers?)(?![a-z])")


def words(key: str) -> list[str]:
    """Return the words of a key in lower case.

    >>> words("disabledTools"), words("allowedtools"), words("MCP_read-only")
    (['disabled', 'tools'], ['allowed', 'tools'], ['mcp', 'readonly'])
    """
    apart = _JOINED.sub(r"_\1", _READ_ONLY.sub("_readonly_", key))
    return [word.lower() for word in _WORDS.findall(apart)]


def verdict(key: str, *, of_things: bool = False) -> Says | None:
    """Return what a key says of what may be used; None if its words say nothing of that.

    `of_things`: only beside a word for what is served, which a key of no entry needs.

    >>> [verdict(key) for key in ("disabledTools", "enabled_tools", "include", "autoApprove")]
    ['blocks', 'only', None, None]
    """
    written = words(key)
    unasked = not _UNASKED.isdisjoint(written)
    things = any(map(_THINGS.fullmatch, written))
    found: list[Says] = []
    for word in written:
        said = _said(_VERDICTS, word) or _said(_WITH_THINGS, word)
        alone = _said(_VERDICTS, word) is not None and not of_things
        if said is None:
            if not (word in _BESIDE or word in _UNASKED or _THINGS.fullmatch(word)):
                return None
        elif (things or alone) and not (unasked and _OPENS.fullmatch(word)):
            found.append(said)
    return min(found, key=_ORDER.index, default=None)


def _said(table: dict[str, Says], word: str) -> Says | None:
    return next((says for stem, says in table.items() if re.fullmatch(stem, word)), None)
