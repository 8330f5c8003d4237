"""Finds what somebody meant who mistyped the name of a worker."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import SequenceMatcher
from itertools import islice
from typing import Final

from interlock.bus.wording import listed

LIKE: Final = 0.6
"""How like two names have to be, from 0 to 1."""
_LOOKED_AT: Final = 1_000
"""Names that are compared; a hint is not worth more time."""
_LONGEST: Final = 200
_NAMED: Final = 10
"""Names that are given to somebody who meant none of them."""


def nearest_worker(typed: str, names: Iterable[str]) -> str:
    """Return the name that is most like `typed`, with or without its kind; "" if none is.

    >>> nearest_worker("gti", ["mcp:time", "mcp:git"]), nearest_worker("x", ["mcp:git"])
    ('mcp:git', '')
    """
    best, found = LIKE, ""
    matcher = SequenceMatcher(None, "", typed[:_LONGEST])
    for name in islice(names, _LOOKED_AT):
        for form in (name,) if ":" in typed else (name, name.partition(":")[2]):
            matcher.set_seq1(form[:_LONGEST])
            if matcher.real_quick_ratio() > best and matcher.quick_ratio() > best:
                like = matcher.ratio()
                if like > best:
                    best, found = like, name
    return found


def no_worker(typed: str, names: Iterable[str], unused: Iterable[str] = ()) -> str:
    """Return the sentence that there is no such worker, with the name that was meant, or with some.

    `unused` are entries that no worker stands for.

    >>> no_worker("gti", ["mcp:git"])
    'There is no worker gti. Did you mean mcp:git?'
    >>> no_worker("x", ["mcp:git", "mcp:b"])
    'There is no worker x; there are mcp:git and mcp:b.'
    """
    known = list(names)
    near = nearest_worker(typed, [*known, *unused])
    if near:
        return f"There is no worker {typed}. Did you mean {near}?"
    if not known:
        return f"There is no worker {typed}; none is configured."
    more = len(known) - _NAMED
    some = [*known[:_NAMED], f"{more} more"] if more > 0 else known
    return f"There is no worker {typed}; there {'are' if len(known) > 1 else 'is'} {listed(some)}."
