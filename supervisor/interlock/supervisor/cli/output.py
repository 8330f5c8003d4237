"""What commands write: documents and text to standard output, words to people to standard error."""

from __future__ import annotations

import io
import json
import os
import re
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

import click
import msgspec

from interlock.bus.endpoints import Home, default_home
from interlock.bus.errors import InterlockError

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")
"""Also what starts a line, or changes the direction of the text after it."""
_CODES: Final = {"red": "31", "green": "32", "yellow": "33", "cyan": "36", "dim": "2", "bold": "1"}


class ReaderGoneError(Exception):
    """Whoever read standard output has closed it; the command has nothing left to do."""


class OutputError(InterlockError):
    """Standard output takes nothing more, most often because a disk is full."""

    code = "output"


class Options:
    """The options that stand before or after every command."""

    def __init__(self, as_json: bool = False) -> None:
        self.chosen_home: Path | None = None
        self.verbose = False
        self.json = as_json
        self.color = "NO_COLOR" not in os.environ or not os.environ["NO_COLOR"]

    @property
    def home(self) -> Path:
        """The folder below which everything lives."""
        return default_home() if self.chosen_home is None else self.chosen_home

    @property
    def place(self) -> Home:
        """The home with its files. Raises UsageError for a path that no home can have."""
        return Home(self.home)


def options() -> Options:
    """Return the options of the command that runs."""
    found = click.get_current_context().find_object(Options)
    assert found is not None
    return found


def prepare_streams() -> None:
    """Make sure that no character stops the output, and that each stream is open and waits.

    A descriptor that is closed would be given to the next socket or file, which then gets the
    words of whoever writes to it. What is closed for writing leads nowhere instead; standard input
    stays None, for a command that needs it has to say so.
    """
    for descriptor in range(3):
        try:
            # A stream that does not block loses what finds no room, and ends before its text does.
            os.set_blocking(descriptor, True)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # The lowest that is free.
    if sys.stdout is None:
        sys.stdout = _writer(1)
    if sys.stderr is None:
        sys.stderr = _writer(2)
    for stream, errors in (
        (sys.stdout, "backslashreplace"),
        (sys.stderr, "backslashreplace"),
        (sys.stdin, "replace"),
    ):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors=errors)


def _writer(descriptor: int) -> io.TextIOWrapper:
    return open(descriptor, "w", encoding="utf-8", closefd=False)


def discard_stdout() -> None:
    """Send what is still to be written nowhere, because it cannot be written."""
    _discard(1)


def _discard(descriptor: int) -> None:
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, descriptor)
    os.close(nowhere)


def clean(text: object) -> str:
    """Return text without characters that could steer a terminal.

    >>> clean("a\\x1b[31mb")
    'a\\\\x1b[31mb'
    """
    return _CONTROL.sub(lambda match: _written(match[0]), str(text))


def exact(text: object) -> str:
    """Return text on one line with all that cannot be seen written out: for people who decide.

    >>> exact("rm\\u202e x\\ny")
    'rm\\\\u202e x\\\\ny'
    """
    return "".join(char if char.isprintable() else _written(char) for char in str(text))


def _written(char: str) -> str:
    return char.encode("unicode_escape").decode()


def one_line(text: object) -> str:
    """Return text for a cell of a table."""
    return clean(" ".join(str(text).split()))


def cut(text: object, limit: int) -> str:
    """Return the beginning of text, on one line, of at most `limit` characters; `…` ends it if cut.

    >>> cut("a worker", 20), cut("a worker", 4)
    ('a worker', 'a w…')
    """
    whole = one_line(text)
    return whole if len(whole) <= limit else f"{whole[: limit - 1].rstrip()}…"


def write(text: str, *, end: str = "\n") -> None:
    """Write text to standard output at once.

    Raises ReaderGoneError if nobody reads it, OutputError if it cannot be written.
    """
    try:
        sys.stdout.write(text + end)
        sys.stdout.flush()
    except BrokenPipeError:
        raise ReaderGoneError from None
    except OSError as error:
        discard_stdout()
        raise OutputError(f"Standard output cannot be written: {error.strerror}.") from None


def offer(text: str) -> None:
    """Write text to standard output if that is possible."""
    try:
        write(text)
    except (ReaderGoneError, OutputError):
        discard_stdout()


