"""Every message of the control, data and api planes, and the limits that bound them.

A message is `[header]` or `[header][body]`. The header is one of the structs below, the body is
JSON bytes that nobody on the way parses. Events and turn items are in `interlock.bus.events`.
Specification: docs/reference/protocol.md.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from interlock.bus.limits import CHUNK as CHUNK
from interlock.bus.limits import CHUNK_WINDOW as CHUNK_WINDOW
from interlock.bus.limits import ITEMS_BATCH as ITEMS_BATCH
from interlock.bus.limits import MAX_HEADER as MAX_HEADER
from interlock.bus.limits import MAX_MESSAGE as MAX_MESSAGE
from interlock.bus.limits import MAX_NESTING as MAX_NESTING
from interlock.bus.limits import PROTOCOL as PROTOCOL
from interlock.bus.limits import RESULT_INLINE as RESULT_INLINE
from interlock.bus.limits import TICKET_LIFE as TICKET_LIFE
from interlock.bus.limits import ZERO_COPY as ZERO_COPY
from interlock.bus.records import CallReport, CapabilityReport, Child, DroppedTool, OfferRow, Target


class Message(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", omit_defaults=True):
    """Base of all messages; a field that has its default value is left out on the wire."""


# --- control plane, worker to supervisor ---


class Hello(Message, frozen=True, kw_only=True, tag="hello"):
    """First message of a worker; `token` is the one-time token of its boot record."""

    token: str
    pid: int
    protocol: int = PROTOCOL


class Ready(Message, frozen=True, kw_only=True, tag="ready"):
    """The worker can do its job; sent once per generation. `endpoint`: empty if it serves none."""

    endpoint: str = ""
    tools: int = 0
    server: str = ""
    """What the served program calls itself, name and version."""


class StateReport(Message, frozen=True, kw_only=True, tag="state"):
    """The worker is usable as wished (READY) or not (DEGRADED, with the reason)."""

    state: Literal["READY", "DEGRADED"]
    code: str = ""
    reason: str = ""


class WorkerFailed(Message, frozen=True, kw_only=True, tag="failed"):
    """The worker cannot do its job and is about to exit.

    `permanent`: trying again soon cannot help (missing binary, unresolved secret), so FAILED at
    once. `fix` says what the user can do.
    """

    code: str
    reason: str
    fix: str = ""
    permanent: bool = False


class Pong(Message, frozen=True, kw_only=True, tag="pong"):
    """Answer of the worker's own event loop to a ping, with its gauges."""

    n: int
    in_flight: int = 0
    queue: int = 0
    dropped: int = 0
    """Lines and frames that were dropped since the start."""


class Children(Message, frozen=True, kw_only=True, tag="children"):
    """All processes below the worker now; replaces the list before."""

    children: tuple[Child, ...]


class Capabilities(Message, frozen=True, kw_only=True, tag="capabilities"):
    """The full list of what the worker serves; replaces the list before.

    Body: a JSON object from digest to tool document, holding the documents not yet sent by this
    generation.
    """

    rows: tuple[CapabilityReport, ...]
    dropped: tuple[DroppedTool, ...] = ()


class TurnItems(Message, frozen=True, kw_only=True, tag="turn.items"):
    """Turn items in order. Body: a JSON array of item objects without `turn` and `offset`."""

    turn: str


class CallReports(Message, frozen=True, kw_only=True, tag="call.reports"):
    """Starts and ends of calls, batched (50 ms or 256), with the gauges at that moment."""

    reports: tuple[CallReport, ...]
    in_flight: int = 0
    queue: int = 0


class TicketRequest(Message, frozen=True, kw_only=True, tag="ticket.request"):
    """An agent asks for a ticket: for a capability outside its turn ticket, or a renewal.

    With `capability` empty and `worker` set it is a renewal of the turn's ticket for that worker.
    Body: the arguments, where `capability` is set.
    """

    id: int
    turn: str
    capability: str = ""
    worker: str = ""


class Notice(Message, frozen=True, kw_only=True, tag="notice"):
    """A row for needs attention, or with `clear` its removal; key is (worker, code, subject)."""

    code: str
    subject: str = ""
    message: str = ""
    fix: str = ""
    clear: bool = False


