from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlock.bus.events import TurnCancelled, TurnCompleted, TurnFailed
from interlock.supervisor.events.turnstate import (
    AgentDied,
    AgentEnded,
    AgentReady,
    AgentStopped,
    AgentUnusable,
    AnnounceAccepted,
    AnnounceEnd,
    CancelAsked,
    Command,
    DeadlinePassed,
    Dispatch,
    DispatchFailed,
    End,
    FindAgent,
    GraceOver,
    Happening,
    LogFull,
    Phase,
    SendCancel,
    Stored,
    SupervisorStops,
    TurnState,
    step,
)

DONE = TurnCompleted(text="done")
HAPPENINGS: list[Happening] = [
    Stored(),
    AgentReady(1),
    AgentUnusable("no"),
    AgentDied(1, "killed"),
    AgentDied(9, "another generation"),
    DispatchFailed("full"),
    AgentEnded(DONE),
    CancelAsked(),
    DeadlinePassed(),
    GraceOver(),
    LogFull(),
    AgentStopped(1, "stopped by hand"),
    SupervisorStops(),
]
ACCEPTED = [Stored()]
RUNNING = [*ACCEPTED, AgentReady(1)]
CANCELLING = [*RUNNING, CancelAsked()]
LATE = [*RUNNING, DeadlinePassed()]
ENDING = [*RUNNING, AgentEnded(DONE)]
ENDED = [*ENDING, Stored()]


def names(commands: list[Command]) -> list[str]:
    """Commands as text, an end with its state or code."""
    found = []
    for command in commands:
        if isinstance(command, End):
            item = command.item
            kind = type(item).__struct_config__.tag
            found.append(f"End({item.code if isinstance(item, TurnFailed) else kind})")
        else:
            found.append(repr(command))
    return found


def after(events: list[Happening]) -> TurnState:
    turn = TurnState()
    for event in events:
        step(turn, event)
    return turn


NOTHING: list[str] = []
# One row per phase; one entry per happening, in the order of HAPPENINGS.
TABLE: list[tuple[str, list[Happening], list[list[str]]]] = [
    ("accepting", [], [["AnnounceAccepted()", "FindAgent()"], *[NOTHING] * 12]),
    (
        "waiting",
        [*ACCEPTED],
        [
            NOTHING,
            ["Dispatch(generation=1)"],
            ["End(unavailable)"],
            NOTHING,
            NOTHING,
            NOTHING,
            NOTHING,
            ["End(turn.cancelled)"],
            ["End(deadline)"],
            NOTHING,
            NOTHING,
            NOTHING,
            ["End(supervisor_stopped)"],
        ],
    ),
    (
        "running",
        [*RUNNING],
        [
            NOTHING,
            NOTHING,
            NOTHING,
            ["End(agent_died)"],
            NOTHING,
            ["End(unavailable)"],
            ["End(turn.completed)"],
            ["SendCancel(code='cancelled')"],
            ["SendCancel(code='deadline')"],
            NOTHING,
            ["SendCancel(code='cancelled')", "End(too_large)"],
            ["End(agent_stopped)"],
            NOTHING,
        ],
    ),
    (
        "cancelling",
        [*CANCELLING],
        [
            NOTHING,
            NOTHING,
            NOTHING,
            ["End(turn.cancelled)"],
            NOTHING,
            ["End(unavailable)"],
            ["End(turn.completed)"],
            NOTHING,
            NOTHING,
            ["End(turn.cancelled)"],
            ["SendCancel(code='cancelled')", "End(too_large)"],
            ["End(turn.cancelled)"],
            NOTHING,
        ],
    ),
    (
        "late",
        [*LATE],
        [
            NOTHING,
            NOTHING,
            NOTHING,
            ["End(deadline)"],
            NOTHING,
            ["End(unavailable)"],
            ["End(turn.completed)"],
            NOTHING,
            NOTHING,
            ["End(deadline)"],
            ["SendCancel(code='cancelled')", "End(too_large)"],
            ["End(deadline)"],
            NOTHING,
        ],
    ),
    ("ending", [*ENDING], [["AnnounceEnd()"], *[NOTHING] * 12]),
    ("ended", [*ENDED], [NOTHING] * 13),
]


@pytest.mark.parametrize(("name", "before", "expected"), TABLE, ids=[row[0] for row in TABLE])
def test_every_phase_answers_every_happening(
    name: str, before: list[Happening], expected: list[list[str]]
) -> None:
    assert len(expected) == len(HAPPENINGS)
    answers = [names(step(after(before), event)) for event in HAPPENINGS]
    assert answers == expected


@pytest.mark.parametrize(
    ("early", "end"), [(CancelAsked(), TurnCancelled), (DeadlinePassed(), TurnFailed)]
)
def test_an_end_asked_for_before_the_acceptance_is_kept(
    early: Happening, end: type[object]
) -> None:
    turn = after([early])
    accepted, ended = step(turn, Stored())
    assert accepted == AnnounceAccepted()
    assert isinstance(ended, End) and isinstance(ended.item, end)
    assert turn.phase is Phase.ENDING


@pytest.mark.parametrize("before", [[], RUNNING, CANCELLING])
@pytest.mark.parametrize("end", [AgentDied(1, "killed"), AgentStopped(1, "the supervisor stops")])
def test_what_ends_with_the_supervisor_says_so(before: list[Happening], end: Happening) -> None:
    turn = after([*before, SupervisorStops()])
    commands = names(step(turn, end) if before else step(turn, Stored()))
    expected = "turn.cancelled" if before == CANCELLING else "supervisor_stopped"
    assert commands[-1] == f"End({expected})"


@given(st.lists(st.sampled_from(HAPPENINGS), max_size=30))
def test_whatever_happens_a_turn_is_accepted_dispatched_and_ended_at_most_once_in_order(
    events: list[Happening],
) -> None:
    turn = TurnState()
    done: list[Command] = [command for event in events for command in step(turn, event)]
    kinds = [type(command) for command in done]
    order = [AnnounceAccepted, FindAgent, Dispatch, End, AnnounceEnd]
    once = [kind for kind in kinds if kind is not SendCancel]
    assert all(once.count(kind) <= 1 for kind in order)
    assert once == sorted(once, key=order.index)
    assert (turn.phase is Phase.ENDED) == (AnnounceEnd in kinds)
