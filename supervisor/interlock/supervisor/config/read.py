"""Reads all layers of configuration into one `Loaded`."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from interlock.bus.errors import ConfigError
from interlock.supervisor.config import dotmcp
from interlock.supervisor.config.keep import keep_entries
from interlock.supervisor.config.lines import json_lines, toml_lines
from interlock.supervisor.config.merge import merge
from interlock.supervisor.config.model import LayerFile, Loaded, Problem, Settings
from interlock.supervisor.config.text import (
    BadFileError,
    decode,
    parse_json,
    parse_toml,
    read_bytes,
)
from interlock.supervisor.config.trust import digest, effects, read_trust, trust_key
from interlock.supervisor.config.validate import validate
from interlock.supervisor.config.workspace import Candidate, candidates

TRUST_FILE = "trust.json"
"""Name of the record of trusted files, in the home."""

MAX_UNTRUSTED = 64 << 10
"""Bytes of an untrusted file that is looked into, only to say what it would do."""

MAX_EFFECT = 200
"""Characters of what is told of one entry of it, and of its name."""

MAX_NAMED = 50
"""Entries of an untrusted file that are told of one by one."""

_BUILT_IN = LayerFile(layer="built-in", file="", digest="", tables={"agents": {"main": {}}})


def load(
    home: Path,
    workspace: Path | None,
    explicit: Path | None,
    environ: Mapping[str, str],
    previous: Loaded | None = None,
    *,
    trust_all: bool = False,
) -> Loaded:
    """Read every layer that exists and return what is in force, with all problems.

    `workspace` is the folder to look from, upwards, for a workspace's files; None = no workspace.
    `explicit` is the file of `--config`. `previous` is the reading that is in force now: a file
    that has become unreadable, or that changed without being trusted again, keeps its earlier
    content, and so does a single entry that has a mistake now. `trust_all` is for checking:
    everything counts as trusted. Never raises for what files contain; raises ConfigError if
    `explicit` itself cannot be read and has no earlier content.
    """
    found = candidates(workspace, explicit, environ)
    reading = _Reading(home, previous, trust_all)
    layers = [_BUILT_IN]
    for candidate in found:
        layer = reading.layer(candidate)
        if layer is not None:
            layers.append(layer)
    folder = str(workspace or home)
    merged = merge(layers)
    settings, problems = validate(merged, folder, incomplete=reading.incomplete)
    if previous is not None:
        settings, problems = keep_entries(previous, merged, layers, settings, problems)
    return Loaded(
        settings=settings,
        problems=tuple(reading.problems + problems),
        files=(*(candidate.path for candidate in found), home / TRUST_FILE),
        layers=tuple(layers[1:]),
    )


def check_file(path: Path) -> tuple[Settings, tuple[Problem, ...]]:
    """Return what one file read alone says, and its problems; none if it is in order.

    Raises ConfigError if it cannot be read at all.
    """
    nowhere = path.parent / ".interlock-check"
    alone = Candidate(path.absolute(), "explicit", True)
    layer = _Reading(nowhere, None, True).layer(alone)
    layers = [_BUILT_IN] if layer is None else [_BUILT_IN, layer]
    settings, problems = validate(merge(layers), str(path.parent))
    return settings, tuple(problems)


def parse(
    path: Path, data: bytes, layer: Candidate | None = None
) -> tuple[LayerFile, list[Problem]]:
    """Return the tables of a file's content, and what is odd about it.

    Raises BadFileError if nothing can be made of it.
    """
    kind = layer.layer if layer is not None else "explicit"
    text = decode(data)
    notes: list[Problem] = []
    if path.suffix == ".json":
        document, repaired = parse_json(text)
        entries = dotmcp.servers(document)
        tables: dict[str, Any] = {
            "mcp_servers": {name: dotmcp.entry_table(entry) for name, entry in entries.items()}
        }
        depth = len(dotmcp.wrapper_of(document))
        lines = {
            ("mcp_servers", *key[depth:]): line
            for key, line in json_lines(text).items()
            if len(key) > depth
        }
        notes += _without_effect(str(path), entries, lines)
        if repaired:
            message = "comments or trailing commas are not JSON; other programs may refuse the file"
            notes.append(
                Problem(file=str(path), message=message, severity="warning", code="comments")
            )
    else:
        tables, lines = parse_toml(text), toml_lines(text)
    content = LayerFile(layer=kind, file=str(path), digest=digest(data), tables=tables, lines=lines)
    return content, notes


def _without_effect(
    file: str, entries: Mapping[str, Any], lines: Mapping[tuple[str, ...], int]
) -> list[Problem]:
    """Tell of what a shared file says about approval, which counts in our own files alone."""
    found = [(name, *key) for name, entry in entries.items() for key in dotmcp.approvals(entry)]
    notes = [
        Problem(
            file=file,
            line=lines.get(("mcp_servers", *key), 0),
            key=".".join(("mcp_servers", *key))[:MAX_EFFECT],
            message="tier has no effect in .mcp.json; write it into interlock.toml",
            severity="warning",
            code="unknown_key",
        )
        for key in found[:MAX_NAMED]
    ]
    if len(found) > MAX_NAMED:
        message = f"tier has no effect in .mcp.json; it stands there {len(found)} times"
        notes.append(Problem(file=file, message=message, severity="warning", code="unknown_key"))
    return notes


class _Reading:
    """State of one reading: what is trusted, what was in force before, and the problems so far."""

    def __init__(self, home: Path, previous: Loaded | None, trust_all: bool) -> None:
        self.problems: list[Problem] = []
        self.trust_all = trust_all
        self.before = {layer.file: layer for layer in previous.layers} if previous else {}
        self.trusted: dict[str, str] = {}
        self.incomplete = False
        """A file that should count does not, and nobody knows what it forbids."""
        self._record_lost = False
        try:
            self.trusted = read_trust(home / TRUST_FILE)
        except BadFileError as error:
            self._record_lost = True
            fix = "interlock trust"
            self._bad(home / TRUST_FILE, error, fix)

    def layer(self, candidate: Candidate) -> LayerFile | None:
        """Return what of this file is in force: its content, its earlier content, or nothing."""
        path = candidate.path
        recorded = self.trusted.get(trust_key(path), "")
        before = self.before.get(str(path))
        if before is not None and not candidate.trusted and before.digest != recorded:
            before = None
        try:
            data = read_bytes(path)
            if data is None:
                if candidate.layer == "explicit":
                    raise BadFileError("unreadable", "there is no such file")
                return None
            counts = candidate.trusted or self.trust_all or digest(data) == recorded
            if not counts and len(data) > MAX_UNTRUSTED:
                self._untrusted_note(str(path), "it is too large to tell what it would do")
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
            return layer
        self._untrusted(layer)
        self._changed(candidate, before)
        return before

    def _changed(self, candidate: Candidate, before: LayerFile | None) -> None:
        """Take a file that was trusted, but not as it is now, for one that is missing."""
        if self._missing(candidate, before) and not self._record_lost:
            what = "what was trusted may have forbidden something, so every capability asks"
            self._untrusted_note(str(candidate.path), what)

    def _missing(self, candidate: Candidate, before: LayerFile | None) -> bool:
        """Note that nothing is known of a file that was to count and may have forbidden things.

        Returns whether that holds of this file.
        """
        counted = (
            candidate.trusted or self._record_lost or trust_key(candidate.path) in self.trusted
        )
        if before is None and counted and candidate.layer != "mcp.json":
            self.incomplete = True
            return True
        return False

    def _bad(self, path: Path, error: BadFileError, fix: str = "") -> None:
        self.problems.append(_problem(path, error, fix))

    def _untrusted(self, layer: LayerFile) -> None:
        """Tell of each entry of a file that nobody has trusted as it is now."""
        listed = effects(layer.tables, brief=True) or [("", "do nothing")]
        for name, effect in listed[:MAX_NAMED]:
            self._untrusted_note(layer.file, f"it would {effect}", name)
        if len(listed) > MAX_NAMED:
            self._untrusted_note(layer.file, f"it has {len(listed) - MAX_NAMED} more entries")

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
