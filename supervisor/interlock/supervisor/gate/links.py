"""Links in a request: what they say is that something on the web is to be read."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache
from typing import Final, NamedTuple

from interlock.supervisor.gate.words import english

_LINK: Final = re.compile(
    r"(?:https?://|www\.)[^\s<>\"]+|(?<![@\w.-])(?:[a-z0-9-]+\.){1,4}(?:com|org|net)\b(?!@)"
    r"(?:[/?#][^\s<>\"]*)?",
    re.I,
)
_HOST: Final = re.compile(r"(?:https?://)?(?:www\.)?([^/?#:\s]+)", re.I)
_FILE: Final = re.compile(r"/[^/?#]*\.([a-z]{2,4})(?:[?#]|\Z)", re.I)
_READERS: Final = "fetch download scrape crawl browse"
"""What servers say that read whatever a link leads to."""


class Links(NamedTuple):
    """A text with links.

    `named` has only the host in the place of each, without the top level, since a host may be the
    name of a server; `rest` has none of them; `first` is the first link in small letters;
    `kinds` holds the endings of files that they lead to.
    """

    named: str
    rest: str
    first: str
    kinds: tuple[str, ...]


def links(text: str) -> Links | None:
    """Return a text by its links; None if it has none.

    >>> links("Read https://docs.example.org/a/b.pdf?c now")[:2]
    ('Read docs.example now', 'Read   now')
    >>> links("Read e.g. this")
    """
    if not _may_have(text):
        return None
    found = _LINK.findall(text)
    if not found:
        return None
    kinds = [kind.lower() for link in found for kind in _FILE.findall(link.rstrip(".,;:!?)'"))]
    return Links(
        _LINK.sub(lambda link: _host(link.group()), text),
        _LINK.sub(" ", text),
        found[0].lower(),
        tuple(dict.fromkeys(kinds)),
    )


def _may_have(text: str) -> bool:
    """Tell whether a text has what all links have, far quicker than they are found."""
    if "." not in text and ":" not in text:
        return False
    low = text.lower()
    return "://" in low or "www." in low or ".com" in low or ".org" in low or ".net" in low


def terms(said: Iterable[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """Return what a link adds to the terms that a request says otherwise: each counts for one word.

    It is about a URL, and about one of the things that are done with what is there.
    """
    taken = {term for word in said for term in word}
    readers = tuple(term for term in _readers() if term not in taken)
    return [word for word in (english("url"), readers) if word and not taken.issuperset(word)]


def _host(link: str) -> str:
    found = _HOST.match(link)
    return found.group(1).rpartition(".")[0] if found else ""


@cache
def _readers() -> tuple[str, ...]:
    return tuple(term for word in _READERS.split() for term in english(word))
