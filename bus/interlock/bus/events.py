"""Every lifecycle event and every item of a turn's stream.

Event topics are the tags of the event structs and the names of log events. The supervisor alone
sets `epoch` (a new one each start), `seq` (one sequence for all topics, from 1) and `time` (Unix
seconds). Specification: docs/reference/protocol.md.
"""

from __future__ import annotations

from typing import Any

import msgspec


class Event(msgspec.Struct, frozen=True, kw_only=True, tag_field="topic"):
    """Base of all events."""

    epoch: str = ""
    seq: int = 0
    time: float = 0.0


class WorkerEvent(Event, frozen=True, kw_only=True):
    """Base of the events about one worker."""

    name: str
    generation: int = 0


class WorkerStarting(WorkerEvent, frozen=True, kw_only=True, tag="worker.starting"):
    """A process was asked for."""


class WorkerInitializing(WorkerEvent, frozen=True, kw_only=True, tag="worker.initializing"):
    """The process said hello and prepares itself."""

    pid: int = 0


class WorkerReady(WorkerEvent, frozen=True, kw_only=True, tag="worker.ready"):
    """The worker is usable."""

    pid: int = 0
    tools: int = 0


class WorkerDegraded(WorkerEvent, frozen=True, kw_only=True, tag="worker.degraded"):
    """Alive, but not usable as wished."""

    reason: str = ""


class WorkerBackoff(WorkerEvent, frozen=True, kw_only=True, tag="worker.backoff"):
    """The process ended; it is started again after `delay` seconds."""

    attempt: int
    delay: float
    reason: str = ""
    exit_code: int | None = None
    signal: int | None = None


class WorkerFailedEvent(WorkerEvent, frozen=True, kw_only=True, tag="worker.failed"):
    """Given up for now; `reason` in plain words."""

    reason: str = ""
    exit_code: int | None = None
    signal: int | None = None


class WorkerStopping(WorkerEvent, frozen=True, kw_only=True, tag="worker.stopping"):
    """Drain, stop and, where needed, signals have begun."""

    reason: str = ""


class WorkerStopped(WorkerEvent, frozen=True, kw_only=True, tag="worker.stopped"):
    """No process of it is left."""


class CatalogChanged(Event, frozen=True, kw_only=True, tag="catalog.changed"):
    """Capabilities came, went, or changed between usable and not; names in catalog order."""

    name: str = ""
    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()


class ToolEvent(Event, frozen=True, kw_only=True):
    """Base of the events about one call."""

    name: str
    capability: str
    call: str = ""
    caller: str = ""
    turn: str = ""


class ToolStarted(ToolEvent, frozen=True, kw_only=True, tag="tool.started"):
    """A call reached its server."""


class ToolCompleted(ToolEvent, frozen=True, kw_only=True, tag="tool.completed"):
    """A call ended with a result (outcome ok or tool_error)."""

    duration_ms: float = 0.0
    outcome: str = "ok"


class ToolFailed(ToolEvent, frozen=True, kw_only=True, tag="tool.failed"):
    """A call ended without a result."""

    code: str
    duration_ms: float = 0.0


class TurnEvent(Event, frozen=True, kw_only=True):
    """Base of the events about one turn."""

    turn: str
    agent: str = ""


class TurnAccepted(TurnEvent, frozen=True, kw_only=True, tag="turn.accepted"):
    """The turn is in the journal."""


class TurnStartedEvent(TurnEvent, frozen=True, kw_only=True, tag="turn.started"):
    """The agent works on it."""


class TurnCompletedEvent(TurnEvent, frozen=True, kw_only=True, tag="turn.completed"):
    """The turn ended well."""


class TurnFailedEvent(TurnEvent, frozen=True, kw_only=True, tag="turn.failed"):
    """The turn ended with an error."""

    code: str = ""
    message: str = ""


class TurnCancelledEvent(TurnEvent, frozen=True, kw_only=True, tag="turn.cancelled"):
    """The turn was cancelled."""


class TurnInterrupted(TurnEvent, frozen=True, kw_only=True, tag="turn.interrupted"):
    """The turn was under way when the supervisor before this one died."""


class ApprovalEvent(Event, frozen=True, kw_only=True):
    """Base of the events about one approval. The arguments are in `approvals`, not in events."""

    id: str
    capability: str
    caller: str = ""
    turn: str = ""
    agent: str = ""


