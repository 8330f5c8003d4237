"""The name of a host as programs look it up, whatever letters it is written in; pure."""

from __future__ import annotations

import unicodedata
from typing import Final

LONGEST: Final = 500
"""Characters of the longest name that is looked up; one that counts in the network has 253."""
_LONGEST_PART: Final = 63
_ENCODED: Final = "xn--"
_UNSEEN: Final = frozenset(
    map(chr, (0x34F, 0x115F, 0x1160, 0x3164, 0xFFA0, *range(0x180B, 0x1810)))
) | frozenset(map(chr, (*range(0xFE00, 0xFE10), *range(0xE0100, 0xE01F0))))
"""Characters without a look besides those for formats: fillers and choices of a variant."""
_DOT: Final = "\u3002"
"""The full stop of Chinese and Japanese, which separates the parts of a name as a dot does."""


def as_host(name: str) -> str:
    """Return what a name of a host is mapped to before it is looked up (UTS 46).

    That is in small letters and usual forms, with dots, without unseen characters, and with its
    parts decoded. A text that is too long for a name comes back as it is.

    >>> as_host("A\u3002exa\u00admple"), as_host("xn--bcher-kva.example")
    ('a.example', 'b\xfccher.example')
    """
    if not name.isascii():
        name = name.translate({ord(char): None for char in set(name) if _unseen(char)})
    if len(name) > LONGEST:
        return name
    plain = unicodedata.normalize("NFKC", name).casefold()
    # Some characters are mapped to a space and an accent, or to unseen ones: once more.
    plain = unicodedata.normalize("NFKC", plain).replace(_DOT, ".")
    if _ENCODED not in plain:
        return plain
    return ".".join(map(_decoded, plain.split(".")))


def _unseen(char: str) -> bool:
    return char in _UNSEEN or unicodedata.category(char) in ("Cf", "Cc")


def _decoded(part: str) -> str:
    if not part.startswith(_ENCODED) or len(part) > _LONGEST_PART:
        return part
    try:
        return part.removeprefix(_ENCODED).encode("ascii").decode("punycode").casefold()
    except UnicodeError:
        return part
