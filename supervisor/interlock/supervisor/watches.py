"""What the supervisor does by the clock: pings, memory limits, lost revocations."""

from __future__ import annotations

import asyncio
import time

from interlock.bus.messages import Ping
from interlock.bus.settings import Size
from interlock.supervisor.attention import MEMORY_SOFT, Attention, Row
from interlock.supervisor.config.sizes import parse_size
from interlock.supervisor.fleet.fleet import Fleet
from interlock.supervisor.fleet.member import Member
from interlock.supervisor.fleet.pings import PingClock
from interlock.supervisor.fleet.resources import Sampler
from interlock.supervisor.lifecycle import inputs
from interlock.supervisor.policy.tickets import TicketOffice
from interlock.supervisor.spawn.limits import judge


async def ping_workers(fleet: Fleet, clock: PingClock) -> None:
    """Ping all workers in one tick, every `timing.ping`; end the hung ones. Until cancelled."""
    while True:
        interval = fleet.timing.ping
        await asyncio.sleep(interval)
        up = [
            (member.worker.name, member.worker.generation)
            for member in fleet.up()
            if member.told_gone < member.worker.generation  # the dead do not hang
        ]
        misses = fleet.timing.ping_misses
        pinged, hung = clock.tick(time.monotonic(), interval, misses, up)
        for name, generation in pinged:
            fleet.send(name, generation, Ping(n=clock.n))
        for name, generation in hung:
            event = inputs.Hung(now=time.monotonic(), generation=generation, misses=misses)
            fleet.feed(name, event)


async def watch_limits(fleet: Fleet, sampler: Sampler, attention: Attention) -> None:
    """Measure, every `timing.sample`, the workers that have a memory limit. Until cancelled."""
    while True:
        await asyncio.sleep(fleet.timing.sample)
        if not _limited(fleet):
            continue
        await sampler.measure(fleet.pids())
        for member in _limited(fleet):
            load = sampler.load(member.worker.name, member.worker.pid)
            _judge(fleet, attention, member, load.rss_bytes)


async def repeat_revocations(fleet: Fleet, tickets: TicketOffice) -> None:
    """Send again, every `timing.ping`, what no worker acknowledged for as long. Until cancelled.

    A message may find a full queue, and a ticket that is to be void would live on until it expires.
    """
    while True:
        patience = fleet.timing.ping
        await asyncio.sleep(patience)
        for one in tickets.unheard(patience):
            fleet.send(one.worker, one.generation, one.message)


def _limited(fleet: Fleet) -> list[Member]:
    return [
        member
        for member in fleet.up()
        if member.entry.settings.limits.memory is not None
        or member.entry.settings.limits.memory_soft is not None
    ]


def _judge(fleet: Fleet, attention: Attention, member: Member, rss: int) -> None:
    worker, limits = member.worker, member.entry.settings.limits
    soft, hard = _bytes(limits.memory_soft), _bytes(limits.memory)
    verdict = judge(rss, soft, hard)
    if verdict == "hard" and hard is not None:
        event = inputs.LimitExceeded(
            now=time.monotonic(), generation=worker.generation, reason=over_memory(rss, hard)
        )
        fleet.feed(worker.name, event)
    elif verdict == "soft" and soft is not None:
        message = f"{worker.name} {over_memory(rss, soft)}."
        fix = f"Raise limits.memory_soft of {worker.name} or restart it."
        attention.set(Row(name=worker.name, code=MEMORY_SOFT, message=message, fix=fix))
    else:
        attention.clear(worker.name, MEMORY_SOFT)


def _bytes(size: Size | None) -> int | None:
    return None if size is None else parse_size(size)


def over_memory(rss: int, limit: int) -> str:
    """Say in plain words what was exceeded.

    >>> over_memory(3 << 20, 2 << 20)
    'used 3 MiB of memory, its limit is 2 MiB'
    """
    return f"used {rss / (1 << 20):.0f} MiB of memory, its limit is {limit / (1 << 20):.0f} MiB"
