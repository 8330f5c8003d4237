"""The life of one turn as a pure function: what happened in, what to do out.

    ACCEPTING --stored--> WAITING --agent ready--> RUNNING --end--> ENDING --stored--> ENDED
                             |                        |                ^
                             +---- cancel, deadline, agent unusable ---+

ACCEPTING: the journal has not answered yet, so nothing was announced. WAITING: accepted, no agent
has it. RUNNING: exactly one generation of its agent has it, and never a second one gets it.
ENDING: the last item is decided and on its way to the disk; whatever else arrives is dropped.
ENDED: announced.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Literal

from interlock.bus.events import TurnCancelled, TurnCompleted, TurnFailed

Terminal = TurnCompleted | TurnFailed | TurnCancelled
CancelCode = Literal["cancelled", "deadline"]


class Phase(StrEnum):
    """Where a turn is."""

    ACCEPTING = "accepting"
    WAITING = "waiting"
    RUNNING = "running"
    ENDING = "ending"
    ENDED = "ended"


@dataclass(slots=True)
class TurnState:
    """What the decisions depend on; changed by `step` alone."""

    phase: Phase = Phase.ACCEPTING
    generation: int = 0
    """Of the agent that has the turn."""
    cancel: CancelCode | None = None
    """The end that was asked for and that nothing has answered yet."""
    stopping: bool = False
    """The supervisor ends: whatever keeps the turn from going on is no fault of its agent."""


# --- what happens ---


@dataclass(frozen=True, slots=True)
class Stored:
    """The journal answered: the accept, or the end, is stored (or will be as soon as it can)."""


@dataclass(frozen=True, slots=True)
class AgentReady:
    """The turn's agent can take it."""

    generation: int


@dataclass(frozen=True, slots=True)
class AgentUnusable:
    """The turn's agent cannot take it, nor soon."""

    message: str


@dataclass(frozen=True, slots=True)
class AgentDied:
    """A generation of the turn's agent ended."""

    generation: int
    reason: str


@dataclass(frozen=True, slots=True)
class AgentStopped:
    """The turn's agent gave it up, or ended, because it was stopped in order."""

    generation: int
    reason: str


@dataclass(frozen=True, slots=True)
class SupervisorStops:
    """The supervisor ends in order; the agent may still have time to end the turn."""


@dataclass(frozen=True, slots=True)
class DispatchFailed:
    """The dispatch could not be sent."""

    message: str


@dataclass(frozen=True, slots=True)
class AgentEnded:
    """The agent sent the turn's last item."""

    item: Terminal


@dataclass(frozen=True, slots=True)
class CancelAsked:
    """Somebody asked for the turn's end."""


@dataclass(frozen=True, slots=True)
class DeadlinePassed:
    """The turn's time is over."""


@dataclass(frozen=True, slots=True)
class GraceOver:
    """The agent did not answer a cancel in time."""


@dataclass(frozen=True, slots=True)
class LogFull:
    """The turn produced more than a turn may."""


Happening = (
    Stored
    | AgentReady
    | AgentUnusable
    | AgentDied
    | AgentStopped
    | SupervisorStops
    | DispatchFailed
    | AgentEnded
    | CancelAsked
    | DeadlinePassed
    | GraceOver
    | LogFull
)

# --- what to do ---


@dataclass(frozen=True, slots=True)
class AnnounceAccepted:
    """Publish the acceptance and answer the client."""


@dataclass(frozen=True, slots=True)
class FindAgent:
    """Look how the agent is: ready, unusable, or to be waited for."""


@dataclass(frozen=True, slots=True)
class Dispatch:
    """Send the turn to that generation."""

    generation: int


@dataclass(frozen=True, slots=True)
class SendCancel:
    """Ask the agent to end the turn, and start the grace."""

    code: CancelCode


@dataclass(frozen=True, slots=True)
class End:
    """Void the tickets, store the end with that last item."""

    item: Terminal


@dataclass(frozen=True, slots=True)
class AnnounceEnd:
    """Show the last item to watchers and publish the end."""


Command = AnnounceAccepted | FindAgent | Dispatch | SendCancel | End | AnnounceEnd

