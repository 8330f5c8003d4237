"""What one file of configuration says: its tables, and what is odd about it; pure."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from interlock.supervisor.config import dotmcp
from interlock.supervisor.config.lines import json_lines, toml_lines
from interlock.supervisor.config.model import LayerFile, Problem
from interlock.supervisor.config.text import decode, parse_json, parse_toml
from interlock.supervisor.config.trust import digest
from interlock.supervisor.config.workspace import Candidate

MAX_KEY: Final = 200
"""Characters that are told of a key."""

_TOLD: Final = 50
"""Keys without effect that are told of one by one."""


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
            key=".".join(("mcp_servers", *key))[:MAX_KEY],
            message="tier has no effect in .mcp.json; write it into interlock.toml",
            severity="warning",
            code="unknown_key",
        )
        for key in found[:_TOLD]
    ]
    if len(found) > _TOLD:
        message = f"tier has no effect in .mcp.json; it stands there {len(found)} times"
        notes.append(Problem(file=file, message=message, severity="warning", code="unknown_key"))
    return notes