class Drained(Message, frozen=True, kw_only=True, tag="drained"):
    """No call and no turn is under way any more; answers `drain`."""


class Revoked(Message, frozen=True, kw_only=True, tag="revoked"):
    """Acknowledges `revoke` number `n`."""

    n: int


class SchemaGet(Message, frozen=True, kw_only=True, tag="schema.get"):
    """An agent fetches tool documents by digest; answered by `schemas`."""

    id: int
    digests: tuple[str, ...]


class ToolsFind(Message, frozen=True, kw_only=True, tag="tools.find"):
    """The core worker searches, for a call of that turn, what the turn was not offered.

    Answered by `tools.found`. `turn` empty: no turn asks; everything that policy allows is searched
    and nothing is added to any offer.
    """

    id: int
    turn: str = ""
    query: str
    limit: int = 8


ControlUp = (
    Hello
    | Ready
    | StateReport
    | WorkerFailed
    | Pong
    | Children
    | Capabilities
    | TurnItems
    | CallReports
    | TicketRequest
    | Notice
    | Drained
    | Revoked
    | SchemaGet
    | ToolsFind
)

# --- control plane, supervisor to worker ---


class Configure(Message, frozen=True, kw_only=True, tag="configure"):
    """What the worker is to be. Body: the kind's settings. Never logged: it carries the key."""

    key: bytes = b""
    """Ticket key of this generation; 32 random bytes for serving workers."""
    endpoint: str = ""
    """Data endpoint to bind; empty if the kind serves none."""


class Apply(Message, frozen=True, kw_only=True, tag="apply"):
    """New settings that need no restart. Body: the kind's settings, whole."""


class Ping(Message, frozen=True, kw_only=True, tag="ping"):
    """Are you alive?"""

    n: int


class TurnDispatch(Message, frozen=True, kw_only=True, tag="turn.dispatch"):
    """Run a turn. Body: a JSON string, the turn's text."""

    turn: str
    session: str = ""
    deadline_ms: int
    unattended: bool = False
    offer: tuple[OfferRow, ...] = ()
    targets: tuple[Target, ...] = ()
    offered: int = 0
    """Rows of the whole offer; what does not fit in here follows as `offer.update`."""


class TurnCancel(Message, frozen=True, kw_only=True, tag="turn.cancel"):
    """End a turn early: it answers with a `turn.cancelled` item (deadline: `turn.failed`)."""

    turn: str
    code: Literal["cancelled", "deadline"] = "cancelled"


class OfferUpdate(Message, frozen=True, kw_only=True, tag="offer.update"):
    """The offer of a running turn changed: rows and targets to add, replace or take away."""

    turn: str
    rows: tuple[OfferRow, ...] = ()
    removed: tuple[str, ...] = ()
    targets: tuple[Target, ...] = ()


class Gone(Message, frozen=True, kw_only=True, tag="gone"):
    """A generation ended: its calls in flight fail now. Sent to agents and to api clients."""

    worker: str
    generation: int
    reason: str = ""


class TicketGrant(Message, frozen=True, kw_only=True, tag="ticket.grant"):
    """Answer to `ticket.request`: row and target; or `code`, `message` and the row if known."""

    id: int
    row: OfferRow | None = None
    target: Target | None = None
    code: str = ""
    message: str = ""


class TicketParked(Message, frozen=True, kw_only=True, tag="ticket.parked"):
    """A `ticket.request` waits for a person; its `ticket.grant` follows within `seconds`."""

    id: int
    approval: str
    seconds: float


class Revoke(Message, frozen=True, kw_only=True, tag="revoke"):
    """Tickets that are void from now on; a call that names one is `denied`.

    With `turn` or `caller`, only tickets issued until the message arrives.
    """

    n: int
    ids: tuple[str, ...] = ()
    turn: str = ""
    caller: str = ""


class Drain(Message, frozen=True, kw_only=True, tag="drain"):
    """Take nothing new, finish what runs; `drained` or the end of `seconds`, then stop."""

    seconds: float


class Stop(Message, frozen=True, kw_only=True, tag="stop"):
    """End now, in order: close what you own, then exit with 0."""


