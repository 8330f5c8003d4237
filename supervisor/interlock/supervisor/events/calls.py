"""What serving workers report about calls: rows for the journal and `tool.*` events."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import lru_cache
from typing import Final

import msgspec

from interlock.bus.errors import UsageError
from interlock.bus.events import Event, ToolCompleted, ToolFailed, ToolStarted
from interlock.bus.messages import CallReports
from interlock.bus.names import CapabilityName, WorkerName
from interlock.bus.names import capability_of as named
from interlock.bus.records import CallReport
from interlock.supervisor.events.journal import Journal
from interlock.supervisor.events.journalrows import CallRow

OPEN_CALLS: Final = 10_000
"""Calls of one generation that are followed at once; a worker that reports more is not believed."""
LONGEST: Final = 200
"""Characters of a text in a report; longer ones are cut."""
RESULTS: Final = ("ok", "tool_error")
"""Outcomes with a result; all others are failures."""
REFUSALS: Final = ("denied", "not_found", "unavailable", "invalid_arguments", "overloaded")
"""Codes of calls that reach no worker. What a person refused is an event of its approval."""
KNOWN_END: Final = ("", *RESULTS, "invalid_arguments")
"""Outcomes after which nobody wonders whether the call ran; of others only if it had begun."""


class CallBook:
    """Follows every call from its start to its end, or to the death of the worker that had it.

    `publish(worker, event)` gets the events; it may leave some of them out.
    """

    def __init__(
        self,
        journal: Journal,
        publish: Callable[[str, Event], object],
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._journal = journal
        self._publish_event = publish
        self._clock = clock
        self._open: dict[tuple[str, int], dict[str, tuple[CallReport, float]]] = {}
        """What is under way, with the moment at which its worker told of it."""
        self._lost: dict[str, int] = {}
        """The newest generation of each worker that is known to be dead."""

    def report(self, worker: str, generation: int, message: CallReports) -> None:
        """Journal the calls of one batch and publish an event for each.

        What comes after `lose` corrects the journal alone: an end that is known after all, or a
        call that nobody had heard of. Its callers and the events had their answer.
        """
        now = self._clock()
        reports = [_cut(call) for call in message.reports]
        if generation <= self._lost.get(worker, 0):
            rows = [
                _row(worker, generation, call, now, call.outcome not in KNOWN_END)
                for call in reports
            ]
            self._journal.add_calls(rows)
            self._journal.lose_calls(worker, generation)
            return
        under_way = self._open.setdefault((worker, generation), {})
        rows = []
        for call in reports:
            began = call.whole  # it was sent to the server, so its effect is unknown if it failed
            if call.outcome:
                began = under_way.pop(call.id, None) is not None or began
            elif len(under_way) < OPEN_CALLS:
                under_way[call.id] = call, now
            may = began and call.outcome not in KNOWN_END
            rows.append(_row(worker, generation, call, now, may))
        self._journal.add_calls(rows)
        for call in reports:
            self._publish(worker, call)

    def lose(self, worker: str, generation: int) -> tuple[CallReport, ...]:
        """That generation is dead: what it had under way failed for its caller and may have run.

        Returns how those calls ended: nobody else is left to report it.
        """
        self._lost[worker] = max(generation, self._lost.get(worker, 0))
        now, under_way = self._clock(), self._open.pop((worker, generation), {}).values()
        ended = tuple(
            msgspec.structs.replace(
                call, outcome="worker_died", duration_ms=max(0.0, now - since) * 1000
            )
            for call, since in under_way
        )
        self._journal.add_calls([_row(worker, generation, call, now, True) for call in ended])
        self._journal.lose_calls(worker, generation)
        for call in ended:
            self._publish_event(
                worker,
                ToolFailed(
                    name=worker,
                    capability=capability_of(worker, call.capability),
                    call=call.id,
                    caller=call.caller,
                    turn=call.turn,
                    code="worker_died",
                    duration_ms=call.duration_ms,
                ),
            )
        return ended

    def refused(self, caller: str, capability: str, code: str, turn: str = "") -> None:
        """Publish an event for a call that was not let through to any worker, if it is one.

        All of these share one quota: a caller of wrong names costs no worker its events.
        """
        if code not in REFUSALS:
            return
        capability = capability[:LONGEST]
        try:
            worker = str(CapabilityName.parse(capability).worker)
        except UsageError:
            worker = ""  # no name of a capability: nobody's
        event = ToolFailed(name=worker, capability=capability, caller=caller, turn=turn, code=code)
        self._publish_event("", event)

    def _publish(self, worker: str, call: CallReport) -> None:
        capability = capability_of(worker, call.capability)
        if call.whole or not call.outcome:
            self._publish_event(
                worker,
                ToolStarted(
                    name=worker,
                    capability=capability,
                    call=call.id,
                    caller=call.caller,
                    turn=call.turn,
                ),
            )
        if not call.outcome:
            return
        if call.outcome in RESULTS:
            self._publish_event(
                worker,
                ToolCompleted(
                    name=worker,
                    capability=capability,
                    call=call.id,
                    caller=call.caller,
                    turn=call.turn,
                    duration_ms=call.duration_ms,
                    outcome=call.outcome,
                ),
            )
        else:
            self._publish_event(
                worker,
                ToolFailed(
                    name=worker,
                    capability=capability,
                    call=call.id,
                    caller=call.caller,
                    turn=call.turn,
                    code=call.outcome,
                    duration_ms=call.duration_ms,
                ),
            )


@lru_cache(maxsize=4096)  # asked for twice a call, and names are few
def capability_of(worker: str, local: str) -> str:
    """The full name of what a worker calls `local`.

    >>> capability_of("mcp:git", "git_status")
    'mcp:git/git_status'
    """
    try:
        return str(named(WorkerName.parse(worker), local))
    except UsageError:
        return f"{worker}/?"


def _cut(call: CallReport) -> CallReport:
    size = len(call.id) + len(call.capability) + len(call.caller) + len(call.turn)
    if size + len(call.outcome) <= LONGEST:  # as nearly all are
        return call
    texts = ("id", "capability", "caller", "turn", "outcome")
    long = {name: text[:LONGEST] for name in texts if len(text := getattr(call, name)) > LONGEST}
    return msgspec.structs.replace(call, **long) if long else call


def _row(worker: str, generation: int, call: CallReport, now: float, may_have_run: bool) -> CallRow:
    return CallRow(
        worker=worker,
        generation=generation,
        call=call.id,
        capability=capability_of(worker, call.capability),
        caller=call.caller,
        turn=call.turn,
        outcome=call.outcome,
        duration_ms=call.duration_ms,
        started=now - (call.duration_ms / 1000 if call.outcome else 0.0),
        may_have_run=may_have_run,
    )
