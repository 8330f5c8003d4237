"""Folders of servers and requests: gate_servers.jsonl and gate_requests.jsonl."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from interlock.supervisor.gate import SourceText


@dataclass(frozen=True)
class Request:
    """`groups`: every inner tuple needs one offered server; `right` empty: none is right."""

    id: str
    text: str
    right: frozenset[str]
    groups: tuple[frozenset[str], ...]
    lang: str
    source: str


@dataclass(frozen=True)
class Folder:
    """`texts` by server, `tools` with each server's number of tools."""

    texts: dict[str, SourceText]
    tools: dict[str, int]
    requests: tuple[Request, ...]


def _cards(row: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    card = row.get("card") or {}
    return {key: tuple(value) for key, value in card.items() if isinstance(value, list)}


def _text(row: Mapping[str, Any]) -> SourceText:
    tools = tuple((tool["name"], tool.get("description") or "") for tool in row["tools"])
    card = row.get("card") or {}
    said = [row.get("description") or "", *(text for text in card.values() if text)]
    described = "\n".join(text for text in said if isinstance(text, str))
    return SourceText(row["server"], row["name"], described, tools, _cards(row))


def _lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines() if line.strip()]


def read(folder: Path) -> Folder:
    """Read a folder; requests without an id get their number."""
    servers = _lines(folder / "gate_servers.jsonl")
    requests = tuple(
        Request(
            str(row.get("id", number)),
            row["request"],
            frozenset(row["servers"]),
            tuple(frozenset(group) for group in row.get("groups") or [row["servers"]] if group),
            row.get("lang", "en"),
            row.get("source", ""),
        )
        for number, row in enumerate(_lines(folder / "gate_requests.jsonl"))
    )
    return Folder(
        {row["server"]: _text(row) for row in servers},
        {row["server"]: len(row["tools"]) for row in servers},
        requests,
    )
