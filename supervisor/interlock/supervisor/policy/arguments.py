"""The values of one call's arguments, as rules look at them: bounded, each looked at once; pure."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterator, Mapping
from decimal import Decimal
from fnmatch import translate
from functools import lru_cache
from typing import Any, Final

import msgspec

from interlock.bus.names import fold, with_brackets
from interlock.supervisor.policy.addresses import is_address, meanings, unescaped, without_detours
from interlock.supervisor.policy.hosts import LONGEST as LONGEST_HOST
from interlock.supervisor.policy.hosts import as_host
from interlock.supervisor.policy.patterns import PATTERNS, spellings

MOST: Final = 2_000
"""Values and keys that are looked at for one rule; the rules of a call with more are not decided.

A supervisor has one thread: looking at all that fits into a message would stall every agent.
"""
MARKS: Final = 30
"""Combining marks in a row, from which on comparing spellings takes quadratic time."""
ESCAPES: Final = 20_000
"""Escapes (`%41`) in the addresses of one call that are read; with more its rules are not decided.
"""
CHARACTERS: Final = 16 << 20
"""Characters that are compared for one call, over all its rules and spellings: about 0.2 s."""
SPELLED: Final = 24 << 20
"""Characters that all spellings of one call have together: about 0.4 s."""
UNUSUAL: Final = 128 << 10
"""Letters in the texts of one call that have other usual forms, and letters of those forms.

