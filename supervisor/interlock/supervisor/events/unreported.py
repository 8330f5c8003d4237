"""Calls of an interrupted turn that no worker could report, found in the turn's items; pure.

Workers report calls in batches. What was under way, or had just ended, when the supervisor was
killed is in no report, but the agent may have told of it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import msgspec

from interlock.supervisor.events.journalrows import ApprovalRow, CallRow


class _Item(msgspec.Struct):
    type: str = ""
    id: str = ""
    capability: str = ""
    outcome: str = ""
    duration_ms: float = 0.0


class Unreported(msgspec.Struct, frozen=True):
    """A call as the agent told of it; without a result its outcome is `worker_died`."""

    call: str
    capability: str
    outcome: str
    duration_ms: float
    may_have_run: bool


def unreported(
    items: Sequence[bytes], calls: Iterable[CallRow], approvals: Iterable[ApprovalRow]
) -> list[Unreported]:
    """Return the calls in `items` that are not in `calls`, in order.

    One that still waited for a person did not run, and is left out.
    """
    told = [item for item in map(_read, items) if item is not None]
    results = {item.id: item for item in told if item.type == "tool.result"}
    known = Counter(call.capability for call in calls)
    known.update(one.capability for one in approvals if one.outcome != "approved")
    found = []
    for item in told:
        if item.type != "tool.call":
            continue
        if known[item.capability]:
            known[item.capability] -= 1
            continue
        result = results.get(item.id)
        outcome = result.outcome if result else "worker_died"
        spent = result.duration_ms if result else 0.0
        found.append(Unreported(item.id, item.capability, outcome, spent, result is None))
    return found


def _read(item: bytes) -> _Item | None:
    try:
        return msgspec.json.decode(item, type=_Item)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None  # an item of another version