class Schemas(Message, frozen=True, kw_only=True, tag="schemas"):
    """Answer to `schema.get`. Body: a JSON object from digest to tool document."""

    id: int


class ToolsFound(Message, frozen=True, kw_only=True, tag="tools.found"):
    """Answers `tools.find`: what was found belongs to the turn's offer from now on.

    Body: `{"tools": [{"name", "wire", "summary"}, ...]}`, best first. `code`: an outcome, if the
    search was refused.
    """

    id: int
    code: str = ""
    message: str = ""


ControlDown = (
    Configure
    | Apply
    | Ping
    | TurnDispatch
    | TurnCancel
    | OfferUpdate
    | Gone
    | TicketGrant
    | TicketParked
    | Revoke
    | Drain
    | Stop
    | Schemas
    | ToolsFound
)

# --- data plane, caller to target ---


class Open(Message, frozen=True, kw_only=True, tag="open"):
    """Presents a ticket on this connection; answered by `opened` or by `failure` with id 0."""

    ticket: str


class Call(Message, frozen=True, kw_only=True, tag="call"):
    """Call a capability under an opened ticket. Body: the arguments, a JSON object."""

    id: int
    ticket: str
    """The ticket's id, not the ticket."""
    name: str
    """The local name."""
    left_ms: int
    """Remaining time; a call that arrives with nothing left is dropped as expired."""
    generation: int
    progress: bool = False


class Cancel(Message, frozen=True, kw_only=True, tag="cancel"):
    """The caller is no longer interested in that call."""

    id: int


class Credit(Message, frozen=True, kw_only=True, tag="credit"):
    """`n` more chunks of that call's result may be sent."""

    id: int
    n: int


DataUp = Open | Call | Cancel | Credit

# --- data plane, target to caller ---


class Opened(Message, frozen=True, kw_only=True, tag="opened"):
    """The ticket with that id is accepted on this connection; may be said more than once."""

    ticket: str


class Progress(Message, frozen=True, kw_only=True, tag="progress"):
    """The server reported progress; it renews the call's deadline."""

    id: int
    progress: float
    total: float | None = None
    message: str = ""


class Log(Message, frozen=True, kw_only=True, tag="log"):
    """A log message of the server, passed on while the caller has a call under way."""

    level: str
    message: str


class Chunk(Message, frozen=True, kw_only=True, tag="chunk"):
    """Part `n`, from 0, of a result too large for one frame. Body: its bytes."""

    id: int
    n: int


class Result(Message, frozen=True, kw_only=True, tag="result"):
    """The call ended with a result. Body: the result (its last part, if chunks came before)."""

    id: int
    outcome: Literal["ok", "tool_error"] = "ok"
    duration_ms: float = 0.0


class Failure(Message, frozen=True, kw_only=True, tag="failure"):
    """The call ended without a result; `code` is an outcome. Of an `open`, `ticket` is its id.

    `may_have_run`: the server had the request, so its effect is unknown.
    """

    id: int
    code: str
    message: str
    may_have_run: bool = False
    ticket: str = ""


DataDown = Opened | Progress | Log | Chunk | Result | Failure

# --- api plane, client to supervisor ---


class Request(Message, frozen=True, kw_only=True):
    """Base of api requests: `id` is chosen by the client and returns in every answer."""

    id: int
    key: str


class StatusGet(Request, frozen=True, kw_only=True, tag="status"):
    """Answers the status document; `name` narrows it to one worker."""

    name: str = ""


class SnapshotGet(Request, frozen=True, kw_only=True, tag="snapshot"):
    """Answers `{epoch, seq, status}`: apply events with a higher seq on top."""


class ReplayGet(Request, frozen=True, kw_only=True, tag="replay"):
    """Answers `{epoch, events}` after `seq`, or code `gap` when they are no longer kept."""

    epoch: str
    seq: int


class ToolsGet(Request, frozen=True, kw_only=True, tag="tools"):
    """Answers the catalog, or with `text` an offer; `name`: one tool or source, with schemas."""

    agent: str = ""
    text: str = ""
    name: str = ""


