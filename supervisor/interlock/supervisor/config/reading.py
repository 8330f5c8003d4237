"""What of each file is in force: what it says now, what it said when it was trusted, or nothing."""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import Final

import msgspec

from interlock.bus.errors import ConfigError
from interlock.supervisor.config.content import parse
from interlock.supervisor.config.model import LayerFile, Loaded, Problem
from interlock.supervisor.config.text import BadFileError, read_bytes
from interlock.supervisor.config.trust import digest, effects, read_trust, trust_key
from interlock.supervisor.config.workspace import Candidate

TRUST_FILE: Final = "trust.json"
"""Name of the record of trusted files, in the home."""

MAX_UNTRUSTED: Final = 64 << 10
"""Bytes of an untrusted file that is looked into, only to say what it would do."""

MAX_EFFECT: Final = 200
"""Characters of what is told of one entry of it, and of its name."""

MAX_LISTED: Final = 50
"""Entries of an untrusted file that are told of one by one."""


ASKS: Final = "it may have forbidden something, so every capability asks"
ASKS_LATER: Final = (
    "it may have forbidden something, so from the next start on every capability asks"
)
"""The same where nothing is in force yet; a supervisor that runs goes on with what it has."""
_LASTS: Final = "what it said when it was trusted goes on"


class Reading:
    """State of one reading: what is trusted, what was in force before, and the problems so far.

    What a person trusted stays in force until a person changes the record of it: not a change of
    the file, its end, a link in its place or a damaged record takes away what it forbids.
    """

    def __init__(self, home: Path, previous: Loaded | None, trust_all: bool) -> None:
        self.problems: list[Problem] = []
        self.trust_all = trust_all
        self.incomplete = False
        """A file that should count does not, and nobody knows what it forbids."""
        self._before = {layer.file: layer for layer in previous.layers} if previous else {}
        self._record_lost = False
        self.trusted = self._read_record(home / TRUST_FILE, previous)
        """The record of trust that counts: the digest of each file."""

    def _read_record(self, record: Path, previous: Loaded | None) -> dict[str, str]:
        before = previous.trusted if previous is not None else {}
        try:
            trusted = read_trust(record)
            if trusted or not before or os.path.lexists(record):
                return trusted
            what = "is gone"
        except BadFileError as error:
            if not before:
                self._record_lost = True
                self._bad(record, error, "interlock trust")
                return {}
            what = "is damaged"
        message = (
            f"the record of trusted files {what}; what was trusted goes on until Interlock ends"
        )
        self._bad(record, BadFileError("trust_file", message), "interlock trust")
        return before

    def recorded(self, path: Path) -> bool:
        """Whether a person trusted the file there, as it is now or as it was before."""
        return not self.trust_all and bool(self._digest(path))

    def _digest(self, path: Path) -> str:
        """Return what is recorded of the file there, empty if nothing is.

        If a folder above has become a link to another place, of the file that is in force.
        """
        before = self._before.get(str(path))
        here = self.trusted.get(trust_key(path), "")
        return here or (self.trusted.get(before.key, "") if before is not None else "")

    def layer(self, candidate: Candidate) -> LayerFile | None:
        """Return what of this file is in force: its content, its earlier content, or nothing.

        Raises ConfigError if the file of `--config` cannot be read and has no earlier content.
        """
        path = candidate.path
        before = self._in_force(candidate)
        try:
            data = read_bytes(path)
            if data is None:
                if candidate.layer == "explicit":
                    raise BadFileError("unreadable", "there is no such file")
                return self._gone(candidate, before)
            key = "" if candidate.trusted else trust_key(path)
            counts = not key or self.trust_all or digest(data) == self.trusted.get(key)
            if not counts and len(data) > MAX_UNTRUSTED:
                self._too_large(path)
                self._changed(candidate, before)
                return before
            layer, notes = parse(path, data, candidate)
        except BadFileError as error:
            if candidate.layer == "explicit" and before is None:
                problem = _problem(path, error)
                raise ConfigError(f"{problem}.", code=error.code) from error
            self._bad(path, error)
            self._missing(candidate, before)
            return before
        self.problems += notes
        if counts:
            return msgspec.structs.replace(layer, key=key)
        self._untrusted(layer)
        self._changed(candidate, before)
        return before

    def aside(self, path: Path, folder: Path) -> None:
        """Tell of a file that would count in place of those in `folder` if it were trusted."""
        try:
            data = read_bytes(path)
            if data is None:
                return
            if len(data) > MAX_UNTRUSTED:
                self._too_large(path)
            else:
                self._untrusted(parse(path, data)[0])
        except BadFileError as error:
            self._bad(path, error)
        message = f"until this file is trusted, what is trusted in {folder} counts in its place"
        self._note(path, "nearer", message, f"interlock trust {shlex.quote(str(path))}")

    def _in_force(self, candidate: Candidate) -> LayerFile | None:
        """Return the earlier content of a file, unless a person took back its trust since."""
        before = self._before.get(str(candidate.path))
        if before is None or candidate.trusted or self.trusted.get(before.key) == before.digest:
            return before
        return None

    def _gone(self, candidate: Candidate, before: LayerFile | None) -> LayerFile | None:
        """Let what was trusted go on without its file; the end of a user's own file is his wish."""
        path = candidate.path
        if candidate.trusted or not self.recorded(path):
            return None
        revoke = f"interlock trust --revoke {shlex.quote(str(path))}"
        fix = f"Bring it back, or take back its trust: {revoke}"
        if self._missing(candidate, before):
            self._note(path, "gone", f"this file is trusted and gone; {ASKS}", fix)
        elif before is not None:
            self._note(path, "gone", f"this file is trusted and gone; {_LASTS}", fix)
        return before

    def _changed(self, candidate: Candidate, before: LayerFile | None) -> None:
        """Take a file that was trusted, but not as it is now, for one that is missing."""
        path, text = candidate.path, "this file was trusted and has changed"
        fix = f"interlock trust {shlex.quote(str(path))}"
        if not self._missing(candidate, before):
            if before is not None:
                self._note(path, "changed", f"{text}; {_LASTS}", fix)
        elif not self._record_lost:
            self._note(path, "changed", f"{text}; {ASKS}", fix)

    def _missing(self, candidate: Candidate, before: LayerFile | None) -> bool:
        """Note that nothing is known of a file that was to count and may have forbidden things.

        Returns whether that holds of this file.
        """
        counted = candidate.trusted or self._record_lost or self.recorded(candidate.path)
        if before is None and counted and candidate.layer != "mcp.json":
            self.incomplete = True
            return True
        return False

    def _note(self, path: Path, code: str, message: str, fix: str) -> None:
        problem = Problem(file=str(path), message=message, severity="warning", code=code, fix=fix)
        self.problems.append(problem)

    def _bad(self, path: Path, error: BadFileError, fix: str = "") -> None:
        self.problems.append(_problem(path, error, fix))

    def _too_large(self, path: Path) -> None:
        self._untrusted_note(str(path), "it is too large to tell what it would do")

    def _untrusted(self, layer: LayerFile) -> None:
        """Tell of each entry of a file that nobody has trusted as it is now."""
        listed = effects(layer.tables, brief=True) or [("", "do nothing")]
        for name, effect in listed[:MAX_LISTED]:
            self._untrusted_note(layer.file, f"it would {effect}", name)
        if len(listed) > MAX_LISTED:
            self._untrusted_note(layer.file, f"it has {len(listed) - MAX_LISTED} more entries")

    def _untrusted_note(self, file: str, what: str, name: str = "") -> None:
        what = what if len(what) <= MAX_EFFECT else f"{what[: MAX_EFFECT - 1]}…"
        self.problems.append(
            Problem(
                file=file,
                message=f"this file is not trusted as it is now; {what}",
                severity="warning",
                code="untrusted",
                fix=f"interlock trust {shlex.quote(file)}",
                entry=name if ":" in name and len(name) <= MAX_EFFECT else "",
                key=name[:MAX_EFFECT],
            )
        )


def _problem(path: Path, error: BadFileError, fix: str = "") -> Problem:
    return Problem(
        file=str(path),
        line=error.line,
        column=error.column,
        message=error.message,
        code=error.code,
        fix=fix,
    )
