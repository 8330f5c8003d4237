"""What the pattern of a rule that forbids means, beyond what it fits letter by letter; pure."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from functools import lru_cache
from itertools import product
from typing import Final

from interlock.supervisor.policy.addresses import is_address, meanings

PATTERNS: Final = 4_096
"""Patterns of which the meanings are kept."""
_DEPTHS: Final = 4
"""How many `**/` of one pattern are read as no folder at all, too; each doubles the spellings."""
_PARTS: Final = 32
"""Last parts of one pattern that are taken off it."""
_ANY_DEPTH: Final = re.compile(r"(?<![^/])(\*\*+/)")
_NOWHERE: Final = re.compile(r"/(?:\.?/)+")
_WILD: Final = frozenset("*?")


@lru_cache(PATTERNS)
def spellings(pattern: str) -> frozenset[str]:
    """Return all patterns that say what this one does where it forbids, with itself.

    What is written for all that is in a folder means the folder, too: a list of it, or a
    repository. `**/` may be no folder, a backslash separates folders, `//` and `/./` are `/`.

    >>> sorted(spellings("/etc/**"))
    ['/etc', '/etc/**']
    """
    found = {pattern}  # also where nothing is written
    for plain in _plain_paths(pattern.replace("\\", "/")):
        found |= {plain, *_folders(plain)}
    return frozenset().union(*map(_of_addresses, found))


def _plain_paths(pattern: str) -> Iterator[str]:
    """The pattern, with and without each `**/`, and without detours that change nothing."""
    parts = _ANY_DEPTH.split(pattern, _DEPTHS)
    fixed, deep = parts[::2], parts[1::2]
    for chosen in product((True, False), repeat=len(deep)):
        between = [part if kept else "" for part, kept in zip(deep, chosen, strict=True)]
        path = "".join(a + b for a, b in zip(fixed, [*between, ""], strict=True))
        if path:
            yield path
        if not is_address(path):
            straight = _NOWHERE.sub("/", path).removeprefix("./").removesuffix("/")
            if _is_bound(straight):
                yield straight


def _folders(path: str) -> Iterator[str]:
    """What is left without the last parts that any name fits, as long as that is a folder."""
    for _ in range(_PARTS):
        path, slash, last = path.rpartition("/")
        if not slash or "*" not in last or not _WILD.issuperset(last):
            return
        if not _is_bound(path) or path.endswith("/"):
            return  # every text, a root, or the scheme of an address
        yield path


def _is_bound(path: str) -> bool:
    """Whether anything is said in it but that there is something."""
    return not _WILD.union("/").issuperset(path)


def _of_addresses(pattern: str) -> frozenset[str]:
    """The pattern without differences of letters; one of an address means the address."""
    plain = unicodedata.normalize("NFKC", pattern).casefold()
    addresses = meanings(plain, inside=False) if "?" not in plain else ()
    return frozenset({pattern, plain, *(one for one in addresses if "://" in one)})
