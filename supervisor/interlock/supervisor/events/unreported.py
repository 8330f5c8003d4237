"""All calls of a turn: those that workers reported, and those of which only its items tell; pure.

A call that was refused, or given up before it was sent, reached no worker. Workers report in
batches, so what had just begun or ended may be in no report yet, or, after a crash, in none ever.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Final

import msgspec

from interlock.supervisor.events.journalrows import ApprovalRow, CallRow

REFUSED: Final = (
    "denied",
    "not_found",
    "approval_denied",
    "approval_timeout",
    "approval_unavailable",
)
"""Outcomes of calls that were not made."""


class Told(msgspec.Struct):
    """What an item says of a call; other items have another `type`."""

    type: str = ""
    id: str = ""
    capability: str = ""
    outcome: str = ""
    duration_ms: float = 0.0


class Unreported(msgspec.Struct, frozen=True):
    """A call as the agent told of it; `outcome` is empty while it is under way."""

    call: str
    capability: str
    outcome: str
    duration_ms: float
    may_have_run: bool
    approval: str = ""
    """The approval that it waits for."""


def told(items: Iterable[bytes]) -> Iterator[Told]:
    """What the items say of calls, in order; all others, which may be long texts, are not read."""
    for item in items:
        if b'"tool.' not in item:
            continue
        try:
            yield msgspec.json.decode(item, type=Told)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            continue  # an item of another version


def all_calls(
    told: Sequence[Told], calls: Iterable[CallRow], approvals: Iterable[ApprovalRow], state: str
) -> list[CallRow | Unreported]:
    """Return every call of a turn in that state, in the order in which the agent told of them.

    Reports of calls that the agent did not tell of come last. One that waited for a person when
    the turn ended was `cancelled`; any other one without a result and a report may have run.
    """
    results = {one.id: one for one in told if one.type == "tool.result"}
    begun = [one for one in told if one.type == "tool.call"]
    by_end: defaultdict[tuple[str, str], deque[CallRow]] = defaultdict(deque)
    for row in calls:
        by_end[row.capability, row.outcome].append(row)
    found: list[CallRow | Unreported | None] = []
    for one in begun:
        result = results.get(one.id)
        same = by_end[one.capability, result.outcome if result else ""]
        found.append(same.popleft() if same else None)
    # What the agent saw and what the worker reported may differ: nobody else reports the call.
    others: defaultdict[str, deque[CallRow]] = defaultdict(deque)
    for (capability, _), rows in by_end.items():
        others[capability].extend(rows)
    for n, one in enumerate(begun):
        result = results.get(one.id)
        if found[n] is None and not (result and result.outcome in REFUSED):
            rest = others[one.capability]
            found[n] = rest.popleft() if rest else None
    parked: defaultdict[str, deque[ApprovalRow]] = defaultdict(deque)
    for approval in approvals:
        if approval.outcome in ("", "withdrawn"):
            parked[approval.capability].append(approval)
    made = [
        row or _unreported(one, results.get(one.id), parked[one.capability], state)
        for one, row in zip(begun, found, strict=True)
    ]
    return [*made, *chain.from_iterable(others.values())]


def _unreported(
    one: Told, result: Told | None, parked: deque[ApprovalRow], state: str
) -> Unreported:
    ended = state not in ("accepted", "running")
    outcome, spent, may, approval = "", 0.0, False, ""
    if result is not None:
        outcome, spent = result.outcome, result.duration_ms
    elif parked:
        waits = parked.popleft()
        approval = "" if ended or waits.outcome else waits.id
        outcome = "cancelled" if ended else ""
    elif ended:
        outcome, may = "worker_died", True
    return Unreported(one.id, one.capability, outcome, spent, may, approval)
