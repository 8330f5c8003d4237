"""Finds the line of every key in TOML and JSON text that has already been parsed without error."""

from __future__ import annotations

import json
import re
import tomllib
from typing import Final

Path = tuple[str, ...]
Lines = dict[Path, int]

MAX_DEPTH: Final = 6
"""Keys deeper than this are reported at the line of the key above them."""

_BLANK = re.compile(r"(?:[ \t\r\n]+|#[^\n]*)*")
_KEY = re.compile(r"""[ \t]*(?:"((?:[^"\\\n]|\\.)*)"|'([^'\n]*)'|([A-Za-z0-9_-]+))[ \t]*(\.?)""")
_STRING = re.compile(
    r'"""(?:[^\\]|\\.)*?"{3,5}|\'\'\'.*?\'{3,5}|"(?:[^"\\\n]|\\.)*"|\'[^\'\n]*\'', re.DOTALL
)
_SCALAR = re.compile(r"[^,\]}#\n]*")
_JSON_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*+"?|[{}\[\],]', re.DOTALL)


def line_of(lines: Lines, path: Path) -> int:
    """Return the line of `path`, or of the closest key above it, 0 if none is known."""
    while path:
        if path in lines:
            return lines[path]
        path = path[:-1]
    return 0


def toml_lines(text: str) -> Lines:
    """Return the line of every key of valid TOML text; of mistaken text what could be found.

    >>> toml_lines("[a]\\nb = {c = 1}\\n")
    {('a',): 1, ('a', 'b'): 2, ('a', 'b', 'c'): 2}
    """
    scan = _TomlScan(text)
    try:
        scan.document()
    except (RecursionError, _LostError):
        pass  # What was found so far is still right; lines are a courtesy.
    return scan.lines


def json_lines(text: str) -> Lines:
    """Return the line of every key of JSON text; comments may confuse it, but never stop it."""
    lines: Lines = {}
    frames: list[tuple[bool, Path]] = []
    value: Path = ()
    key_next = False
    line, counted = 1, 0
    for match in _JSON_TOKEN.finditer(text):
        token = match[0]
        line += text.count("\n", counted, match.start())
        counted = match.start()
        if token == "{" or token == "[":
            frames.append((token == "{", value))
            key_next = token == "{"
        elif token == "}" or token == "]":
            if frames:
                frames.pop()
            key_next = False
        elif token == ",":
            key_next = bool(frames) and frames[-1][0]
        elif key_next and frames:
            key_next = False
            value = frames[-1][1]
            if len(value) < MAX_DEPTH:
                value = (*value, _json_text(token))
                lines.setdefault(value, line)
    return lines


def _json_text(token: str) -> str:
    try:
        return str(json.loads(token))
    except ValueError:
        return token[1:-1]


class _LostError(Exception):
    """The text is not what the scanner expects here."""


class _TomlScan:
    """One pass over TOML text; knows just enough of the grammar to skip values."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.lines: Lines = {}
        self._counts: dict[Path, int] = {}
        self._line = 1
        self._counted = 0

    def document(self) -> None:
        """Read tables and their keys to the end of the text."""
        table: Path = ()
        while self._skip_blank():
            if self.text[self.at] == "[":
                many = self.text.startswith("[[", self.at)
                self.at += 2 if many else 1
                table = self._key(())
                if many:  # the tables of an array count from 1
                    self._counts[table] = self._counts.get(table, 0) + 1
                    table = (*table, str(self._counts[table]))
                    self.lines.setdefault(table, self._line)
                self.at = self._find("]")
                while self.text.startswith("]", self.at):
                    self.at += 1
            else:
                self._pair(table)

    def _pair(self, above: Path) -> None:
        path = self._key(above)
        if not self.text.startswith("=", self.at):
            raise _LostError
        self.at += 1
        self._value(path)

    def _key(self, above: Path) -> Path:
        """Read a dotted key, note its line and return its whole path."""
        self._line += self.text.count("\n", self._counted, self.at)
        self._counted = self.at
        path = above
        while True:
            match = _KEY.match(self.text, self.at)
            if match is None:
                raise _LostError
            self.at = match.end()
            path = (*path, _toml_text(match))
            if len(path) <= MAX_DEPTH:
                self.lines.setdefault(path, self._line)
            if not match[4]:
                return path

    def _value(self, path: Path) -> None:
        if not self._skip_blank():
            raise _LostError
        opening = self.text[self.at]
        if opening == "[":
            self._items("]", path, pairs=False)
        elif opening == "{":
            self._items("}", path, pairs=True)
        else:
            pattern = _STRING if opening in "\"'" else _SCALAR
            match = pattern.match(self.text, self.at)
            if match is None or match.end() == self.at:
                raise _LostError
            self.at = match.end()

    def _items(self, closing: str, path: Path, *, pairs: bool) -> None:
        self.at += 1
        count = 0
        while self._skip_blank():
            if self.text.startswith(closing, self.at):
                self.at += 1
                return
            if self.text.startswith(",", self.at):
                self.at += 1
            elif pairs:
                self._pair(path)
            else:
                count += 1
                self._value((*path, str(count)))
        raise _LostError

    def _skip_blank(self) -> bool:
        """Skip white space and comments; return False at the end of the text."""
        match = _BLANK.match(self.text, self.at)
        if match is not None:
            self.at = match.end()
        return self.at < len(self.text)

    def _find(self, what: str) -> int:
        found = self.text.find(what, self.at)
        if found < 0:
            raise _LostError
        return found


def _toml_text(match: re.Match[str]) -> str:
    basic, literal, bare = match[1], match[2], match[3]
    if basic is None:
        return str(literal if literal is not None else bare)
    if "\\" not in basic:
        return str(basic)
    try:
        return str(tomllib.loads(f'k = "{basic}"')["k"])
    except ValueError:
        return str(basic)
