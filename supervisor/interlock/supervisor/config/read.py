"""Reads all layers of configuration into one `Loaded`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from interlock.supervisor.config.keep import keep_entries
from interlock.supervisor.config.merge import merge
from interlock.supervisor.config.mistyped import written
from interlock.supervisor.config.model import LayerFile, Loaded
from interlock.supervisor.config.reading import TRUST_FILE, Reading
from interlock.supervisor.config.validate import validate
from interlock.supervisor.config.workspace import Candidate, places

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
    that has become unreadable, or that changed or went without a person's word, keeps its earlier
    content, and so does a single entry that has a mistake now. `trust_all` is for checking:
    everything counts as trusted. Never raises for what files contain; raises ConfigError if
    `explicit` itself cannot be read and has no earlier content.
    """
    reading = Reading(home, previous, trust_all)
    found = places(workspace, explicit, environ, reading.recorded)
    layers = [_BUILT_IN]
    for candidate in found.counting:
        layer = reading.layer(candidate)
        if layer is not None:
            layers.append(layer)
    for path in found.aside:
        reading.aside(path, found.folder)
    folder = str(workspace or home)
    merged = merge(layers)
    settings, problems = validate(merged, folder, incomplete=reading.incomplete)
    if previous is not None:
        settings, problems = keep_entries(
            previous, merged, layers, settings, problems, incomplete=reading.incomplete
        )
    return Loaded(
        settings=settings,
        problems=tuple(reading.problems + problems),
        files=(*(one.path for one in found.counting), *found.aside, home / TRUST_FILE),
        layers=tuple(layers[1:]),
        trusted=reading.trusted,
        written=written(settings, merged),
    )


def check_file(path: Path) -> Loaded:
    """Return what one file read alone says, and its problems; none if it is in order.

    Raises ConfigError if it cannot be read at all.
    """
    nowhere = path.parent / ".interlock-check"
    alone = Candidate(path.absolute(), "explicit", True)
    layer = Reading(nowhere, None, True).layer(alone)
    layers = [_BUILT_IN] if layer is None else [_BUILT_IN, layer]
    merged = merge(layers)
    settings, problems = validate(merged, str(path.parent))
    return Loaded(settings=settings, problems=tuple(problems), written=written(settings, merged))
