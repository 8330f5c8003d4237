"""Descriptions without what tells nothing about their subject."""

from __future__ import annotations

import re
from typing import Final

LIMIT: Final = 600
"""Characters of a description that count; what a tool is for stands at its beginning."""
_MARKUP: Final = re.compile(r"```.*?(?:```|\Z)|<[^<>]{1,200}>|https?://\S+|&[a-z]{2,6};", re.S)
_SECTION: Final = re.compile(
    r"(?:^|\n)[ \t#*_]*(?:args|arguments|parameters|params|returns?|raises|yields|input|output|"
    r"examples?|example usage|usage|note|notes|source|commit|response|requires|permissions?)"
    r"[ \t*_]*:.*\Z",
    re.I | re.S,
)
_SOURCE_LINE: Final = re.compile(r"(?m)^(?:source|commit|license|author|version)\s*:.*$", re.I)
_ADMIN: Final = frozenset(
    "auth authenticate authentication login logout token tokens health healthcheck ping version "
    "status credentials oauth".split()
)


def strip(description: str) -> str:
    """Return what a description says about its subject: no markup, no links, no lists of arguments.

    >>> strip("Make a <b>map</b>.\\n\\nArgs:\\n    title: the title")
    'Make a  map .'
    """
    text = _MARKUP.sub(" ", description)
    text = _SECTION.sub("", text)
    text = _SOURCE_LINE.sub("", text)
    return text[:LIMIT].strip()


def is_admin(words: list[str]) -> bool:
    """Tell whether a tool is only about signing in or about its server's health.

    >>> is_admin(["refresh", "auth"]), is_admin(["get", "status"]), is_admin(["order", "status"])
    (True, True, False)
    """
    return bool(_ADMIN.intersection(words)) and all(
        word in _ADMIN or word in _ADMIN_VERBS for word in words
    )


_ADMIN_VERBS: Final = frozenset(
    "get set save refresh check start complete verify list server api the user revoke".split()
)
