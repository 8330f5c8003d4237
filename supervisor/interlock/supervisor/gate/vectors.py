"""What words are near to each other: small word vectors that ship with the package."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import dist, hypot
from struct import Struct
from typing import Final

ZERO: Final = 128
"""The byte that stands for 0."""
Direction = tuple[float, ...]
"""A vector of length 1; empty where no word has one."""
Pointing = tuple[tuple[int, ...], float]
"""A vector with its length."""
NOWHERE: Final[Pointing] = ((), 1.0)
MIDDLE: Final = 1 << 31
"""The four bytes that stand for 0 in a sum before they are read as a number with a sign."""


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
    _ones: int = field(init=False, repr=False, compare=False)
    """A 1 in each number's place."""
    _highest: int = field(init=False, repr=False, compare=False)
    """The highest bit in each number's place."""
    _form: Struct = field(init=False, repr=False, compare=False)
    """How the four bytes of each number are read."""

    def __post_init__(self) -> None:
        """Make what is added to all numbers at once."""
        ones = int.from_bytes(b"\1\0\0\0" * self.size, "little")
        object.__setattr__(self, "_ones", ones)
        object.__setattr__(self, "_highest", ones << 31)
        object.__setattr__(self, "_form", Struct(f"<{self.size}i"))

    def direction(self, terms: Iterable[str]) -> Direction:
        """Return where a text points: the sum of its words' vectors, each as often as it is said.

        >>> parse(b"2 map chart\\n" + bytes([131, 128, 128, 132])).direction(["map", "chart"])
        (0.6, 0.8)
        """
        numbers, length = self.pointing(terms)
        return tuple([number / length for number in numbers])

    def pointing(self, terms: Iterable[str]) -> Pointing:
        """Return the same as the sum that it is, with its length, to save the divisions."""
        summed = words = 0
        for term in terms:
            if packed := self._packed.get(term) or self._pack(term):
                summed += packed
                words += 1
        if not words:
            return NOWHERE
        # All numbers are brought from around ZERO * words to around MIDDLE, then to around 0: to
        # take MIDDLE from four bytes is to turn their highest bit.
        summed += self._ones * (MIDDLE - ZERO * words)
        wide = (summed ^ self._highest).to_bytes(4 * self.size, "little")
        numbers = self._form.unpack(wide)
        length = hypot(*numbers)
        return (numbers, length) if length else NOWHERE

    def _pack(self, term: str) -> int:
        place = self.places.get(term)
        if place is None:
            return 0
        wide = bytearray(4 * self.size)
        wide[::4] = self.numbers[place : place + self.size]
        found = self._packed[term] = int.from_bytes(wide, "little")
        return found


def near(one: Pointing, other: Direction) -> float:
    """Return how near two texts are, from -1 to 1; 0 if one of them has no known word.

    That is the cosine of their angle, reckoned from the three sides of the triangle, since `dist`
    is far quicker than a sum of products.
    """
    numbers, length = one
    if not numbers or not other:
        return 0.0
    far = dist(numbers, other)
    return (length * length + 1.0 - far * far) / (2.0 * length)


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