def document(value: Any) -> None:
    """Write one JSON document on one line to standard output.

    Raises as `write`. Bytes of a path that are no text become the escapes that Python has for them.
    """
    write(_json_text(value))


def _json_text(value: Any) -> str:
    try:
        return msgspec.json.encode(value).decode()
    except UnicodeEncodeError:
        # Names of files may hold any byte. All that is not ASCII is escaped, they are too.
        return json.dumps(msgspec.to_builtins(value))


def note(text: str) -> None:
    """Write a line for people to standard error, if that is possible."""
    _tell(clean(text) + "\n")


def _tell(text: str) -> None:
    try:
        sys.stderr.write(text)
        sys.stderr.flush()
    except OSError:
        _discard(2)  # What was said before is lost, too; nobody can be told.


def agreed(question: str) -> bool:
    """Ask a person for a yes, on standard error, and read a line of standard input."""
    _tell(f"{exact(question)} [y/N] ")
    return sys.stdin is not None and means_yes(sys.stdin.readline())


def means_yes(line: str) -> bool:
    """Tell whether a line that was typed is a yes."""
    return line.strip().lower() in ("y", "yes")


def failure(chosen: Options, code: str, message: str) -> None:
    """Tell of a failure: a sentence on standard error, and a document where JSON is wanted."""
    if chosen.json:
        offer(_json_text({"code": code, "message": message}))
    note(message)


def styled(text: str, *styles: str) -> str:
    """Return text in colour if standard output is a terminal that may have it."""
    if not styles or not options().color or not sys.stdout.isatty():
        return text
    return f"\x1b[{';'.join(_CODES[style] for style in styles)}m{text}\x1b[0m"


def table(
    heads: Sequence[str], rows: Iterable[Sequence[object]], *, right: Iterable[str] = ()
) -> list[str]:
    """Return aligned lines, heads first; columns named in `right` are aligned there."""
    cells = [[one_line(cell) for cell in row] for row in rows]
    widths = [max([len(head), *(len(row[i]) for row in cells)]) for i, head in enumerate(heads)]
    to_right = {i for i, head in enumerate(heads) if head in set(right)}
    lines = []
    for row in [list(heads), *cells]:
        parts = [
            cell.rjust(width) if i in to_right else cell.ljust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(parts).rstrip())
    return lines


def size(count: float | None) -> str:
    """Return bytes for people.

    >>> size(48 * 1024 * 1024)
    '48 MB'
    """
    if not count:
        return "-"
    amount = count / (1 << 20)
    return f"{amount:.0f} MB" if amount < 1024 else f"{amount / 1024:.1f} GB"


def span(seconds: float) -> str:
    """Return a duration for people.

    >>> span(192), span(0.4)
    ('3m12s', '0s')
    """
    whole = max(0, int(seconds))
    days, rest = divmod(whole, 86400)
    hours, rest = divmod(rest, 3600)
    minutes, left = divmod(rest, 60)
    if days:
        return f"{days}d{hours}h"
    if hours:
        return f"{hours}h{minutes:02}m"
    return f"{minutes}m{left:02}s" if minutes else f"{left}s"


def lasted(seconds: float) -> str:
    """Return how long something took, for people.

    >>> lasted(0.087), lasted(2.44), lasted(192)
    ('87 ms', '2.4s', '3m12s')
    """
    if seconds < 1:
        return f"{max(0.0, seconds) * 1000:.0f} ms"
    return f"{seconds:.1f}s" if seconds < 10 else span(seconds)


def plain(value: object) -> str:
    """Return the value of a field for people.

    >>> plain(("mcp:a/b", "mcp:a/c")), plain({"a": 1})
    ('mcp:a/b,mcp:a/c', 'a:1')
    """
    if isinstance(value, list | tuple):
        return ",".join(map(str, value))
    if isinstance(value, dict):
        return ",".join(f"{key}:{one}" for key, one in value.items())
    return str(value)


def counted(count: int, one: str, many: str) -> str:
    """Return a number with its noun.

    >>> counted(1, "thing needs", "things need"), counted(2, "thing needs", "things need")
    ('1 thing needs', '2 things need')
    """
    return f"{count} {one if count == 1 else many}"
