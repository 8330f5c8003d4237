"""Which of the tickets that were given out a change takes the ground from; pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import msgspec

from interlock.bus.settings import PolicySettings
from interlock.supervisor.catalog.offer import PERSON, Caller, forbidden
from interlock.supervisor.catalog.rows import CatalogRow
from interlock.supervisor.policy.decision import per_call


class Basis(msgspec.Struct, frozen=True, kw_only=True):
    """What one call was decided by when its ticket was given."""

    row: CatalogRow
    policy: PolicySettings
    agent: str = ""
    """Name of the agent; empty for a person's own call."""


class Lent(msgspec.Struct, frozen=True, kw_only=True):
    """A ticket for one name at one generation of a worker."""

    id: str
    local: str
    expires: float
    """Unix seconds."""
    basis: Basis | None = None
    """Of a ticket for a single call; None: a client may call that name as often as it likes."""


def void(
    lent: Sequence[Lent],
    rows: Iterable[CatalogRow],
    policy: PolicySettings,
    caller: Callable[[str], Caller],
) -> tuple[str, ...]:
    """The ids of tickets that no longer hold, by the rows and the policy of now.

    One for a single call holds as long as that capability and policy are what was decided about:
    what else its server serves does not matter. Any other one holds as long as calls of that name
    need no decision. `caller` tells for whom an agent's name, or none, stands now.
    """
    now = {row.local: row for row in rows}
    # To compare policies of thousands of rules takes long; few differ between many tickets.
    bases = {id(one.basis.policy): one.basis.policy for one in lent if one.basis is not None}
    same = {number for number, before in bases.items() if before == policy}
    free = {
        local
        for local in {one.local for one in lent if one.basis is None} & now.keys()
        if forbidden(now[local], PERSON, policy) is None
        and not per_call(now[local].name, now[local].tier, policy)
    }
    return tuple(
        one.id
        for one in lent
        if not (
            one.local in free
            if one.basis is None
            else id(one.basis.policy) in same
            and _holds(one.basis, now.get(one.local), policy, caller(one.basis.agent))
        )
    )


def _holds(basis: Basis, now: CatalogRow | None, policy: PolicySettings, caller: Caller) -> bool:
    if now is None or (now.digest, now.tier) != (basis.row.digest, basis.row.tier):
        return False
    return forbidden(now, caller, policy) is None
