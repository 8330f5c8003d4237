"""Files to text, and text to tables: every way in which a file as a whole can be bad ends here."""

from __future__ import annotations

import codecs
import json
import os
import re
import stat
import time
import tomllib
from pathlib import Path
from typing import Any, Final, TypeVar

from interlock.bus.errors import ConfigError

MAX_FILE: Final = 1 << 20
"""Bytes of one configuration file."""
TRIES: Final = 20
"""Readings of a file that is being written."""
PAUSE: Final = 0.02
"""Seconds between them."""

MAX_DEPTH: Final = 32
"""Tables and lists inside each other; what comes later walks them one call a level."""

_UTF16: Final = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_TOO_DEEP: Final = "the values are nested too deeply"
_LONGEST: Final = 300
"""Characters of a parser's message; it may quote what stands in the file."""
_TOML_PLACE = re.compile(r"\(at (?:line (\d+), column (\d+)|end of document)\)$")
# Files come from anybody, and a pattern holds the interpreter until it is done: none of these reads
# a character twice. So what is not closed is taken to its end, and nothing is given back (`*+`).
_JSON_STRING: Final = r'"(?:[^"\\\n]|\\.)*+"?'
_COMMENT = re.compile(rf"{_JSON_STRING}|//[^\n]*+|/\*(?:[^*]|\*(?!/))*+(?:\*/)?", re.DOTALL)
_TRAILING_COMMA = re.compile(rf"{_JSON_STRING}|,(?=\s*+[}}\]])", re.DOTALL)
_TOML_TOKEN = re.compile(
    r"(?P<skip>#[^\n]*+|[ \t]++"
    r'|"""(?:[^"\\]|\\.|"{1,2}(?!"))*+(?:"{3,5})?|\'\'\'(?:[^\']|\'{1,2}(?!\'))*+(?:\'{3,5})?)'
    r'|(?P<key>"(?:[^"\\\n]|\\.)*+"?|\'[^\'\n]*+\'?|[A-Za-z0-9_-]++)'
    r"|(?P<dot>\.)|.",
    re.DOTALL,
)

_HALF: Final = re.compile("[\ud800-\udfff]")
_HALF_WRITTEN: Final = re.compile(r"\\u[dD][89a-fA-F]")

_T = TypeVar("_T")


class BadFileError(ConfigError):
    """A file cannot be used at all; `code` is the code of the Problem that tells of it."""

    def __init__(self, code: str, message: str, line: int = 0, column: int = 0) -> None:
        super().__init__(message, code=code)
        self.line = line
        self.column = column


def read_bytes(path: Path) -> bytes | None:
    """Return what the file holds, None if there is none.

    Never waits for long: a pipe or device in place of a file is refused, and a file that changes
    while it is read is read again a few times. Raises BadFileError.
    """
    for _ in range(TRIES):
        whole, data = _read(path)
        if whole:
            return data
        time.sleep(PAUSE)
    raise BadFileError("unreadable", "the file is being written all the time")