class WhyGet(Request, frozen=True, kw_only=True, tag="why"):
    """Answers why sources would be offered in the session's next turn. Body: its text, as JSON."""

    agent: str = ""
    session: str = ""


class Resolve(Request, frozen=True, kw_only=True, tag="resolve"):
    """Answers `{capability, local, timeout, timeout_max, target, single_use}` for a direct call.

    Codes: outcomes, and `approval_needed`. Body: the arguments, if any. `approval` says what to do
    if a person has to approve: wait for one, tell, or take the answer of the one at this client.
    """

    capability: str
    approval: Literal["park", "tell", "yes", "no"] = "park"
    patience: float = 0.0
    """Seconds to wait for a person at most; 0 = as long as an approval may wait."""


class TurnStart(Request, frozen=True, kw_only=True, tag="turn.start"):
    """Starts a turn and answers `{turn, state}`; the same `turn` again answers the same turn.

    Body: a JSON string, the text.
    """

    turn: str
    """32 hex digits, made by the client."""
    agent: str = ""
    session: str = ""
    deadline: float = 0.0
    """Seconds; 0 = the agent's own."""
    unattended: bool = False


class TurnWatch(Request, frozen=True, kw_only=True, tag="turn.watch"):
    """Streams a turn from `offset` as `items`; at most `credit` items until more is granted."""

    turn: str
    offset: int = 0
    credit: int = 1000


class TurnCredit(Request, frozen=True, kw_only=True, tag="turn.credit"):
    """Grants more items to the watch whose request had id `watch`; no answer."""

    watch: int
    credit: int


class TurnUnwatch(Request, frozen=True, kw_only=True, tag="turn.unwatch"):
    """Ends a watch; no answer."""

    watch: int


class TurnStop(Request, frozen=True, kw_only=True, tag="turn.cancel"):
    """Cancels a turn; answers `{turn, state}`."""

    turn: str


class TurnsGet(Request, frozen=True, kw_only=True, tag="turns"):
    """Answers `{turns: [...]}`, newest first."""

    limit: int = 50


class TurnGet(Request, frozen=True, kw_only=True, tag="turn.show"):
    """Answers one turn's row with its calls."""

    turn: str


class ApprovalsGet(Request, frozen=True, kw_only=True, tag="approvals"):
    """Answers `{approvals: [...]}`: what waits for a person, and the newest `past` decisions."""

    past: int = 0


class Approve(Request, frozen=True, kw_only=True, tag="approve"):
    """Lets the call of an approval run, once; answers its row. Persons only, not who asked."""

    approval: str


class Deny(Request, frozen=True, kw_only=True, tag="deny"):
    """Refuses the call of an approval; answers its row. Persons only, not who asked."""

    approval: str


class WorkerControl(Request, frozen=True, kw_only=True, tag="worker"):
    """Starts, stops or restarts a worker; answers its status row when the outcome is known."""

    action: Literal["start", "stop", "restart"]
    name: str


class Reload(Request, frozen=True, kw_only=True, tag="reload"):
    """Reads the configuration again now; answers `{changed, problems}`."""


class Shutdown(Request, frozen=True, kw_only=True, tag="shutdown"):
    """Stops everything in order; answered before it begins, with `wait` once all has stopped."""

    wait: bool = False


ApiRequest = (
    StatusGet
    | SnapshotGet
    | ReplayGet
    | ToolsGet
    | WhyGet
    | Resolve
    | TurnStart
    | TurnWatch
    | TurnCredit
    | TurnUnwatch
    | TurnStop
    | TurnsGet
    | TurnGet
    | ApprovalsGet
    | Approve
    | Deny
    | WorkerControl
    | Reload
    | Shutdown
)

# --- api plane, supervisor to client ---


class Reply(Message, frozen=True, kw_only=True, tag="reply"):
    """Answer to a request. Body: the document, when `code` is ok."""

    id: int
    code: str = "ok"
    message: str = ""
    fix: str = ""


class Items(Message, frozen=True, kw_only=True, tag="items"):
    """Items of a watched turn from `offset`. Body: a JSON array; `end`: that was its last."""

    id: int
    turn: str
    offset: int
    count: int
    end: bool = False


ApiAnswer = Reply | Items | Gone
