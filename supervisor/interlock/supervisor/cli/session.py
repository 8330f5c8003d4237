"""The connection of a command to the supervisor, and names of workers as people type them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from interlock.bus.client import Client, connect
from interlock.bus.errors import NotFoundError
from interlock.supervisor.cli.output import options


def client() -> Client:
    """Connect to the supervisor of the chosen home. Raises NoSupervisorError."""
    return connect(options().home)


def full_name(typed: str, names: Iterable[str], attention: Iterable[Mapping[str, Any]] = ()) -> str:
    """Return the worker that `typed` means: its name, or the only one with that name after a kind.

    Raises NotFoundError that names what there is, or says why the entry that is meant does not run
    if a row of `attention`, of the status document, knows it.
    """
    from interlock.bus.names import workers_meant

    known = list(names)
    found = workers_meant(typed, known)
    if len(found) == 1:
        return found[0]
    if found:
        raise NotFoundError(f"{typed} may be {' or '.join(found)}; say which one you mean.")
    rows = {str(row["name"]): row for row in attention if ":" in row["name"]}
    if unused := workers_meant(typed, rows):
        from interlock.supervisor.attention import unused_text

        row = rows[unused[0]]
        raise NotFoundError(unused_text(unused[0], row["message"], row["fix"]))
    there_are = ", ".join(known) or "none"
    raise NotFoundError(f"There is no worker {typed}; there are: {there_are}.")


def workers_of(status: dict[str, Any]) -> list[str]:
    """Return the names of the workers in a status document."""
    return [str(row.get("name", "")) for row in status.get("workers", [])]
