"""Recognises values that a template left for a person to fill in."""

from __future__ import annotations

import re
from collections.abc import Iterator

from interlock.bus.settings import McpServerSettings

_ANGLE = re.compile(r"(?:^|(?<=[\s=:/]))<[A-Za-z][^<>\n]{0,80}>(?=$|[\s/?&])")
_YOUR = re.compile(
    r"(?:^|(?<=[\s=:/\"']))[Yy][Oo][Uu][Rr][-_ ][A-Za-z0-9_ -]{1,60}(?:$|(?=[\s&\"']))"
)


def is_placeholder(value: str) -> bool:
    """Tell whether a value is a note to the reader and not a value.

    >>> is_placeholder("<your key>"), is_placeholder("Bearer YOUR_TOKEN"), is_placeholder("${KEY}")
    (True, True, False)
    """
    return _ANGLE.search(value) is not None or _YOUR.search(value) is not None


def unfilled(settings: McpServerSettings) -> Iterator[tuple[str, ...]]:
    """Yield the key path, below the entry, of every value that is still to be filled in."""
    for key in ("command", "url", "api_key_env", "cwd"):
        if is_placeholder(getattr(settings, key)):
            yield (key,)
    if any(is_placeholder(word) for word in settings.args):
        yield ("args",)
    for key in ("env", "headers"):
        for name, value in getattr(settings, key).items():
            if is_placeholder(value):
                yield (key, name)
