"""Notes of agents: small text files below the home, bounded, each replaced as a whole."""

from __future__ import annotations

import os
import tempfile
import threading
import unicodedata
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import quote, unquote

from interlock.bus.regular import regular

MAX_NOTES: Final = 200
MAX_NOTE: Final = 64 << 10
"""Bytes of one note."""
MAX_TITLE: Final = 80
"""Characters of a note's name; its file's name has up to three bytes for each byte of it."""
MAX_FILE_NAME: Final = 240
PATIENCE: Final = 10.0
"""Seconds that a write waits for the one before it."""
SUFFIX: Final = ".md"


class NoteError(ValueError):
    """What was asked for cannot be; the message is one sentence for a model."""


class Note(NamedTuple):
    """A note as a list shows it. `written` is in Unix seconds."""

    name: str
    size: int
    written: float


class Notes:
    """The notes of one folder. Calls read and write files; nothing else may write there.

    They may run in several threads: one write at a time, also where nobody waits for one any more.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._writing = threading.Lock()

    def all(self) -> list[Note]:
        """Return what there is, by name. Raises OSError."""
        found = []
        if self.folder.is_dir():
            with os.scandir(self.folder) as entries:
                for entry in entries:
                    if entry.name.endswith(SUFFIX) and entry.is_file(follow_symlinks=False):
                        about = entry.stat(follow_symlinks=False)
                        name = unquote(entry.name.removesuffix(SUFFIX))
                        found.append(Note(name, about.st_size, about.st_mtime))
        return sorted(found)

    def read(self, name: str) -> str:
        """Return a note's text. Raises NoteError if there is none of that name, OSError."""
        descriptor = None
        try:
            descriptor = regular(self._path(name), os.O_RDONLY | os.O_NOFOLLOW)
        except FileNotFoundError:
            known = ", ".join(note.name for note in self.all()[:20]) or "none"
            raise NoteError(f"There is no note {name!r}; there are: {known}.") from None
        with os.fdopen(descriptor, "rb") as file:
            return file.read(MAX_NOTE).decode(errors="replace")

    def write(self, name: str, text: str, append: bool) -> int:
        """Write a note, or with an empty text that is not appended remove it; return its bytes.

        Raises NoteError where a bound is passed, OSError; also as TimeoutError if the write before
        it does not end.
        """
        if not self._writing.acquire(timeout=PATIENCE):
            raise TimeoutError
        try:
            return self._write(name, text, append)
        finally:
            self._writing.release()

    def _write(self, name: str, text: str, append: bool) -> int:
        path = self._path(name)
        if not text and not append:
            path.unlink(missing_ok=True)
            return 0
        there = path.exists()
        if append and there:
            text = self.read(name) + text
        data = text.encode(errors="replace")
        if len(data) > MAX_NOTE:
            raise NoteError(f"The note would have {len(data)} bytes; the limit is {MAX_NOTE}.")
        if not there and len(self.all()) >= MAX_NOTES:
            raise NoteError(f"There are {MAX_NOTES} notes already; write an empty text to one.")
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=self.folder, prefix=".note-", delete=False) as file:
            try:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
                os.replace(file.name, path)
            except OSError:
                Path(file.name).unlink(missing_ok=True)
                raise
        return len(data)

    def _path(self, name: str) -> Path:
        """Return the file of a note. Raises NoteError for a name that no note can have."""
        plain = unicodedata.normalize("NFC", name).strip()
        file_name = quote(plain, safe=" ") + SUFFIX
        if not plain or len(plain) > MAX_TITLE or not plain.isprintable() or plain[0] == ".":
            raise NoteError(f"A note's name has 1 to {MAX_TITLE} characters and no dot in front.")
        if len(file_name) > MAX_FILE_NAME:
            raise NoteError("That name is too long for a file; use a shorter one.")
        return self.folder / file_name
