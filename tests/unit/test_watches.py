"""What the supervisor does by the clock."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from interlock.bus.messages import ControlDown, Revoke
from interlock.bus.settings import Timing
from interlock.supervisor.policy.tickets import TicketOffice
from interlock.supervisor.watches import repeat_revocations


def test_a_revocation_that_was_lost_is_sent_again_until_it_is_acknowledged() -> None:
    """Promise: what a turn held is void once it ended, whatever became of one message."""

    async def story() -> None:
        office = TicketOffice()
        for worker in ("mcp:git", "mcp:time"):
            office.open_target(worker, 1, b"1" * 32, f"ipc:///x/{worker}")
            office.turn_target(worker, "t1", "agent:main", ["a"])
        lost, heard = office.revoke_turn("t1")
        assert office.revoked(heard.worker, heard.generation, heard.message.n)
        sent: list[tuple[str, int, ControlDown]] = []
        again = asyncio.Event()

        def send(worker: str, generation: int, message: ControlDown) -> bool:
            sent.append((worker, generation, message))
            if len(sent) == 2:  # the first one finds a full queue, as the one before did
                assert isinstance(message, Revoke)
                office.revoked(worker, generation, message.n)
                again.set()
            return len(sent) == 2

        fleet: Any = SimpleNamespace(timing=Timing(ping=0.01), send=send)
        repeating = asyncio.ensure_future(repeat_revocations(fleet, office))
        async with asyncio.timeout(10):
            await again.wait()
        assert sent == [("mcp:git", 1, lost.message)] * 2
        assert office.unheard(0) == ()
        repeating.cancel()
        await asyncio.wait([repeating], timeout=10)

    asyncio.run(story())
