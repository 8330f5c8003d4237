"""Reads all layers of configuration into one `Loaded`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from interlock.bus.settings import AgentSettings
from interlock.supervisor.config.model import AgentEntry, Loaded, Settings


def load(
    home: Path,
    workspace: Path | None,
    explicit: Path | None,
    environ: Mapping[str, str],
    previous: Loaded | None = None,
) -> Loaded:
    """Read every layer that exists and return what is in force, with all problems.

    `workspace` is the folder to look from, upwards, for a workspace's files; None = no workspace.
    `explicit` is the file of `--config`. `previous` is the reading that is in force now: a file
    that has become unreadable, or that changed without being trusted again, keeps its earlier
    content. Never raises for what files contain; raises ConfigError if `explicit` itself cannot
    be read and there is no earlier content of it.
    """
    return Loaded(settings=Settings(agents={"main": AgentEntry(settings=AgentSettings())}))