One can stand for 18, and to find them takes up to 3 microseconds each.
"""
_NUMBER: Final = re.compile(r"[+-]?(?:\d{1,40}\.?\d{0,40}|\.\d{1,40})(?:e[+-]?\d{1,2})?", re.ASCII)


class UndecidedError(Exception):
    """Arguments are too many, or too odd, to be compared with a rule."""


class Values:
    """The arguments of one call. Each text is spelled out once, however many rules there are."""

    def __init__(self, arguments: Mapping[str, Any]) -> None:
        self._arguments = arguments
        self._found: dict[tuple[str, bool], tuple[str, ...] | None] = {}
        self._spellings: dict[str, frozenset[str] | None] = {}
        self._folded: dict[str, str] = {}
        self._spelling = SPELLED
        self._unusual = UNUSUAL
        self._unescaped: dict[str, str] = {}
        self._escapes = ESCAPES
        self._characters = CHARACTERS

    def may_fit(self, argument: str, pattern: str) -> bool:
        """Whether one value may fit, in any spelling of the argument's name or of the value.

        Upper case, `..` and `//` in paths, `file:`, escapes, user and usual port in addresses, 22.0
        for 22 are spellings. Raises UndecidedError.
        """
        texts = self._texts(argument, careful=True)
        means = [_compiled(each) for each in spellings(pattern)]
        number = _number(pattern)
        for text in texts:
            spelled = self._spelled(text)
            if number in spelled:
                return True
            if any(self._fits(match, spelt) for spelt in spelled for match in means):
                return True
        return False

    def all_fit(self, argument: str, pattern: str) -> bool:
        """Whether there is such an argument and all that it may mean fits as it is written.

        Raises UndecidedError.
        """
        if not self._texts(argument, careful=False):
            return False
        match = _compiled(pattern)
        return all(
            self._fits(match, text)
            and all(self._fits(match, without_detours(each)) for each in self._read(text))
            for text in self._texts(argument, careful=True)
        )

    def _fits(self, match: Any, text: str) -> bool:
        """Whether a pattern fits. Raises UndecidedError once that was too much work for a call."""
        self._characters -= len(text)
        if self._characters < 0:
            raise UndecidedError
        return match(text) is not None

    def _texts(self, argument: str, *, careful: bool) -> tuple[str, ...]:
        """The different values of an argument as texts.

        `a.b` is `b` inside of `a`, `*` is every argument; if `careful`, at any depth.
        """
        key = (argument, careful)
        if key not in self._found:
            self._found[key] = None  # stays so if there is too much of it
            looking = _Looking(self._fold if careful else _as_written, deep=careful)
            self._found[key] = tuple(dict.fromkeys(looking.texts(argument, self._arguments)))
        found = self._found[key]
        if found is None:
            raise UndecidedError
        return found

    def _fold(self, key: str) -> str:
        folded = self._folded.get(key)
        if folded is None:
            folded = self._folded[key] = fold(self._comparable(key))
        return folded

    def _spelled(self, text: str) -> frozenset[str]:
        """All spellings of a text. Raises UndecidedError if there is too much of them."""
        if text not in self._spellings:
            self._spellings[text] = None  # stays so if there is too much of it
            self._spellings[text] = frozenset(self._spell(text))
        found = self._spellings[text]
        if found is None:
            raise UndecidedError
        return found

    def _spell(self, text: str) -> Iterator[str]:
        """Each spelling, made only once there is room for it; some of them twice."""
        read = self._read(text)
        plain = {_plain(self._comparable(one)) for one in read}
        for one in {*read, *plain}:
            self._take(len(one))
            yield from (one, one.strip())
            self._take(len(one))
            yield without_detours(one)
            for spelt in meanings(one):
                self._take(len(spelt))
                # A letter in another form may have hidden where a part of the address ends.
                yield spelt if one in plain else _plain(self._comparable(spelt))
                yield spelt
            if not one.isascii() and len(one) <= LONGEST_HOST:
                yield as_host(one)
        number = _number(text)
        if number is not None:
            yield number

    def _comparable(self, text: str) -> str:
        """The text. Raises UndecidedError if its usual form takes too long to find, or to read."""
        if text.isascii():
            return text
        letters = Counter(text)
        for char, count in letters.items():
            form = _plain(char)
            if len(form) > 1 or not unicodedata.is_normalized("NFKC", char):
                self._unusual -= count * len(form)
        if self._unusual < 0:
            raise UndecidedError
        if len(text) > MARKS and any(map(unicodedata.combining, letters)):
            marks = 0
            for char in text:
                marks = marks + 1 if unicodedata.combining(char) else 0
                if marks > MARKS:
                    raise UndecidedError
        return text

    def _take(self, characters: int) -> None:
        self._spelling -= characters
        if self._spelling < 0:
            raise UndecidedError

    def _read(self, text: str) -> tuple[str, ...]:
        """The text, and what it is without its escapes if it is an address.

        Raises UndecidedError where these are too many: to read them takes microseconds each.
        """
        if "%" not in text or not is_address(text):
            return (text,)
        if text not in self._unescaped:
            self._escapes -= text.count("%")
            if self._escapes < 0:
                raise UndecidedError
            self._unescaped[text] = unescaped(text)
        return (text, self._unescaped[text])


class _Looking:
    """One walk through arguments, which ends with UndecidedError when it gets too long."""

    def __init__(self, spell: Any, *, deep: bool) -> None:
        self._spell = spell
        self._deep = deep
        self._left = MOST
        self._seen: set[tuple[int, str]] = set()
        self._read: set[int] = set()

    def texts(self, argument: str, arguments: Mapping[str, Any]) -> Iterator[str]:
        """The texts of an argument, some of them twice."""
        waiting: list[tuple[str, Mapping[str, Any]]] = [(argument, arguments)]
        while waiting:
            rest, table = waiting.pop()
            head, dot, tail = rest.partition(".")
            whole, first = self._spell(rest), self._spell(head)
            for key, value in table.items():
                self._spend()
                spelt = self._spell(key)
                if spelt == whole or rest == "*":
                    yield from self._inside(value)
                if dot and spelt == first:
                    waiting += ((tail, inner) for inner in self._tables(value, tail))

    def _tables(self, value: Any, tail: str) -> Iterator[Mapping[str, Any]]:
        """The tables in a value that a rule goes on in, each once for each rest of its argument."""
        waiting = [value]
        while waiting:
            one = waiting.pop()
            self._spend()
            if not isinstance(one, (Mapping, list)) or (id(one), tail) in self._seen:
                continue
            self._seen.add((id(one), tail))
            if isinstance(one, Mapping):
                yield one
            if self._deep:
                waiting += one.values() if isinstance(one, Mapping) else one
            elif one is value and isinstance(one, list):
                waiting += (inner for inner in one if isinstance(inner, Mapping))

    def _inside(self, value: Any) -> Iterator[str]:
        """Every text inside a value; numbers, true, false and null as JSON writes them."""
        waiting = [value]
        while waiting:
            one = waiting.pop()
            self._spend()
            if isinstance(one, str):
                yield one
            elif not isinstance(one, (Mapping, list)):
                yield msgspec.json.encode(one).decode()
            elif id(one) not in self._read:
                self._read.add(id(one))
                if isinstance(one, Mapping):
                    yield from map(str, one)
                waiting += one.values() if isinstance(one, Mapping) else one

    def _spend(self) -> None:
        self._left -= 1
        if self._left < 0:
            raise UndecidedError


def _as_written(key: str) -> str:
    return key


@lru_cache(PATTERNS)
def _compiled(pattern: str) -> Any:
    return re.compile(translate(with_brackets(pattern))).match


def _plain(text: str) -> str:
    return unicodedata.normalize("NFKC", text).casefold()


def _number(text: str) -> str | None:
    """A number in one spelling, None for what is no number.

    >>> _number("22.0"), _number(" 2.2e1"), _number("022"), _number("0.50"), _number("v22")
    ('22', '22', '22', '0.5', None)
    """
    text = text.strip().lower()
    if len(text) > 2 * MARKS or not _NUMBER.fullmatch(text):
        return None
    number = Decimal(text)
    return format(number.normalize() if number else Decimal(0), "f")
