"""What words are near to each other: small word vectors that ship with the package."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import sqrt
from operator import mul
from struct import unpack
from typing import Final

ZERO: Final = 128
"""The byte that stands for 0."""
Direction = tuple[float, ...]
"""A vector of length 1; empty where no word has one."""


@dataclass(frozen=True, slots=True)
class Vectors:
    """One vector by stem: `size` bytes from its place on, each 128 more than the number it is.

    Vectors are added as single long integers, four bytes a number, which is far quicker than number
    by number.
    """

    size: int
    places: Mapping[str, int]
    numbers: bytes
    _packed: dict[str, int] = field(default_factory=dict, repr=False, compare=False)
    """The vectors that were asked for."""

    def direction(self, terms: Iterable[str]) -> Direction:
        """Return where a text points: the sum of its words' vectors, each as often as it is said.

        >>> parse(b"2 map chart\\n" + bytes([131, 128, 128, 132])).direction(["map", "chart"])
        (0.6, 0.8)
        """
        summed = words = 0
        for term in terms:
            if packed := self._packed.get(term) or self._pack(term):
                summed += packed
                words += 1
        if not words:
            return ()
        whole = unpack(f"<{self.size}I", summed.to_bytes(4 * self.size, "little"))
        middle = ZERO * words
        numbers = [number - middle for number in whole]
        length = sqrt(sum(map(mul, numbers, numbers)))
        return tuple([number / length for number in numbers]) if length else ()

    def _pack(self, term: str) -> int:
        place = self.places.get(term)
        if place is None:
            return 0
        wide = bytearray(4 * self.size)
        wide[::4] = self.numbers[place : place + self.size]
        found = self._packed[term] = int.from_bytes(wide, "little")
        return found


def near(one: Direction, other: Direction) -> float:
    """Return how near two texts are, from -1 to 1; 0 if one of them has no known word."""
    found: float = sum(map(mul, one, other), 0.0)
    return found


def parse(data: bytes) -> Vectors:
    """Read a table: a line with the vectors' size and the stems, then their bytes.

    Raises ValueError for data in another form.
    """
    head, _, body = data.partition(b"\n")
    size, *terms = head.decode().split()
    if len(body) != int(size) * len(terms):
        raise ValueError("the table of word vectors is cut")
    places = {term: at * int(size) for at, term in enumerate(terms)}
    return Vectors(int(size), places, body)


NONE: Final = parse(b"1\n")
"""No vectors: then nothing is near to anything."""
