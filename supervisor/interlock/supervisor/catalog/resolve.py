"""One name to one capability, for those who may not misspell: api clients and agents' requests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import msgspec

from interlock.bus.errors import UsageError
from interlock.bus.names import (
    LONGEST_SPELLING,
    QUIET_KINDS,
    CapabilityName,
    resolve_spelling,
    spelled,
)
from interlock.bus.settings import AgentSettings, PolicySettings
from interlock.supervisor.catalog.offer import LEFT, PERSON, Caller, forbidden
from interlock.supervisor.catalog.rows import CatalogRow, SourceView
from interlock.supervisor.config.model import CORE_WORKER
from interlock.supervisor.lifecycle.wording import start_again

CANDIDATES = 5
"""Names that a refusal suggests at most."""


class Refusal(msgspec.Struct, frozen=True, kw_only=True):
    """Why a name gives no ticket; `code` is an outcome."""

    code: Literal["denied", "unavailable", "not_found"]
    message: str
    candidates: tuple[str, ...] = ()
    row: CatalogRow | None = None
    """The row that was meant, where there is one."""
    missing: str = ""
    """The source that was meant, where there is none with that name."""


def resolve(
    text: str,
    rows: Sequence[CatalogRow],
    sources: Mapping[str, SourceView],
    policy: PolicySettings,
    agent: Caller,
) -> CatalogRow | Refusal:
    """The row that `text` means, if that caller may call it now; nothing if it is None.

    That is the row whose name or wire name is exactly `text`. An agent may misspell: then it is the
    only row of which `text` is a spelling, among those that the agent may use.
    """
    if agent is None:
        return Refusal(code="denied", message=f"{_shown(text)} may not be called: {LEFT}.")
    written = _written(text)
    row = next((row for row in rows if row.name == written or row.wire == text), None)
    if row is None and agent is not PERSON and len(text) <= LONGEST_SPELLING:
        meant = _misspelt(text, rows, policy, agent)
        if isinstance(meant, Refusal):
            return meant
        row = meant
    if row is None:
        return _unknown(text, rows, sources, policy, agent)
    why = forbidden(row, agent, policy)
    if why is not None:
        message = f"{row.name} may not be called: {why[1]}."
        return Refusal(code="denied", message=message, row=row)
    if not row.connected:
        return msgspec.structs.replace(_unavailable(sources[row.source]), row=row)
    return row


def unavailable(source: SourceView) -> str:
    """Say why a source is not usable now and what to do, in plain words."""
    name = source.name
    match source.state:
        case _ if not source.enabled:
            todo = "Remove `enabled = false` from its entry"
        case "STARTING" | "INITIALIZING" | "BACKOFF" | "READY":
            todo = f"Try again in a moment; `interlock status {name}` shows how it is"
        case "STOPPED" | "STOPPING":
            todo = start_again(name, source.reason)
        case "FAILED":
            todo = f"See `interlock logs {name}`, then `interlock restart {name}`"
        case _:
            todo = f"See `interlock status {name}`"
    return f"{name} is not usable now: {(source.reason or 'not ready').rstrip('.')}. {todo}."


def _written(text: str) -> str:
    """The written form of a name in which not all escapes are needed to read it."""
    try:
        return str(CapabilityName.parse(text))
    except UsageError:
        return text


def _unavailable(source: SourceView) -> Refusal:
    return Refusal(code="unavailable", message=unavailable(source))


def _misspelt(
    text: str, rows: Sequence[CatalogRow], policy: PolicySettings, agent: AgentSettings
) -> CatalogRow | Refusal | None:
    """The row that an agent misspelt, a refusal if that is not certain, None if it meant none."""
    by_name = {row.capability: row for row in rows}
    meant = [by_name[name] for name in spelled(text, by_name)]
    if not meant:
        return None
    allowed = [row for row in meant if forbidden(row, agent, policy) is None]
    if len(allowed) <= 1:
        return (allowed or meant)[0]
    near = tuple(row.name for row in allowed[:CANDIDATES])
    message = f"{_shown(text)} may mean {' or '.join(near)}; write one of these names."
    return Refusal(code="not_found", message=message, candidates=near)


def _unknown(
    text: str,
    rows: Sequence[CatalogRow],
    sources: Mapping[str, SourceView],
    policy: PolicySettings,
    agent: Caller,
) -> Refusal:
    name = _source_named(text)
    source = sources.get(name)
    if source is not None and not source.connected and not source.tools:
        # What it serves is not known yet, so neither is whether that name exists.
        return _unavailable(source)
    near = _candidates(text, [row for row in rows if forbidden(row, agent, policy) is None])
    hint = f" Did you mean {' or '.join(near)}?" if near else " See `interlock tools`."
    return Refusal(
        code="not_found",
        message=f"There is no capability {_shown(text)}.{hint}",
        candidates=near,
        missing=name if source is None else "",
    )


def _shown(text: str) -> str:
    return repr(text if len(text) <= 100 else text[:99] + "…")


def _source_named(text: str) -> str:
    """The source that the name of a capability belongs to, whether there is one or not."""
    try:
        name = CapabilityName.parse(text)
        kind, source = name.kind, str(name.worker).partition(":")[2]
    except UsageError:
        kind, _, rest = text.partition("__")
        source = rest.partition("__")[0]
    if kind == "core":
        return CORE_WORKER
    return f"{'mcp' if kind in QUIET_KINDS else kind}:{source}"


def _candidates(text: str, rows: Sequence[CatalogRow]) -> tuple[str, ...]:
    if len(text) > LONGEST_SPELLING:
        return ()
    found = resolve_spelling(text, [row.capability for row in rows])
    near = (found,) if isinstance(found, CapabilityName) else found
    return tuple(str(name) for name in near[:CANDIDATES])