def _read(path: Path) -> tuple[bool, bytes | None]:
    """Return whether the file stayed as it is while it was read, and what it holds."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return True, None
    except (OSError, ValueError) as error:
        raise BadFileError("unreadable", f"the file cannot be opened: {_why(error)}") from error
    try:
        before = os.fstat(descriptor)
        if not stat.S_ISREG(before.st_mode):
            raise BadFileError("unreadable", "this is not a regular file")
        with open(descriptor, "rb", closefd=False) as file:
            data = file.read(MAX_FILE + 1)
        after = os.fstat(descriptor)
    except OSError as error:
        raise BadFileError("unreadable", f"the file cannot be read: {_why(error)}") from error
    finally:
        os.close(descriptor)
    if len(data) > MAX_FILE:
        raise BadFileError("too_large", "the file is larger than 1 MiB")
    whole = (before.st_mtime_ns, before.st_size) == (after.st_mtime_ns, after.st_size)
    return whole, data


def decode(data: bytes) -> str:
    """Return the text with line feeds only; marks of UTF-8 and UTF-16 are understood.

    Raises BadFileError with the place of the first byte that is not text.
    """
    encoding = "utf-16" if data.startswith(_UTF16) else "utf-8-sig"
    try:
        text = data.decode(encoding)
    except UnicodeDecodeError as error:
        line, column = _position(data[: error.start].decode("latin-1"))
        message = f"byte 0x{data[error.start]:02x} is not {encoding[:6].upper().rstrip('-')} text"
        raise BadFileError(
            "encoding", f"{message}; save the file as UTF-8", line, column
        ) from error
    text = text.replace("\r\n", "\n")
    if "\0" in text:
        line, column = _position(text[: text.index("\0")])
        raise BadFileError("encoding", "there is a NUL character here; remove it", line, column)
    return text


def parse_toml(text: str) -> dict[str, Any]:
    """Return the tables of TOML text. Raises BadFileError with the place of the mistake."""
    if text.count(".") > MAX_DEPTH:
        _check_dotted_keys(text)
    try:
        return _sound(tomllib.loads(text))
    except RecursionError as error:
        raise BadFileError("syntax", _TOO_DEEP) from error
    except ValueError as error:
        message = str(error)
        place = _TOML_PLACE.search(message)
        line, column = 0, 0
        if place is not None:
            message = message[: place.start()].rstrip()
            ends = place[1] is None
            line, column = _position(text.rstrip()) if ends else (int(place[1]), int(place[2]))
        raise BadFileError(
            "syntax", f"this is not valid TOML: {_plain(message)}", line, column
        ) from error


def _check_dotted_keys(text: str) -> None:
    """Refuse keys such as `a.a.a.a`, on which the parser would take quadratic time."""
    parts = 0
    for token in _TOML_TOKEN.finditer(text):
        if token.lastgroup == "key":
            parts = max(parts, 1)
        elif token.lastgroup == "dot":
            parts += 1
            if parts > MAX_DEPTH:
                line, column = _position(text[: token.start()])
                raise BadFileError("syntax", _TOO_DEEP, line, column)
        elif token.lastgroup != "skip":
            parts = 0


def parse_json(text: str) -> tuple[Any, bool]:
    """Return the JSON document and whether comments or trailing commas had to be taken out first.

    Raises BadFileError with the place of the mistake.
    """
    if not text.strip():
        return {}, False
    try:
        return _whole_texts(_sound(json.loads(text), halves=True), text), False
    except RecursionError as error:
        raise BadFileError("syntax", _TOO_DEEP) from error
    except ValueError as error:
        first = error
    bare = _TRAILING_COMMA.sub(_blank, _COMMENT.sub(_blank, text))
    try:
        return _whole_texts(_sound(json.loads(bare), halves=True), text), True
    except RecursionError as error:
        raise BadFileError("syntax", _TOO_DEEP) from error
    except json.JSONDecodeError as error:
        message = f"this is not valid JSON: {_plain(error.msg)}"
        raise BadFileError("syntax", message, error.lineno, error.colno) from error
    except ValueError as error:
        raise BadFileError("syntax", f"this is not valid JSON: {_plain(str(first))}") from error


def _mended(value: Any) -> Any:
    """Return JSON with NUL for each half of a character, which only the entry that has it misses.

    No process, header or name can carry a NUL, so it is refused where it stands.
    """
    if isinstance(value, str):
        return value if _encodes(value) else _HALF.sub("\0", value)
    if isinstance(value, list):
        return [_mended(one) for one in value]
    if isinstance(value, dict):
        return {_mended(key): _mended(one) for key, one in value.items()}
    return value


def _whole_texts(document: Any, text: str) -> Any:
    return _mended(document) if _HALF_WRITTEN.search(text) else document


def _sound(document: _T, *, halves: bool = False) -> _T:
    """Return a document that every later step can walk and pass on. Raises BadFileError.

    `halves`: halves of characters are nothing to refuse yet.
    """
    level: list[Any] = [document]
    for _ in range(MAX_DEPTH):
        below: list[Any] = []
        for value in level:
            if isinstance(value, dict):
                below += value
                below += value.values()
            elif isinstance(value, list):
                below += value
            elif not halves and isinstance(value, str) and not _encodes(value):
                raise BadFileError("encoding", "a text holds half of a character (a lone \\ud...)")
        if not below:
            return document
        level = below
    raise BadFileError("syntax", _TOO_DEEP)


def _encodes(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _blank(match: re.Match[str]) -> str:
    """Return a string literal as it is, anything else as blanks that keep lines and columns."""
    found = match[0]
    unclosed = found.startswith("/*") and not found.endswith("*/", 2)
    return found if found.startswith('"') or unclosed else re.sub(r"[^\n]", " ", found)


def _position(before: str) -> tuple[int, int]:
    """Return line and column, from 1, of what follows `before`."""
    return before.count("\n") + 1, len(before) - before.rfind("\n")


def _plain(message: str) -> str:
    """Return a parser's message as the second half of a sentence."""
    message = message.strip().rstrip(".")[:_LONGEST] or "unknown mistake"
    return message[0].lower() + message[1:]


def _why(error: OSError | ValueError) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error)
