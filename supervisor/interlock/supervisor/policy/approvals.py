"""Approvals as a pure state machine: what waits for a person, and how each ended, once.

`now` and `expires` are monotonic seconds. Whatever the caller's timers do, an answer counts only
before its expiry, only the first one counts, and whoever asked can never give it.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, Literal

import msgspec

from interlock.bus.errors import (
    ApprovalClosedError,
    InterlockError,
    NotFoundError,
    OverloadedError,
)

Role = Literal["person", "worker", "app"]
"""Who a peer of the supervisor is; only a person may decide."""
Outcome = Literal[
    "approved", "approval_denied", "approval_timeout", "approval_unavailable", "withdrawn"
]

WAITING: Final = 1_000
"""Approvals that may wait at once."""
OF_CLIENT: Final = 100
"""Of these, approvals of one client, whichever agents it has call for it."""
ALWAYS: Final = 4
"""So many may wait of each client, however many others wait."""
REMEMBERED: Final = 1_000
"""Ended approvals that a late answer is still told about."""
_ENDED: Final[dict[Outcome, str]] = {
    "approved": "was approved before",
    "approval_denied": "was denied before",
    "approval_timeout": "got no answer in time",
    "approval_unavailable": "could not be put to anybody",
    "withdrawn": "is not wanted any more",
}


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """What an answer is about, and the only thing that it permits."""

    id: str
    capability: str
    worker: str
    generation: int
    caller: str
    client: str = ""
    """Who wants it: whoever sent the turn; empty if that is the caller."""
    arguments: bytes
    digest: str
    """`arguments_digest` of the arguments."""
    turn: str = ""
    agent: str = ""
    document: str = ""
    """Digest of the tool's document: another description is another tool."""
    reason: str = ""


class Answerer(msgspec.Struct, frozen=True, kw_only=True):
    """Who answers: the name that it has as a caller, and its role."""

    name: str
    role: Role


@dataclass(slots=True)
class Approval:
    """One approval; `outcome` is empty while it waits."""

    asked: Asked
    expires: float
    outcome: Outcome | Literal[""] = ""
    by: str = ""


class Approvals:
    """All approvals that wait, and the last ones that ended. No clock, no I/O."""

    def __init__(self) -> None:
        self._waiting: dict[str, Approval] = {}
        self._ended: OrderedDict[str, Outcome] = OrderedDict()
        self._of: Counter[str] = Counter()

    def waiting(self) -> tuple[Approval, ...]:
        """What waits, the oldest first."""
        return tuple(self._waiting.values())

    def known(self, id_: str) -> bool:
        """Whether that id is taken."""
        return id_ in self._waiting or id_ in self._ended

    def park(self, asked: Asked, now: float, seconds: float) -> Approval:
        """Let a call wait for at most `seconds`. Raises OverloadedError if too many wait."""
        mine = self._of[_client(asked)]
        if mine >= OF_CLIENT:
            raise _too_many(f"{OF_CLIENT} calls of the same client")
        if len(self._waiting) >= WAITING and mine >= ALWAYS:
            raise _too_many(f"{len(self._waiting)} calls")
        approval = Approval(asked, now + seconds)
        self._waiting[asked.id] = approval
        self._of[_client(asked)] += 1
        return approval

    def settle(self, asked: Asked, outcome: Outcome, by: str = "") -> Approval:
        """Record what needs no waiting: nobody may be asked, or the asking person has said it."""
        approval = Approval(asked, 0.0)
        self._close(approval, outcome, by)
        return approval

    def answer(self, id_: str, who: Answerer, approve: bool, now: float) -> Approval:
        """Decide one that waits.

        Raises NotFoundError; ApprovalClosedError for one that is decided or expired, which changes
        nothing; InterlockError, code `denied`, for who may not answer it.
        """
        if who.role != "person":
            raise InterlockError("Only a person can decide an approval.", code="denied")
        approval = self._waiting.get(id_)
        if approval is None:
            raise self._no_longer(id_)
        if now >= approval.expires:
            raise _closed(id_, "approval_timeout")
        if who.name == approval.asked.caller:
            raise InterlockError(
                "Who asked for a call cannot approve or deny it; answer from another terminal.",
                code="denied",
            )
        self._close(approval, "approved" if approve else "approval_denied", who.name)
        return approval

    def expire(self, id_: str, now: float) -> Approval | None:
        """End one whose time is over; None if there is nothing to end."""
        approval = self._waiting.get(id_)
        if approval is None or now < approval.expires:
            return None
        self._close(approval, "approval_timeout")
        return approval

    def withdraw(
        self, which: Callable[[Approval], bool], outcome: Outcome = "withdrawn"
    ) -> tuple[Approval, ...]:
        """End all that are meant: their caller is gone, or nobody may be asked any more."""
        ended = tuple(filter(which, self._waiting.values()))
        for approval in ended:
            self._close(approval, outcome)
        return ended

    def _close(self, approval: Approval, outcome: Outcome, by: str = "") -> None:
        asked = approval.asked
        approval.outcome, approval.by = outcome, by
        if self._waiting.pop(asked.id, None) is not None:
            client = _client(asked)
            self._of[client] -= 1
            if not self._of[client]:
                del self._of[client]
        self._ended[asked.id] = outcome
        while len(self._ended) > REMEMBERED:
            self._ended.popitem(last=False)

    def _no_longer(self, id_: str) -> InterlockError:
        outcome = self._ended.get(id_)
        if outcome is not None:
            return _closed(id_, outcome)
        return NotFoundError(f"There is no approval {id_[:40]!r}; see `interlock approvals`.")


def of_turn(turn: str) -> Callable[[Approval], bool]:
    """Pick the approvals of a turn."""
    return lambda approval: approval.asked.turn == turn


def summary(waiting: Iterable[Approval]) -> str:
    """Say in one sentence what waits; empty if nothing does."""
    asked = [approval.asked for approval in waiting]
    if not asked:
        return ""
    first = asked[0]
    who = f"agent {first.agent}" if first.agent else "a direct call"
    text = f"{first.capability} of {who} waits for a person's answer"
    return f"{text}, and {len(asked) - 1} more." if len(asked) > 1 else f"{text}."


def _client(asked: Asked) -> str:
    return asked.client or asked.caller


def _too_many(what: str) -> OverloadedError:
    return OverloadedError(
        f"{what} wait for a person's answer, and no more of them may; answer some, "
        "`interlock approvals` lists them."
    )


def _closed(id_: str, outcome: Outcome) -> ApprovalClosedError:
    return ApprovalClosedError(f"Approval {id_} {_ENDED[outcome]}; nothing was changed.")