class ApprovalRequested(ApprovalEvent, frozen=True, kw_only=True, tag="approval.requested"):
    """A call waits for a person; `expires` in Unix seconds."""

    reason: str = ""
    expires: float = 0.0


class ApprovalResolved(ApprovalEvent, frozen=True, kw_only=True, tag="approval.resolved"):
    """It was decided, or waits no longer.

    Outcomes: approved, approval_denied, approval_timeout, approval_unavailable, withdrawn.
    """

    outcome: str
    by: str = ""
    """Who decided; empty if nobody did."""


class ConfigReloaded(Event, frozen=True, kw_only=True, tag="config.reloaded"):
    """Configuration was read again; names of workers by what happened to them."""

    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    restarted: tuple[str, ...] = ()
    applied: tuple[str, ...] = ()
    problems: int = 0


class AttentionChanged(Event, frozen=True, kw_only=True, tag="attention.changed"):
    """A needs-attention row appeared (or, with `clear`, went)."""

    name: str = ""
    code: str = ""
    message: str = ""
    fix: str = ""
    clear: bool = False


class SpawnerDied(Event, frozen=True, kw_only=True, tag="spawner.died"):
    """The spawner died: its processes were swept and all workers start again."""

    reason: str = ""


AnyEvent = (
    WorkerStarting
    | WorkerInitializing
    | WorkerReady
    | WorkerDegraded
    | WorkerBackoff
    | WorkerFailedEvent
    | WorkerStopping
    | WorkerStopped
    | CatalogChanged
    | ToolStarted
    | ToolCompleted
    | ToolFailed
    | TurnAccepted
    | TurnStartedEvent
    | TurnCompletedEvent
    | TurnFailedEvent
    | TurnCancelledEvent
    | TurnInterrupted
    | ApprovalRequested
    | ApprovalResolved
    | ConfigReloaded
    | AttentionChanged
    | SpawnerDied
)

# --- a turn's stream ---


class Item(msgspec.Struct, frozen=True, kw_only=True, tag_field="type"):
    """Base of turn items; the supervisor adds `turn` and `offset` (from 0, without a gap)."""


class TurnStarted(Item, frozen=True, kw_only=True, tag="turn.started"):
    """First item of every turn that reached its agent."""

    agent: str
    model: str = ""
    offered: int = 0


class TextDelta(Item, frozen=True, kw_only=True, tag="text.delta"):
    """More of the answer's text."""

    text: str


class ToolCall(Item, frozen=True, kw_only=True, tag="tool.call"):
    """The agent calls a capability. `id` is unique within the turn."""

    id: str
    capability: str
    arguments: Any
    tier: str = "monitor"


class ApprovalWaiting(Item, frozen=True, kw_only=True, tag="approval.waiting"):
    """The turn waits for a person to decide on approval `id`."""

    id: str


class ToolResult(Item, frozen=True, kw_only=True, tag="tool.result"):
    """The call `id` ended. `content` is a list of MCP content items, cut above 16 KiB.

    Of a cut one the last item is text with the absolute path of the whole, or says why it is lost.
    """

    id: str
    outcome: str
    content: Any
    duration_ms: float
    structured: Any = None


class Usage(Item, frozen=True, kw_only=True, tag="usage"):
    """Tokens that the model counted."""

    input_tokens: int
    output_tokens: int


class TurnCompleted(Item, frozen=True, kw_only=True, tag="turn.completed"):
    """Last item of a turn that ended well; `text` is the whole answer."""

    text: str


class TurnFailed(Item, frozen=True, kw_only=True, tag="turn.failed"):
    """Last item of a failed turn.

    Codes: deadline, agent_died, agent_stopped, supervisor_stopped, unavailable, too_large,
    no_model, bad_turn, max_steps.
    """

    code: str
    message: str


class TurnCancelled(Item, frozen=True, kw_only=True, tag="turn.cancelled"):
    """Last item of a cancelled turn."""


AnyItem = (
    TurnStarted
    | TextDelta
    | ToolCall
    | ApprovalWaiting
    | ToolResult
    | Usage
    | TurnCompleted
    | TurnFailed
    | TurnCancelled
)
TERMINAL_ITEMS = (TurnCompleted, TurnFailed, TurnCancelled)