_CANCELLED: Final = TurnCancelled()
_DEADLINE: Final = TurnFailed(
    code="deadline",
    message="The turn took longer than its deadline; give it more with --deadline.",
)
_SUPERVISOR_STOPPED: Final = TurnFailed(
    code="supervisor_stopped",
    message="The supervisor was stopped during the turn; start it with `interlock up` and send the "
    "turn again.",
)
_TOO_LARGE: Final = TurnFailed(
    code="too_large", message="The turn produced more output than a turn may; ask for less at once."
)


def step(turn: TurnState, event: Happening) -> list[Command]:
    """Apply one happening and return what the caller must do, in order.

    >>> turn = TurnState()
    >>> step(turn, Stored())
    [AnnounceAccepted(), FindAgent()]
    >>> step(turn, AgentReady(3)), turn.phase
    ([Dispatch(generation=3)], <Phase.RUNNING: 'running'>)
    """
    match turn.phase:
        case Phase.ACCEPTING:
            return _accepting(turn, event)
        case Phase.WAITING:
            return _waiting(turn, event)
        case Phase.RUNNING:
            return _running(turn, event)
        case Phase.ENDING if isinstance(event, Stored):
            turn.phase = Phase.ENDED
            return [AnnounceEnd()]
        case _:
            return []


def _accepting(turn: TurnState, event: Happening) -> list[Command]:
    match event:
        case Stored():
            if turn.cancel is not None:
                return [AnnounceAccepted(), *_end(turn, _asked_end(turn.cancel))]
            if turn.stopping:
                return [AnnounceAccepted(), *_end(turn, _SUPERVISOR_STOPPED)]
            turn.phase = Phase.WAITING
            return [AnnounceAccepted(), FindAgent()]
        case CancelAsked():
            turn.cancel = "cancelled"
        case DeadlinePassed():
            turn.cancel = turn.cancel or "deadline"
        case SupervisorStops():
            turn.stopping = True
    return []


def _waiting(turn: TurnState, event: Happening) -> list[Command]:
    match event:
        case AgentReady(generation):
            turn.phase = Phase.RUNNING
            turn.generation = generation
            return [Dispatch(generation)]
        case AgentUnusable(message):
            return _end(turn, TurnFailed(code="unavailable", message=message))
        case SupervisorStops():
            return _end(turn, _SUPERVISOR_STOPPED)
        case CancelAsked():
            return _end(turn, _CANCELLED)
        case DeadlinePassed():
            return _end(turn, _DEADLINE)
        case _:
            return []


def _running(turn: TurnState, event: Happening) -> list[Command]:
    match event:
        case AgentEnded(item):
            return _end(turn, item)
        case AgentDied(generation=generation) | AgentStopped(generation=generation) if (
            generation == turn.generation
        ):
            return _end(turn, _without_agent(turn, event))
        case SupervisorStops():
            turn.stopping = True
            return []
        case DispatchFailed(message):
            return _end(turn, TurnFailed(code="unavailable", message=message))
        case CancelAsked() if turn.cancel is None:
            turn.cancel = "cancelled"
            return [SendCancel("cancelled")]
        case DeadlinePassed() if turn.cancel is None:
            turn.cancel = "deadline"
            return [SendCancel("deadline")]
        case GraceOver() if turn.cancel is not None:
            return _end(turn, _asked_end(turn.cancel))
        case LogFull():
            return [SendCancel("cancelled"), *_end(turn, _TOO_LARGE)]
        case _:
            return []


def _end(turn: TurnState, item: Terminal) -> list[Command]:
    turn.phase = Phase.ENDING
    return [End(item)]


def _without_agent(turn: TurnState, event: AgentDied | AgentStopped) -> Terminal:
    if turn.cancel is not None:
        return _asked_end(turn.cancel)
    if turn.stopping:
        return _SUPERVISOR_STOPPED
    detail = f" ({event.reason})" if event.reason else ""
    if isinstance(event, AgentStopped):
        message = f"The agent was stopped during the turn{detail}; send the turn again."
        return TurnFailed(code="agent_stopped", message=message)
    message = f"The agent's process ended during the turn{detail}; send the turn again."
    return TurnFailed(code="agent_died", message=message)


def _asked_end(code: CancelCode) -> Terminal:
    return _CANCELLED if code == "cancelled" else _DEADLINE
