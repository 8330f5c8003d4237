"""Lays the tables of all layers over each other and keeps where every key came from; pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from interlock.supervisor.config.lines import Path, line_of
from interlock.supervisor.config.meant import MOST_UNKNOWN, SECTIONS, section_meant
from interlock.supervisor.config.model import LayerFile


class Merged(msgspec.Struct, kw_only=True):
    """All sections after merging; `places` has the layer that set each key path last."""

    sections: dict[str, dict[str, Any]]
    places: dict[Path, LayerFile]
    shadowed: list[Path]
    """Entries of a `.mcp.json` that an entry of ours replaces."""
    misplaced: list[tuple[LayerFile, str, Any]]
    """Top-level keys that are no section, or hold no table: layer, key, value."""
    more: list[tuple[LayerFile, int]]
    """How many of a layer are too many to be looked at."""

    def lost(self) -> frozenset[str]:
        """The sections of which some layer holds something else than a table, or misspells them."""
        meant = (key if key in SECTIONS else section_meant(key) for _, key, _ in self.misplaced)
        found = frozenset(section for section in meant if section)
        return found.union(SECTIONS) if self.more else found

    def place(self, path: Path) -> tuple[LayerFile | None, int]:
        """Return the layer and line of a key path or of the closest key above it."""
        above = path
        while above:
            layer = self.places.get(above)
            if layer is not None:
                return layer, line_of(layer.lines, path)
            above = above[:-1]
        return None, 0


def merge(layers: Iterable[LayerFile]) -> Merged:
    """Merge layers, weakest first, table by table; a later layer wins key by key.

    An entry of `.mcp.json` is replaced as a whole by an entry of ours that says how to connect.
    """
    merged = Merged(
        sections={name: {} for name in SECTIONS}, places={}, shadowed=[], misplaced=[], more=[]
    )
    for layer in layers:
        unknown = 0
        for key, value in layer.tables.items():
            if key not in SECTIONS or not isinstance(value, dict):
                unknown += 1
                if unknown <= MOST_UNKNOWN or key in SECTIONS:
                    merged.misplaced.append((layer, key, value))
                continue
            if key == "mcp_servers":
                _drop_shadowed(merged, layer, value)
            _lay(merged, layer, merged.sections[key], value, (key,))
        if unknown > MOST_UNKNOWN:
            merged.more.append((layer, unknown - MOST_UNKNOWN))
    return merged


def _drop_shadowed(merged: Merged, layer: LayerFile, servers: dict[str, Any]) -> None:
    present = merged.sections["mcp_servers"]
    for name, entry in servers.items():
        below = merged.places.get(("mcp_servers", name))
        if below is None or below.layer != "mcp.json" or layer.layer == "mcp.json":
            continue
        if isinstance(entry, dict) and not {"command", "url"}.isdisjoint(entry):
            for path in _paths(present.pop(name), ("mcp_servers", name)):
                merged.places.pop(path, None)
            merged.shadowed.append(("mcp_servers", name))


def _paths(value: Any, path: Path) -> Iterator[Path]:
    """Yield the path of a value and of everything in it."""
    yield path
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _paths(inner, (*path, key))


def _lay(
    merged: Merged, layer: LayerFile, under: dict[str, Any], over: dict[str, Any], path: Path
) -> None:
    for key, value in over.items():
        where = (*path, key)
        merged.places[where] = layer
        if isinstance(value, dict):
            below = under.get(key)
            table: dict[str, Any] = below if isinstance(below, dict) else {}
            under[key] = table
            _lay(merged, layer, table, value, where)
        else:
            under[key] = value
